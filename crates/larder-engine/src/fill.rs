//! Fills: blocks from the origin into readers' hands and into the store.
//!
//! Invariant: a block is in the map of blocks in flight from before its bytes are asked for until
//! it is resident or given up, so nobody fetches a byte that is already on its way. A fill belongs
//! to the engine, not to the reader that began it.

use crate::arriving::{Arriving, Delivery, End};
use crate::ledger::{Admission, Asked, Ledger, ObjectId};
use crate::meters::Cause;
use crate::pin::{Landing, ask};
use crate::reader::Ahead;
use crate::shelf::{Pin, Shelf, lock};
use crate::{ReadError, Source};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use larder_model::{
    Block, BlockKey, ByteRange, FetchRequest, Fetched, Handle, Load, ObjectMeta, ObjectName,
    OriginError, Pinned, RangeSpec, Reserve, SPAN_BLOCKS, Stored,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How long a fill waits for memory before it gives up.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);

/// Objects up to this many spans are read to their end once a GET without a range has begun;
/// of larger ones the first span is taken and the rest fetched by ranges, side by side.
const WHOLE_SPANS: u64 = 2;

/// Where the first bytes lie that a reader wants of an object of unknown size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstRange {
    /// All of it, with its stored checksums: these come with a GET without a range only.
    Whole,
    /// From this block on, up to its span's end.
    From(u64),
    /// These blocks, within one span.
    Blocks(u64, u64),
}

impl FirstRange {
    /// `None` for a suffix, whose place depends on the size.
    pub(crate) fn new(spec: Option<RangeSpec>, checksums: bool, block_bytes: u32) -> Option<Self> {
        let block = |offset: u64| offset / u64::from(block_bytes);
        match spec {
            None if checksums => Some(Self::Whole),
            None => Some(Self::From(0)),
            Some(RangeSpec::From(a)) => Some(Self::From(block(a))),
            Some(RangeSpec::FromTo(a, b)) => {
                let (first, last) = (block(a), block(b));
                Some(Self::Blocks(first, last.min(span_end(first) - 1) + 1))
            }
            Some(RangeSpec::Suffix(_)) => None,
        }
    }

    /// The range to ask for; `None` for a GET without one.
    fn bytes(self, block_bytes: u32) -> Option<ByteRange> {
        let (first, end) = match self {
            Self::Whole => return None,
            Self::From(first) => (first, span_end(first)),
            Self::Blocks(first, end) => (first, end),
        };
        let at = |block: u64| block.saturating_mul(u64::from(block_bytes));
        ByteRange::new(at(first), at(end))
    }
}

/// The first block behind the span that holds `block`.
pub(crate) fn span_end(block: u64) -> u64 {
    (block / SPAN_BLOCKS + 1).saturating_mul(SPAN_BLOCKS)
}

/// Blocks in flight, by key.
type Fills = HashMap<BlockKey, Arc<Arriving>>;

/// A run that this task is to bring: nobody else will.
struct Taken {
    run: Range<u64>,
    /// The slots in the object table; none for an object that changed meanwhile.
    handles: Vec<Option<Handle>>,
    delivery: Delivery,
}

/// What a reader finds when it comes for a block.
pub(crate) enum Approach {
    /// It is in memory.
    Ready(Block),
    /// It is on its way, from the origin or the SSD.
    Follow(Arc<Arriving>),
    /// Neither: these blocks, from the one asked for on, are to be fetched.
    Missing(Range<u64>),
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
            self.tasks.spawn(load(self.clone(), pin.clone(), index, arriving.clone()));
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

