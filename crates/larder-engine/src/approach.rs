//! Finding a block: in memory, on its way, on the SSD, or nowhere yet.
//!
//! Invariant: a block is in the map of blocks in flight from before its bytes are asked for until
//! it is resident or given up, so nobody fetches a byte that is already on its way. The map and the
//! object table are looked at together, under the map's lock.

use crate::arriving::{Arriving, End};
use crate::fill;
use crate::flying::{Fills, Flying};
use crate::ledger::Ledger;
use crate::meters::Cause;
use crate::pin::Flight;
use crate::shelf::{Pin, Shelf, lock};
use crate::{ReadError, Source};
use larder_model::{Block, Load, ObjectMeta, ObjectName, Pinned, Reserve};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader or a fill waits for memory before it gives up.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);

/// What a reader finds when it comes for a block.
pub(crate) enum Approach {
    /// It is in memory.
    Ready(Block),
    /// It is on its way, from the origin or the SSD.
    Follow(Arc<Arriving>),
    /// Neither: these blocks, from the one asked for on, are to be fetched.
    Missing(Range<u64>),
}

/// What lies ahead of a reader.
pub(crate) enum Ahead {
    /// In memory.
    Ready,
    /// On its way.
    Follow(Arc<Arriving>),
    /// On the SSD.
    OnDisk,
    /// Nowhere.
    Missing(Range<u64>),
}

/// A run that one task is to bring: nobody else will.
pub(crate) struct Taken {
    pub(crate) run: Range<u64>,
    pub(crate) blocks: VecDeque<Flying>,
}

impl Taken {
    /// The blocks, for followers.
    pub(crate) fn arrivals(&self) -> Vec<(u64, Arc<Arriving>)> {
        self.blocks.iter().map(|block| (block.index(), block.arriving().clone())).collect()
    }
}

impl Shelf {
    /// Looks for a block; begins to load it if it is on the SSD. `limit` bounds a missing run.
    pub(crate) fn approach(
        self: &Arc<Self>,
        pin: &Pin,
        index: u64,
        limit: u64,
        job: u16,
    ) -> Approach {
        let digest = pin.pinned.digest;
        let mut fills = lock(&self.fills);
        if let Some(arriving) = fills.get(&digest.block(index)) {
            return Approach::Follow(arriving.clone());
        }
        // It may have become resident between the reader's look and the lock.
        if let Some(block) = self.peek(pin, index, job) {
            return Approach::Ready(block);
        }
        let mut ledger = self.ledger();
        if ledger.resident(pin.id, digest, index) {
            ledger.touch(pin.id, digest, index, job);
            drop(ledger);
            let arriving = Arc::new(Arriving::new(digest.block(index), Source::Disk));
            fills.insert(arriving.key(), arriving.clone());
            drop(fills);
            let flying = Flying::new(self.clone(), pin.clone(), index, None, arriving.clone());
            self.tasks.spawn(load(flying));
            return Approach::Follow(arriving);
        }
        Approach::Missing(index..missing_end(&fills, &mut ledger, pin, index, limit))
    }

    /// Looks at a block without touching it.
    pub(crate) fn look(&self, pin: &Pin, index: u64, limit: u64) -> Ahead {
        let digest = pin.pinned.digest;
        let fills = lock(&self.fills);
        if let Some(arriving) = fills.get(&digest.block(index)) {
            return Ahead::Follow(arriving.clone());
        }
        if self.in_memory(pin, index) {
            return Ahead::Ready;
        }
        let mut ledger = self.ledger();
        if ledger.resident(pin.id, digest, index) {
            return Ahead::OnDisk;
        }
        Ahead::Missing(index..missing_end(&fills, &mut ledger, pin, index, limit))
    }

    /// Whether the block is in memory.
    pub(crate) fn in_memory(&self, pin: &Pin, index: u64) -> bool {
        self.store.peek(&self.pool_name, pin.pinned.digest.block(index)).is_some()
    }

    /// Memory for the blocks of a run, if it is there now.
    pub(crate) fn room_now(&self, pinned: &Pinned, run: Range<u64>) -> Option<Reserve> {
        self.budget.try_reserve(run.map(|index| sealed_bytes(pinned, index)).sum())
    }

    /// Memory for the blocks of a run; waits for it if it must, and then a run of one block will do.
    /// `None` when there was none for long.
    pub(crate) async fn room(
        &self,
        pinned: &Pinned,
        run: Range<u64>,
    ) -> Option<(Range<u64>, Reserve)> {
        if let Some(reserve) = self.room_now(pinned, run.clone()) {
            return Some((run, reserve));
        }
        let one = run.start..run.start + 1;
        let waiting = self.budget.reserve(sealed_bytes(pinned, run.start));
        let reserve = tokio::time::timeout(MEMORY_PATIENCE, waiting).await.ok()?;
        Some((one, reserve))
    }

    /// The error for a reader that found no room in memory.
    pub(crate) fn no_room(&self) -> ReadError {
        let (used, limit) = (self.budget.used(), self.budget.limit());
        let reason = format!("{used} of {limit} bytes of memory for blocks are in use");
        ReadError::Busy { reason, retry_after: Duration::from_secs(1) }
    }

    /// Whether there is memory enough to fetch ahead of readers. The last quarter of the budget is
    /// for blocks that somebody is waiting for.
    pub(crate) fn plenty(&self) -> bool {
        self.budget.used() < self.budget.limit() / 4 * 3
    }

