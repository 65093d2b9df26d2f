//! One reader on its way through one pinned object.
//!
//! Invariant: every byte is of the pinned version, in order, without a gap. A reader asks for
//! blocks ahead of itself in a window that starts at one block and doubles with each block that it
//! has consumed, so a slow reader holds little and a fast one keeps several ranges under way.

use crate::approach::{Ahead, Approach};
use crate::arriving::{Arriving, Step};
use crate::fill::span_end;
use crate::shelf::{Pin, Shelf};
use crate::{ReadError, Source};
use bytes::Bytes;
use larder_model::{BlockLayout, ByteRange, EventKind, SPAN_BLOCKS};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The window's bound in spans: so many origin ranges side by side for one reader at most.
const MOST_SPANS: u64 = 8;

/// How many bytes are loaded ahead from the SSD.
const DISK_AHEAD_BYTES: u64 = 8 << 20;

/// A reader.
pub(crate) struct Reader {
    shelf: Arc<Shelf>,
    pin: Pin,
    layout: BlockLayout,
    job: u16,
    /// The next byte, and the first that is not wanted.
    at: u64,
    end: u64,
    /// The first block behind the last wanted one.
    end_block: u64,
    /// How many blocks ahead of the current one are asked for.
    window: u64,
    /// Blocks below this have been asked for.
    ensured: u64,
    /// Blocks on their way to this reader: held, so that one that nobody keeps is not lost.
    coming: BTreeMap<u64, Arc<Arriving>>,
    current: Option<(u64, Arc<Arriving>)>,
}

/// The next bytes, and where they came from.
pub(crate) type Piece = (Bytes, Source);

impl Reader {
    pub(crate) fn new(shelf: Arc<Shelf>, pin: Pin, range: ByteRange, job: u16) -> Self {
        let layout = pin.pinned.layout();
        let blocks = layout.blocks(range);
        shelf.ledger().session(EventKind::Open, pin.id, pin.pinned.digest, job);
        Self {
            shelf,
            layout,
            job,
            at: range.start(),
            end: range.end(),
            end_block: blocks.end,
            window: 1,
            ensured: blocks.start,
            coming: BTreeMap::new(),
            current: None,
            pin,
        }
    }

    /// Whether everything was read.
    pub(crate) fn done(&self) -> bool {
        self.at == self.end
    }

    /// The next bytes, at least one.
    ///
    /// # Errors
    ///
    /// Whatever kept the bytes from coming. Nothing may be read after an error.
    pub(crate) async fn next(&mut self) -> Result<Piece, ReadError> {
        loop {
            let index = self.layout.index(self.at);
            let arriving = match self.current.take().filter(|(current, _)| *current == index) {
                Some((_, arriving)) => arriving,
                None => match self.acquire(index).await? {
                    Have::Block(bytes) => {
                        let piece = self.take(index, bytes);
                        self.look_ahead(index);
                        return Ok((piece, Source::Memory));
                    }
                    Have::Arriving(arriving) => arriving,
                    Have::Again => continue,
                },
            };
            self.look_ahead(index);
            let offset = (self.at - self.layout.block(index).start()) as usize;
            match arriving.follow(offset).await {
                Step::Bytes(bytes) => {
                    let source = arriving.source();
                    self.current = Some((index, arriving));
                    let piece = self.clip(index, bytes);
                    return Ok((piece, source));
                }
                Step::Failed(error) => return Err(error),
                Step::Gone => {}
            }
        }
    }

    /// Gets hold of a block.
    async fn acquire(&mut self, index: u64) -> Result<Have, ReadError> {
        self.coming = self.coming.split_off(&index);
        if let Some(arriving) = self.coming.remove(&index) {
            return Ok(Have::Arriving(arriving));
        }
        if let Some(block) = self.shelf.peek(&self.pin, index, self.job) {
            return Ok(Have::Block(block.data()));
        }
        match self.shelf.approach(&self.pin, index, self.run_end(index), self.job) {
            Approach::Ready(block) => Ok(Have::Block(block.data())),
            Approach::Follow(arriving) => Ok(Have::Arriving(arriving)),
            Approach::Missing(run) => {
                let Some((run, reserve)) = self.shelf.room(&self.pin.pinned, run).await else {
                    return Err(self.shelf.no_room());
                };
                self.coming.extend(self.shelf.fetch(&self.pin, run, reserve, self.job));
                Ok(Have::Again)
            }
        }
    }

    /// The bytes of a whole block that this reader wants.
    fn take(&mut self, index: u64, bytes: Bytes) -> Bytes {
        let offset = (self.at - self.layout.block(index).start()) as usize;
        self.clip(index, bytes.slice(offset..))
    }

    /// Cuts off what lies behind the range, and steps on.
    fn clip(&mut self, index: u64, mut bytes: Bytes) -> Bytes {
        let wanted = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        bytes.truncate(wanted);
        self.at += bytes.len() as u64;
        if self.layout.index(self.at) != index {
            self.current = None;
            self.window = (self.window * 2).min(self.most_blocks());
        }
        bytes
    }

    /// The window's bound: some spans, and an eighth of the memory for blocks.
    fn most_blocks(&self) -> u64 {
        let share = self.shelf.budget.limit() / 8 / u64::from(self.pin.pinned.block_bytes);
        share.clamp(1, MOST_SPANS * SPAN_BLOCKS)
    }

    /// Where a run from `index` on may end: at its span's end, while memory is plenty.
    fn run_end(&self, index: u64) -> u64 {
        let far = if self.shelf.plenty() { span_end(index) } else { index + self.window };
        far.min(span_end(index)).min(self.end_block)
    }

    /// Asks for the blocks of the window that nobody has asked for. Never waits; what memory has
    /// no room for is asked for later.
    fn look_ahead(&mut self, index: u64) {
        let target = (index + 1 + self.window).min(self.end_block);
        let disk = (DISK_AHEAD_BYTES / u64::from(self.pin.pinned.block_bytes)).max(1);
        let mut next = self.ensured.max(index + 1);
        while next < target && self.shelf.plenty() {
            if self.shelf.in_memory(&self.pin, next) {
                next += 1;
                continue;
            }
            match self.shelf.look(&self.pin, next, self.run_end(next)) {
                Ahead::Ready => next += 1,
                Ahead::Follow(arriving) => {
                    self.coming.insert(next, arriving);
                    next += 1;
                }
                Ahead::OnDisk if next > index + disk => break,
                Ahead::OnDisk => {
                    if let Approach::Follow(arriving) =
                        self.shelf.approach(&self.pin, next, next + 1, self.job)
                    {
                        self.coming.insert(next, arriving);
                    }
                    next += 1;
                }
                Ahead::Missing(run) => {
                    let Some(reserve) = self.shelf.room_now(&self.pin.pinned, run.clone()) else {
                        break;
                    };
                    next = run.end;
                    self.coming.extend(self.shelf.fetch(&self.pin, run, reserve, self.job));
                }
            }
        }
        self.ensured = next;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let digest = self.pin.pinned.digest;
        self.shelf.ledger().session(EventKind::Close, self.pin.id, digest, self.job);
    }
}

enum Have {
    Block(Bytes),
    Arriving(Arc<Arriving>),
    Again,
}
