//! A block on its way: bytes that readers may follow as they come, from the origin or the SSD.
//!
//! Invariant: what a follower sees is a prefix of the block, then all of it or an error; never
//! bytes of another block, never a gap.

use crate::{ReadError, Source};
use bytes::Bytes;
use larder_model::{Block, BlockKey};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// One block in flight. The task that brings it is its only writer.
pub(crate) struct Arriving {
    key: BlockKey,
    source: Source,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    frames: Vec<Bytes>,
    have: usize,
    end: Option<End>,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Whole and sealed.
    Sealed(Block),
    /// It will not come, for this reason.
    Failed(ReadError),
    /// It was not where it was thought to be: look again.
    Gone,
}

/// What a follower gets.
pub(crate) enum Step {
    /// The next bytes from the offset that was asked for.
    Bytes(Bytes),
    /// There will be no more, because of this.
    Failed(ReadError),
    /// Look again.
    Gone,
}

impl Arriving {
    pub(crate) fn new(key: BlockKey, source: Source) -> Self {
        Self { key, source, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn key(&self) -> BlockKey {
        self.key
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Adds bytes behind those that came before.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut state = self.lock();
        state.have += frame.len();
        state.frames.push(frame);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Seals what came, and hands the block back.
    pub(crate) fn seal(&self, reserve: larder_model::Reserve) -> Block {
        let frames = self.lock().frames.clone();
        let block = Block::seal(self.key, &frames, reserve);
        self.finish(End::Sealed(block.clone()));
        block
    }

    /// Ends it, once; a second end is ignored.
    pub(crate) fn finish(&self, end: End) {
        let mut state = self.lock();
        if state.end.is_none() {
            // Followers go on in the sealed block, at the same offset.
            if let End::Sealed(block) = &end {
                state.have = block.len();
                state.frames = Vec::new();
            }
            state.end = Some(end);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The bytes from `offset` on, as many as are there, waiting for the first.
    ///
    /// Cancel safe.
    pub(crate) async fn follow(&self, offset: usize) -> Step {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(step) = self.lock().step(offset) {
                return step;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn step(&self, offset: usize) -> Option<Step> {
        if let Some(End::Sealed(block)) = &self.end {
            return Some(Step::Bytes(block.data().slice(offset..)));
        }
        if offset < self.have {
            let mut start = 0;
            for frame in &self.frames {
                let end = start + frame.len();
                if offset < end {
                    return Some(Step::Bytes(frame.slice(offset - start..)));
                }
                start = end;
            }
        }
        match &self.end {
            Some(End::Failed(error)) => Some(Step::Failed(error.clone())),
            Some(End::Gone) => Some(Step::Gone),
            Some(End::Sealed(_)) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arriving, End, Step};
    use crate::Source;
    use bytes::Bytes;
    use larder_model::{BlockKey, Reserve};
    use std::sync::Arc;

    fn arriving() -> Arc<Arriving> {
        Arc::new(Arriving::new(BlockKey::from_bits(1), Source::Origin))
    }

    async fn check(arriving: &Arriving, offset: usize, expected: &[u8]) {
        match arriving.follow(offset).await {
            Step::Bytes(bytes) => assert_eq!(bytes, expected, "from {offset}"),
            Step::Failed(error) => panic!("{error}"),
            Step::Gone => panic!("gone"),
        }
    }

    #[tokio::test]
    async fn a_follower_sees_bytes_as_they_come_and_the_same_after_sealing() {
        let arriving = arriving();
        arriving.push(Bytes::from_static(b"abc"));
        arriving.push(Bytes::from_static(b"def"));
        check(&arriving, 1, b"bc").await;
        check(&arriving, 3, b"def").await;
        let block = arriving.seal(Reserve::none());
        assert_eq!(block.data(), &b"abcdef"[..]);
        check(&arriving, 1, b"bcdef").await;
    }

    #[tokio::test]
    async fn bytes_before_a_failure_are_served_first() {
        let arriving = arriving();
        arriving.push(Bytes::from_static(b"abc"));
        arriving.finish(End::Gone);
        check(&arriving, 0, b"abc").await;
        assert!(matches!(arriving.follow(3).await, Step::Gone));
    }
}
