//! Fills: blocks from the origin into readers' hands and into the store.
//!
//! Invariant: what reaches a follower is of the pinned version and of the range that was asked for.
//! A fill belongs to the engine, not to the reader that began it.

use crate::ReadError;
use crate::approach::{Taken, sealed_bytes};
use crate::arriving::End;
use crate::flying::Flying;
use crate::ledger::{Admission, Ticket};
use crate::pin::{Landing, ask};
use crate::shelf::{Pin, Shelf};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use larder_model::{
    Block, ByteRange, FetchRequest, Fetched, ObjectName, OriginError, Pinned, RangeSpec, Reserve,
    SPAN_BLOCKS, Stored,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Brings a run from the origin.
pub(crate) async fn fetch(shelf: Arc<Shelf>, pin: Pin, taken: Taken, reserve: Reserve) {
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
        Err(error) => give_up(&shelf, &pin, taken.blocks, &error),
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

/// Ends the rest of a run that will not come.
fn give_up(shelf: &Shelf, pin: &Pin, blocks: VecDeque<Flying>, error: &ReadError) {
    if matches!(error, ReadError::Changed(_)) {
        shelf.doubt(&pin.pinned);
    }
    for block in blocks {
        block.end(End::Failed(error.clone()));
    }
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
    let Taken { run, mut blocks } = taken;
    let Fetched { mut body, range, .. } = fetched;
    let to_the_end = range.is_some_and(|range| range.end() == layout.bytes(&run).end());
    let mut left = layout.block(run.start).len() as usize;
    while !blocks.is_empty() {
        let mut frame = match next_frame(shelf, pin, &mut body).await {
            Ok(frame) => frame,
            Err(error) => return give_up(shelf, pin, blocks, &error),
        };
        shelf.meters.origin_bytes.inc_by(frame.len() as u64);
        while let Some(flying) = blocks.front().filter(|_| !frame.is_empty()) {
            let piece = frame.split_to(left.min(frame.len()));
            left -= piece.len();
            flying.arriving().push(piece);
            if left > 0 {
                continue;
            }
            // The origin may have the last word behind the last byte: that the object changed.
            let last = blocks.len() == 1;
            if last
                && to_the_end
                && let Some(Err(error)) = body.next().await
            {
                let error = shelf.refusal(&pin.pinned.name, error);
                return give_up(shelf, pin, blocks, &error);
            }
            let Some(flying) = blocks.pop_front() else { return };
            let index = flying.index();
            let block = flying.arriving().seal(reserve.split(sealed_bytes(&pin.pinned, index)));
            shelf.tasks.spawn(keep(flying, block));
            if !last {
                left = layout.block(index + 1).len() as usize;
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

/// Offers a sealed block to the store. It leaves the map of blocks in flight once it is there, or
/// not to be.
pub(crate) async fn keep(flying: Flying, block: Block) {
    let shelf = flying.shelf().clone();
    if let Some(ticket) = flying.ticket() {
        offer(&shelf, ticket, block).await;
    }
    drop(flying);
    shelf.stir.notify_one();
}

async fn offer(shelf: &Arc<Shelf>, ticket: Ticket, block: Block) {
    let (key, len) = (block.key(), block.len() as u64);
    let admission = shelf.ledger().admit(ticket, shelf.evicts());
    let (admitted, freed) = match admission {
        Admission::Admitted(freed) => (true, freed),
        Admission::Rejected(freed) => (false, freed),
    };
    shelf.evicted(&freed);
    if shelf.pool.excess().is_some() {
        shelf.pool.stir();
    }
    if !admitted {
        shelf.starved.fetch_add(len, Ordering::AcqRel);
        return;
    }
    let room = Room { shelf, ticket };
    if shelf.store.store(&shelf.pool_name, block).await == Stored::Kept && !room.confirm() {
        shelf.store.remove(&shelf.pool_name, key);
    }
}

/// The room that a block on its way to the store has taken. Given back unless the store confirms,
/// also when the store panics.
struct Room<'a> {
    shelf: &'a Shelf,
    ticket: Ticket,
}

impl Room<'_> {
    /// The store has the block. `false` when its object changed meanwhile.
    fn confirm(&self) -> bool {
        self.shelf.ledger().confirm(self.ticket)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // Does nothing to a block that was confirmed.
        self.shelf.ledger().retract(self.ticket);
    }
}

/// The first ask for an object of which nothing is here: one GET that tells its version and brings
/// its first span.
pub(crate) async fn open(shelf: Arc<Shelf>, name: ObjectName, first: FirstRange, landing: Landing) {
    let checksums = landing.flight().checksums();
    let fetched = match first_fetch(&shelf, &name, first, checksums).await {
        Ok(Some(fetched)) => fetched,
        // The range begins behind the object's end: only its state is of use.
        Ok(None) => return ask(shelf, name, landing).await,
        Err(error) => return landing.refused(&name, error),
    };
    // S3 sends stored checksums with whole answers only.
    let complete = !checksums || first == FirstRange::Whole;
    let checksums = checksums && complete;
    let meta = Arc::new(fetched.meta.clone());
    let block_bytes = shelf.dataset.block_bytes;
    let pinned = Pinned::new(&shelf.dataset.name, name.clone(), meta.clone(), block_bytes);
    let run = pinned.as_ref().and_then(|pinned| first_run(pinned, &fetched, first));
    let (Some(pinned), Some(run)) = (pinned, run) else {
        // Not cacheable, or empty.
        return match shelf.observe(&name, &meta, landing.flight(), checksums) {
            Some(pin) => landing.known(pin, checksums),
            None => landing.uncacheable(meta, complete.then_some(fetched)),
        };
    };
    if !whole_blocks(&pinned, &fetched) {
        let origin = shelf.origin.name().clone();
        let reason = format!("it sent another range of {name} than it was asked for");
        return landing.failed(ReadError::Unreachable { origin, reason });
    }
    // Nothing has been read of the body yet; it waits in the connection until there is room.
    let Some((run, reserve)) = shelf.room(&pinned, run).await else {
        return landing.failed(shelf.no_room());
    };
    let taken = shelf.observe_and_take_up(&name, &meta, landing.flight(), checksums, run);
    let Some((pin, taken)) = taken else { return landing.uncacheable(meta, None) };
    landing.known(pin.clone(), checksums);
    if let Some(taken) = taken {
        deliver(&shelf, &pin, taken, reserve, fetched).await;
    }
}

/// Whether the body begins and ends with blocks, as every range that we ask for does.
fn whole_blocks(pinned: &Pinned, fetched: &Fetched) -> bool {
    let layout = pinned.layout();
    fetched.range.is_some_and(|range| {
        range.end() <= pinned.size() && layout.bytes(&layout.blocks(range)) == range
    })
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