    /// The block, if it is on its way.
    pub(crate) fn in_flight(&self, pin: &Pin, index: u64) -> Option<Arc<Arriving>> {
        lock(&self.fills).get(&pin.pinned.digest.block(index)).cloned()
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

    /// Begins to fetch a run from the origin; its blocks can be followed at once. Blocks that
    /// somebody else took up meanwhile are left out from the first such block on.
    pub(crate) fn fetch(self: &Arc<Self>, pin: &Pin, run: Range<u64>, reserve: Reserve, job: u16) {
        let taken = self.take_up(&mut lock(&self.fills), pin, run, job);
        if let Some(taken) = taken {
            self.tasks.spawn(fetch(self.clone(), pin.clone(), taken, reserve));
        }
    }

    /// Puts the run's blocks into the map of blocks in flight.
    fn take_up(&self, fills: &mut Fills, pin: &Pin, run: Range<u64>, job: u16) -> Option<Taken> {
        let digest = pin.pinned.digest;
        let mut ledger = self.ledger();
        let mut blocks = Vec::new();
        let mut handles = Vec::new();
        for index in run.clone() {
            let key = digest.block(index);
            if fills.contains_key(&key) || ledger.resident(pin.id, digest, index) {
                break;
            }
            let bytes = self.stored_bytes(&pin.pinned, index);
            let (handle, cause) = ledger.miss(pin.id, digest, index, bytes, job);
            self.missed(cause);
            handles.push(handle);
            let arriving = Arc::new(Arriving::new(key, Source::Origin));
            fills.insert(key, arriving.clone());
            blocks.push(arriving);
        }
        drop(ledger);
        self.stir.notify_one();
        if blocks.is_empty() {
            return None;
        }
        let origin = self.origin.name().clone();
        let error = ReadError::Unreachable { origin, reason: "the fill ended early".to_owned() };
        Some(Taken {
            run: run.start..run.start + blocks.len() as u64,
            handles,
            delivery: Delivery::new(blocks, error),
        })
    }

    /// Takes a first answer into the table and its run in hand, before any reader can see the one
    /// without the other and fetch the same bytes again.
    fn observe_and_take_up(
        &self,
        name: &ObjectName,
        meta: &Arc<ObjectMeta>,
        asked: Asked,
        checksums: bool,
        run: Range<u64>,
    ) -> Option<(Pin, Option<Taken>)> {
        let mut fills = lock(&self.fills);
        let pin = self.observe(name, meta, asked, checksums)?;
        let taken = self.take_up(&mut fills, &pin, run, 0);
        Some((pin, taken))
    }

    /// Ends the rest of a run that will not come.
    fn give_up(&self, pin: &Pin, from: usize, taken: &Taken, error: &ReadError) {
        if matches!(error, ReadError::Changed(_)) {
            self.doubt(&pin.pinned);
        }
        let mut fills = lock(&self.fills);
        let mut ledger = self.ledger();
        for (at, handle) in taken.handles.iter().enumerate().skip(from) {
            fills.remove(&taken.delivery.block(at).key());
            if let Some(handle) = handle {
                ledger.abandon(*handle, pin.id, pin.pinned.digest);
            }
        }
        drop(ledger);
        drop(fills);
        taken.delivery.fail(error);
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

fn sealed_bytes(pinned: &Pinned, index: u64) -> u64 {
    Block::sealed_bytes(pinned.layout().block(index).len() as usize) as u64
}

/// Brings a run from the origin.
async fn fetch(shelf: Arc<Shelf>, pin: Pin, taken: Taken, reserve: Reserve) {
    let pinned = &pin.pinned;
    let range = pinned.layout().bytes(&taken.run);
    let request = FetchRequest {
        name: pinned.name.clone(),
        range: Some(range),
        if_match: pinned.meta.etag.clone(),
        part_number: None,
        checksums: false,
    };
    let fetched = match shelf.origin.fetch(request).await {
        Ok(fetched) => check(&shelf, pinned, &fetched, range).map(|()| fetched),
        // A range that lies outside, or an object that is gone, is a changed object here: the pin
        // promised otherwise.
        Err(OriginError::RangeNotSatisfiable { .. } | OriginError::NotFound(_)) => {
            Err(ReadError::Changed(pinned.name.clone()))
        }
        Err(error) => Err(shelf.refusal(&pinned.name, error)),
    };
    match fetched {
        Ok(fetched) => deliver(&shelf, &pin, taken, reserve, fetched).await,
        Err(error) => shelf.give_up(&pin, 0, &taken, &error),
    }
}

/// An answer to a fill must be of the pinned version and of the range that was asked for.
fn check(
    shelf: &Shelf,
    pinned: &Pinned,
    fetched: &Fetched,
    range: ByteRange,
) -> Result<(), ReadError> {
    if fetched.meta.version().as_ref() != Some(&pinned.version)
        || fetched.meta.size != pinned.size()
    {
        return Err(ReadError::Changed(pinned.name.clone()));
    }
    if fetched.range != Some(range) {
        let origin = shelf.origin.name().clone();
        let reason = format!(
            "asked for bytes {}-{} of {}, it sent others",
            range.start(),
            range.end(),
            pinned.name
        );
        return Err(ReadError::Unreachable { origin, reason });
    }
    Ok(())
}

/// Cuts a body into blocks: hands the bytes to followers as they come, seals what is complete.
async fn deliver(
    shelf: &Arc<Shelf>,
    pin: &Pin,
    taken: Taken,
    mut reserve: Reserve,
    fetched: Fetched,
) {
    let layout = pin.pinned.layout();
    let Taken { run, handles, delivery } = &taken;
    let Fetched { mut body, range, .. } = fetched;
    let to_the_end = range.is_some_and(|range| range.end() == layout.bytes(run).end());
    let mut left = layout.block(run.start).len() as usize;
    let mut at = 0;
    while at < delivery.len() {
        let mut frame = match next_frame(shelf, pin, &mut body).await {
            Ok(frame) => frame,
            Err(error) => return shelf.give_up(pin, at, &taken, &error),
        };
        shelf.meters.origin_bytes.inc_by(frame.len() as u64);
        while !frame.is_empty() && at < delivery.len() {
            let piece = frame.split_to(left.min(frame.len()));
            left -= piece.len();
            delivery.block(at).push(piece);
            if left > 0 {
                continue;
            }
            let last = at + 1 == delivery.len();
            // The origin may have the last word behind the last byte: that the object changed.
            if last
                && to_the_end
                && let Some(Err(error)) = body.next().await
            {
                let error = shelf.refusal(&pin.pinned.name, error);
                return shelf.give_up(pin, at, &taken, &error);
            }
            let index = run.start + at as u64;
            let block = delivery.block(at).seal(reserve.split(sealed_bytes(&pin.pinned, index)));
            shelf.tasks.spawn(keep(shelf.clone(), pin.clone(), handles[at], block));
            at += 1;
            if !last {
                left = layout.block(run.start + at as u64).len() as usize;
            }
        }
    }
}

async fn next_frame(
    shelf: &Shelf,
    pin: &Pin,
    body: &mut BoxStream<'static, Result<Bytes, OriginError>>,
) -> Result<Bytes, ReadError> {
    match body.next().await {
        Some(Ok(frame)) => Ok(frame),
        Some(Err(error)) => Err(shelf.refusal(&pin.pinned.name, error)),
        None => {
            let origin = shelf.origin.name().clone();
            let reason = format!("the body of {} ended early", pin.pinned.name);
            Err(ReadError::Unreachable { origin, reason })
        }
    }
}

/// Offers a sealed block to the store, and takes it out of the map of blocks in flight once it is
/// there, or not to be.
async fn keep(shelf: Arc<Shelf>, pin: Pin, handle: Option<Handle>, block: Block) {
    let key = block.key();
    if let Some(handle) = handle {
        offer(&shelf, pin.id, &pin.pinned, handle, block).await;
    }
    lock(&shelf.fills).remove(&key);
    shelf.stir.notify_one();
}

async fn offer(shelf: &Arc<Shelf>, id: ObjectId, pinned: &Pinned, handle: Handle, block: Block) {
    let digest = pinned.digest;
    let (key, len) = (block.key(), block.len() as u64);
    let admission = shelf.ledger().admit(handle, id, digest, shelf.evicts());
    let freed = match admission {
        Admission::Admitted(freed) => freed,
        Admission::Rejected(freed) => {
            shelf.evicted(&freed);
            shelf.starved.fetch_add(len, std::sync::atomic::Ordering::AcqRel);
            return;
        }
    };
    shelf.evicted(&freed);
    match shelf.store.store(&shelf.pool_name, block).await {
        Stored::Kept => {
            if !shelf.ledger().confirm(handle, id, digest) {
                shelf.store.remove(&shelf.pool_name, key);
            }
        }
        Stored::Dropped => shelf.ledger().retract(handle, id, digest),
    }
}

/// Loads a resident block from the SSD.
async fn load(shelf: Arc<Shelf>, pin: Pin, index: u64, arriving: Arc<Arriving>) {
    let key = arriving.key();
    let end = match shelf.store.load(&shelf.pool_name, key).await {
        Load::Hit(block, _) => End::Sealed(block),
        Load::Miss | Load::Failed => lost(&shelf, &pin, index, Cause::Lost),
        Load::Corrupt => lost(&shelf, &pin, index, Cause::Corrupt),
    };
    lock(&shelf.fills).remove(&key);
    arriving.finish(end);
}

fn lost(shelf: &Shelf, pin: &Pin, index: u64, cause: Cause) -> End {
    let freed = shelf.ledger().lose(pin.id, pin.pinned.digest, index, cause);
    shelf.discard(freed.as_slice());
    tracing::warn!(object = %pin.pinned.name, block = index, ?cause, "a resident block could not be read; fetching it again");
    End::Gone
}

/// The first ask for an object of which nothing is here: one GET that tells its version and brings
/// its first span.
pub(crate) async fn open(
    shelf: Arc<Shelf>,
    name: ObjectName,
    asked: Asked,
    first: FirstRange,
    checksums: bool,
    landing: Landing,
) {
    let fetched = match first_fetch(&shelf, &name, first, checksums).await {
        Ok(Some(fetched)) => fetched,
        // The range begins behind the object's end: only its state is of use.
        Ok(None) => return ask(shelf, name, asked, landing).await,
        Err(error) => {
            if matches!(error, OriginError::NotFound(_)) {
                shelf.vanished(&name, asked);
            }
            return landing.failed(shelf.refusal(&name, error));
        }
    };
    let meta = Arc::new(fetched.meta.clone());
    let block_bytes = shelf.dataset.block_bytes;
    let pinned = Pinned::new(&shelf.pool_name, name.clone(), meta.clone(), block_bytes);
    let run = pinned.as_ref().and_then(|pinned| first_run(pinned, &fetched, first));
    let (Some(pinned), Some(run)) = (pinned, run) else {
        // Not cacheable, or empty.
        return match shelf.observe(&name, &meta, asked, checksums) {
            Some(_) => landing.known(),
            None => landing.uncacheable(meta),
        };
    };
    // Nothing has been read of the body yet; it waits in the connection until there is room.
    let Some((run, reserve)) = shelf.room(&pinned, run).await else {
        return landing.failed(shelf.no_room());
    };
    let Some((pin, taken)) = shelf.observe_and_take_up(&name, &meta, asked, checksums, run) else {
        return landing.uncacheable(meta);
    };
    landing.known();
    if let Some(taken) = taken {
        deliver(&shelf, &pin, taken, reserve, fetched).await;
    }
}

/// The blocks that the body of a first fetch brings.
fn first_run(pinned: &Pinned, fetched: &Fetched, first: FirstRange) -> Option<Range<u64>> {
    let layout = pinned.layout();
    let blocks = layout.blocks(fetched.range?);
    let long = layout.count() > WHOLE_SPANS * SPAN_BLOCKS;
    match first {
        FirstRange::Whole if long => Some(0..SPAN_BLOCKS),
        _ => Some(blocks),
    }
}

async fn first_fetch(
    shelf: &Shelf,
    name: &ObjectName,
    first: FirstRange,
    checksums: bool,
) -> Result<Option<Fetched>, OriginError> {
    let range = first.bytes(shelf.dataset.block_bytes);
    let request =
        FetchRequest { name: name.clone(), range, if_match: None, part_number: None, checksums };
    match shelf.origin.fetch(request.clone()).await {
        Ok(fetched) => Ok(Some(fetched)),
        // No range fits an empty object.
        Err(OriginError::RangeNotSatisfiable { size, .. })
            if range.is_some_and(|range| range.start() == 0)
                && size.is_none_or(|size| size == 0) =>
        {
            let request = FetchRequest { range: None, ..request };
            shelf.origin.fetch(request).await.map(Some)
        }
        Err(OriginError::RangeNotSatisfiable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