    /// Begins to fetch a run from the origin, and hands out its blocks to follow. Blocks that
    /// somebody else took up meanwhile are left out, from the first such block on.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        pin: &Pin,
        run: Range<u64>,
        reserve: Reserve,
        job: u16,
    ) -> Vec<(u64, Arc<Arriving>)> {
        let taken = self.take_up(&mut lock(&self.fills), pin, run, job);
        let Some(taken) = taken else { return Vec::new() };
        let arrivals = taken.arrivals();
        self.tasks.spawn(fill::fetch(self.clone(), pin.clone(), taken, reserve));
        arrivals
    }

    /// Puts the run's blocks into the map of blocks in flight.
    fn take_up(
        self: &Arc<Self>,
        fills: &mut Fills,
        pin: &Pin,
        run: Range<u64>,
        job: u16,
    ) -> Option<Taken> {
        let digest = pin.pinned.digest;
        let mut ledger = self.ledger();
        let mut blocks = VecDeque::new();
        for index in run.clone() {
            let key = digest.block(index);
            if fills.contains_key(&key) || ledger.resident(pin.id, digest, index) {
                break;
            }
            let bytes = self.stored_bytes(&pin.pinned, index);
            let (ticket, cause) = ledger.miss(pin.id, digest, index, bytes, job);
            self.missed(cause);
            let arriving = Arc::new(Arriving::new(key, Source::Origin));
            fills.insert(key, arriving.clone());
            blocks.push_back(Flying::new(self.clone(), pin.clone(), index, ticket, arriving));
        }
        drop(ledger);
        self.stir.notify_one();
        if blocks.is_empty() {
            return None;
        }
        Some(Taken { run: run.start..run.start + blocks.len() as u64, blocks })
    }

    /// Takes a first answer into the table and its run in hand, before any reader can see the one
    /// without the other and fetch the same bytes again.
    pub(crate) fn observe_and_take_up(
        self: &Arc<Self>,
        name: &ObjectName,
        meta: &Arc<ObjectMeta>,
        flight: &Flight,
        checksums: bool,
        run: Range<u64>,
    ) -> Option<(Pin, Option<Taken>)> {
        let mut fills = lock(&self.fills);
        let pin = self.observe(name, meta, flight, checksums)?;
        let taken = self.take_up(&mut fills, &pin, run, 0);
        Some((pin, taken))
    }
}

impl Shelf {
    /// Takes in what a writer was told of a block that it wrote, and the block in hand: nobody
    /// fetches it meanwhile. `None` when somebody does already, or it is not to be kept.
    pub(crate) fn observe_and_claim(
        self: &Arc<Self>,
        name: &ObjectName,
        meta: &Arc<ObjectMeta>,
        flight: &Flight,
    ) -> Option<(Pin, Option<Flying>)> {
        let mut fills = lock(&self.fills);
        let pin = self.observe(name, meta, flight, flight.checksums())?;
        let (digest, key) = (pin.pinned.digest, pin.pinned.digest.block(0));
        let mut ledger = self.ledger();
        // Looked at where no write of another can begin between this and the claim.
        let free = ledger.fences.alone(name)
            && !fills.contains_key(&key)
            && !ledger.resident(pin.id, digest, 0);
        let bytes = self.stored_bytes(&pin.pinned, 0);
        let ticket = free.then(|| ledger.name(pin.id, digest, 0, bytes)).flatten();
        drop(ledger);
        let flying = ticket.map(|ticket| {
            let arriving = Arc::new(Arriving::new(key, Source::Origin));
            fills.insert(key, arriving.clone());
            Flying::new(self.clone(), pin.clone(), 0, Some(ticket), arriving)
        });
        Some((pin, flying))
    }
}

/// The end of the missing blocks that begin at `index`, `limit` at most.
fn missing_end(fills: &Fills, ledger: &mut Ledger, pin: &Pin, index: u64, limit: u64) -> u64 {
    let digest = pin.pinned.digest;
    let mut end = index + 1;
    while end < limit
        && !fills.contains_key(&digest.block(end))
        && !ledger.resident(pin.id, digest, end)
    {
        end += 1;
    }
    end
}

/// The memory of one sealed block of the object.
pub(crate) fn sealed_bytes(pinned: &Pinned, index: u64) -> u64 {
    Block::sealed_bytes(pinned.layout().block(index).len() as usize) as u64
}

/// Loads a resident block from the SSD, once there is room for it in memory.
async fn load(flying: Flying) {
    let (shelf, pin, index) = (flying.shelf().clone(), flying.pin().clone(), flying.index());
    // The store counts what it reads by itself, but only once it has read it: until then the room is
    // held here, or many loads at once would pass on the same free bytes.
    let waiting = shelf.budget.reserve(sealed_bytes(&pin.pinned, index));
    let Ok(room) = tokio::time::timeout(MEMORY_PATIENCE, waiting).await else {
        return flying.end(End::Failed(shelf.no_room()));
    };
    let key = pin.pinned.digest.block(index);
    let loaded = shelf.store.load(&shelf.pool_name, key).await;
    drop(room);
    let end = match loaded {
        Load::Hit(block, _) => End::Sealed(block),
        Load::Miss | Load::Failed => lost(&shelf, &pin, index, Cause::Lost),
        Load::Corrupt => lost(&shelf, &pin, index, Cause::Corrupt),
    };
    flying.end(end);
}

/// A resident block is not there, or not whole. One that was evicted meanwhile is no loss.
fn lost(shelf: &Shelf, pin: &Pin, index: u64, cause: Cause) -> End {
    let freed = shelf.ledger().lose(pin.id, pin.pinned.digest, index, cause);
    if freed.is_some() {
        tracing::warn!(
            object = %pin.pinned.name,
            block = index,
            ?cause,
            "a resident block could not be read; fetching it again"
        );
    }
    shelf.discard(freed.as_slice());
    End::Gone
}
