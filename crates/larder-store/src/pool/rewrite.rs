//! What happens to a resident block whose region is reclaimed: it is read, verified and written
//! again like a new one.
//!
//! foyer could do that itself (its reinsertion), but it keeps the entry's old sequence number, and
//! its recovery stops reading a region where the numbers fall: after a restart whatever lies behind
//! the first reinserted entry would be lost. Written as new, the numbers of a region only rise.

use super::entry::Entry;
use super::guard::{Inner, open};
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

/// foyer asks this for each entry of a region that it is about to reclaim.
#[derive(Clone)]
pub(crate) struct Rewrite(Arc<Shared>);

struct Shared {
    residents: Residents,
    budget: Budget,
    metrics: PoolMetrics,
    /// The pool, which owns the engine, which owns this.
    pool: OnceLock<Weak<Pool>>,
    /// foyer's engine, filled in while it is built.
    engine: Arc<OnceLock<Inner>>,
    bytes: AtomicU64,
}

impl Rewrite {
    pub(crate) fn new(
        residents: Residents,
        budget: Budget,
        metrics: PoolMetrics,
        engine: Arc<OnceLock<Inner>>,
    ) -> Self {
        let (pool, bytes) = (OnceLock::new(), AtomicU64::new(0));
        Self(Arc::new(Shared { residents, budget, metrics, pool, engine, bytes }))
    }

    /// Names the pool that writes.
    pub(crate) fn bind(&self, pool: &Arc<Pool>) {
        let _ = self.0.pool.set(Arc::downgrade(pool));
    }

    /// Bytes on the SSD that were given to foyer to be written again, since the start.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Reads the block under `hash` from the region that is being reclaimed.
    ///
    /// Blocks the thread: foyer's question is synchronous, and the answer must come before the
    /// region is gone. The threads are the store's own, never those that serve requests.
    fn read(&self, hash: u64) -> Found {
        let Some(engine) = self.0.engine.get() else { return Found::Failed };
        if !engine.may_contains(hash) {
            return Found::Nothing;
        }
        match block_on(engine.load(hash)) {
            Ok(Load::Entry { key, value: Entry::Raw(sealed), .. }) => {
                open(hash, key, sealed, &self.0.budget).map_or(Found::Corrupt, Found::Block)
            }
            Ok(_) => Found::Corrupt,
            Err(_) => Found::Failed,
        }
    }
}

impl StorageFilterCondition for Rewrite {
    /// Admits (foyer reinserts by itself) only what cannot be written again as new: while the pool
    /// is being opened, and when the read failed.
    fn filter(&self, _: &Arc<Statistics>, hash: u64, entry_bytes: usize) -> StorageFilterResult {
        let Shared { residents, metrics, pool, bytes, .. } = &*self.0;
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
                StorageFilterResult::Reject
            }
            Found::Nothing => StorageFilterResult::Reject,
            Found::Corrupt => {
                metrics.count(Cause::Corrupt);
                StorageFilterResult::Reject
            }
            Found::Failed => {
                metrics.count(Cause::Io);
                bytes.fetch_add(entry_bytes, Ordering::AcqRel);
                StorageFilterResult::Admit
            }
        }
    }
}

/// What is under a hash.
enum Found {
    Block(Block),
    /// The entry is an old copy, and the new one is not written yet.
    Nothing,
    Corrupt,
    Failed,
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewrite").field("bytes", &self.bytes()).finish_non_exhaustive()
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
