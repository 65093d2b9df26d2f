//! What happens to a resident block whose region is reclaimed: it is read, verified and written
//! again like a new one.
//!
//! foyer could do that itself (its reinsertion), but it keeps the entry's old sequence number, and
//! its recovery stops reading a region where the numbers fall: after a restart whatever lies behind
//! the first reinserted entry would be lost. Written as new, the numbers of a region only rise.

use super::entry::Entry;
use super::guard::open;
use super::health::Health;
use super::life::Signs;
use super::residents::Residents;
use super::{PAGE, Pool};
use crate::metrics::{Cause, PoolMetrics};
use foyer::{Load, Statistics, StorageFilterCondition, StorageFilterResult};
use larder_model::{Block, Budget};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often a reclaim that must not go on looks whether its engine has ended.
const HOLD: Duration = Duration::from_millis(20);

/// What all lives of a pool's engine share of it.
#[derive(Clone)]
pub(crate) struct Rewrite(Arc<Shared>);

struct Shared {
    residents: Residents,
    budget: Budget,
    metrics: PoolMetrics,
    health: Arc<Health>,
    /// The pool, which owns the engine, which owns this.
    pool: OnceLock<Weak<Pool>>,
    bytes: AtomicU64,
}

impl Rewrite {
    pub(crate) fn new(
        residents: Residents,
        budget: Budget,
        metrics: PoolMetrics,
        health: Arc<Health>,
    ) -> Self {
        let (pool, bytes) = (OnceLock::new(), AtomicU64::new(0));
        Self(Arc::new(Shared { residents, budget, metrics, health, pool, bytes }))
    }

    /// Names the pool that writes.
    pub(crate) fn bind(&self, pool: &Arc<Pool>) {
        let _ = self.0.pool.set(Arc::downgrade(pool));
    }

    /// Bytes on the SSD that were given to foyer to be written again, since the start.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// For one life of the engine.
    pub(crate) fn during(&self, signs: Arc<Signs>) -> Rewriter {
        Rewriter { rewrite: self.clone(), signs }
    }
}

/// foyer asks this for each entry of a region that it is about to reclaim.
pub(crate) struct Rewriter {
    rewrite: Rewrite,
    signs: Arc<Signs>,
}

impl Rewriter {
    /// Reads the block under `hash` from the region that is being reclaimed.
    ///
    /// Blocks the thread: foyer's question is synchronous, and the answer must come before the
    /// region is gone. The threads are the engine's own, never those that serve requests.
    fn read(&self, hash: u64) -> Found {
        let Some(engine) = self.signs.engine() else { return Found::Ended };
        if !engine.may_contains(hash) {
            return Found::Nothing;
        }
        match block_on(engine.load(hash)) {
            Ok(Load::Entry { key, value: Entry::Raw(sealed), .. }) => {
                let budget = &self.rewrite.0.budget;
                open(hash, key, sealed, budget).map_or(Found::Corrupt, Found::Block)
            }
            _ if self.signs.retired() => Found::Ended,
            Ok(_) => Found::Corrupt,
            Err(_) => Found::Failed,
        }
    }

    /// Holds the reclaim while nothing can be written again: after the last entry foyer would wipe
    /// the region. When the engine has ended, it cannot.
    fn hold(&self) {
        while self.rewrite.0.health.broken() && !self.signs.retired() {
            thread::park_timeout(HOLD);
        }
    }
}

impl StorageFilterCondition for Rewriter {
    /// Admits (foyer reinserts by itself) only what cannot be written again as new, while the pool
    /// is being opened.
    fn filter(&self, _: &Arc<Statistics>, hash: u64, entry_bytes: usize) -> StorageFilterResult {
        let Shared { residents, metrics, health, pool, bytes, .. } = &*self.rewrite.0;
        self.hold();
        if !residents.wants(hash) {
            return StorageFilterResult::Reject;
        }
        let entry_bytes = (entry_bytes as u64).next_multiple_of(PAGE);
        let Some(pool) = pool.get().and_then(Weak::upgrade) else {
            return StorageFilterResult::Admit;
        };
        match self.read(hash) {
            Found::Block(block) => {
                residents.learn(hash, entry_bytes);
                bytes.fetch_add(entry_bytes, Ordering::AcqRel);
                pool.write_again(block);
                // It may have been refused, and this have been the last.
                self.hold();
            }
            Found::Nothing | Found::Ended => {}
            Found::Corrupt => {
                metrics.count(Cause::Corrupt);
                health.corrupt();
            }
            Found::Failed => {
                metrics.count(Cause::Io);
                health.failed();
                self.hold();
            }
        }
        StorageFilterResult::Reject
    }
}

/// What is under a hash.
enum Found {
    Block(Block),
    /// The entry is an old copy, and the new one is not written yet.
    Nothing,
    Corrupt,
    Failed,
    /// The engine has ended.
    Ended,
}

impl fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewriter").field("bytes", &self.rewrite.bytes()).finish_non_exhaustive()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future that other threads drive: a read on the runtime's blocking threads.
fn block_on<T>(mut future: futures_util::future::BoxFuture<'_, T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
