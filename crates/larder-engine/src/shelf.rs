//! Everything that belongs to one dataset on one node: its object table, its blocks in flight, its
//! origin, and its place in the store.

use crate::ReadError;
use crate::flying::Fills;
use crate::ledger::{Asked, Freed, Ledger, ObjectId};
use crate::listing::Pages;
use crate::meters::{Cause, DatasetMeters};
use crate::pin::Flights;
use crate::pool::Pool;
use crate::tasks::Tasks;
use larder_model::{
    Block, BlockStore, Budget, Clock, Dataset, EventKind, ObjectName, OnFull, Origin, OriginError,
    Pinned, PolicyInfo, PoolName,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// One dataset on one node.
pub(crate) struct Shelf {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) pool_name: PoolName,
    pub(crate) pool: Arc<Pool>,
    pub(crate) policy: PolicyInfo,
    pub(crate) origin: Arc<dyn Origin>,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) budget: Budget,
    pub(crate) meters: DatasetMeters,
    pub(crate) tasks: Tasks,
    /// Told when the policy has something to hear, or room is short.
    pub(crate) stir: Arc<Notify>,
    /// Bytes that were not admitted for want of room since the policy was asked last.
    pub(crate) starved: AtomicU64,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) flights: Mutex<Flights>,
    pub(crate) fills: Mutex<Fills>,
    pub(crate) pages: Mutex<Pages>,
    pub(crate) ticks: AtomicU64,
}

/// A pinned object and its number in the table.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) id: ObjectId,
    pub(crate) pinned: Arc<Pinned>,
}

/// Locks without minding a panic elsewhere: no code here panics while its state is half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// The next tick: orders arrivals and asks, whatever the clock says.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// An ask that begins now.
    pub(crate) fn asking(&self) -> Asked {
        Asked { tick: self.tick(), at: self.clock.now() }
    }

    /// Whether the policy lets the host make room by itself.
    pub(crate) fn evicts(&self) -> bool {
        self.policy.on_full == OnFull::Evict
    }

    /// What a block of the object takes as stored.
    pub(crate) fn stored_bytes(&self, pinned: &Pinned, index: u64) -> u64 {
        let len = pinned.layout().block(index).len();
        self.store.stored_bytes(&self.pool_name, u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// Takes freed blocks out of the store.
    pub(crate) fn discard(&self, freed: &[Freed]) {
        for block in freed {
            self.store.remove(&self.pool_name, block.key);
        }
        self.stir.notify_one();
    }

    /// Counts evicted blocks, and takes them out of the store.
    pub(crate) fn evicted(&self, freed: &[Freed]) {
        self.meters.evicted.inc_by(freed.iter().map(|block| block.bytes).sum());
        self.discard(freed);
    }

    /// The block if it is in memory, counted as read.
    pub(crate) fn peek(&self, pin: &Pin, index: u64, job: u16) -> Option<Block> {
        let digest = pin.pinned.digest;
        let block = self.store.peek(&self.pool_name, digest.block(index))?;
        self.ledger().touch(pin.id, digest, index, job);
        self.stir.notify_one();
        Some(block)
    }

    /// The block if it is in memory, for a reader of nothing else: opened, read and closed.
    pub(crate) fn peek_for(&self, pin: &Pin, index: u64, job: &Arc<str>) -> Option<Block> {
        let digest = pin.pinned.digest;
        let block = self.store.peek(&self.pool_name, digest.block(index))?;
        let mut ledger = self.ledger();
        let job = ledger.journal.job(job);
        ledger.session(EventKind::Open, pin.id, digest, job);
        ledger.touch(pin.id, digest, index, job);
        ledger.session(EventKind::Close, pin.id, digest, job);
        drop(ledger);
        self.stir.notify_one();
        Some(block)
    }

    /// The version turned out not to be current: whoever comes next asks the origin.
    pub(crate) fn doubt(&self, pinned: &Pinned) {
        self.ledger().doubt(&pinned.name, pinned.digest);
    }

    /// Turns the origin's refusal into ours.
    pub(crate) fn refusal(&self, name: &ObjectName, error: OriginError) -> ReadError {
        match error {
            OriginError::NotFound(reply)
            | OriginError::Refused(reply)
            | OriginError::RangeNotSatisfiable { reply, .. } => ReadError::Origin(reply),
            OriginError::VersionChanged => ReadError::Changed(name.clone()),
            OriginError::Busy { origin, reason, retry_after } => {
                ReadError::Busy { reason: format!("origin {origin}: {reason}"), retry_after }
            }
            OriginError::Unreachable { origin, reason } => {
                ReadError::Unreachable { origin, reason }
            }
            OriginError::BodyBroken => ReadError::BodyBroken,
        }
    }

    /// Counts a miss.
    pub(crate) fn missed(&self, cause: Cause) {
        self.meters.miss(cause);
    }
}
