//! The body of a raw request on its way to the origin: counted, framed, timed, broken off.
//!
//! Invariant: the last byte of a body leaves only after its stream has ended well and at its declared
//! length. Whatever else happens, the origin holds an incomplete request.

use super::chunked::{self, Framing};
use crate::OriginLimits;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http_body::{Body, Frame, SizeHint};
use larder_model::{BodyBroken, Trailer};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A body in memory goes out in pieces of this size, so that its progress can be seen.
const PIECE_BYTES: usize = 64 * 1024;

type Pieces = BoxStream<'static, Result<Bytes, BodyBroken>>;

/// One body, shared by the connection that sends it and the request that watches it.
#[derive(Clone)]
pub(super) struct Upload(Arc<Mutex<State>>);

struct State {
    /// What is still to come; `None` once it is over.
    pieces: Option<Pieces>,
    /// Bytes still to come, framing included.
    left: u64,
    phase: Phase,
    /// When the phase began, or the last piece went.
    since: Instant,
    /// Whoever waits for the next piece, woken when the body is called off.
    waker: Option<Waker>,
}

/// How far a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nobody has asked for a byte: there is no connection yet.
    Untouched,
    /// The connection waits for the next piece.
    Awaited,
    /// A piece has been handed out, and the connection has not asked for the next.
    Handed,
    /// All bytes are out.
    Done,
    /// The stream failed or was called off; the request is incomplete.
    Broken,
}

impl Upload {
    /// A body in memory.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let len = bytes.len() as u64;
        let pieces = stream::unfold(bytes, |mut rest| async move {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            (!piece.is_empty()).then_some((Ok(piece), rest))
        });
        Self::new(pieces.boxed(), len)
    }

    /// `len` bytes from a stream, as they are.
    pub(super) fn stream(bytes: Pieces, len: u64) -> Self {
        Self::new(exactly(bytes, len), len)
    }

    /// `len` bytes from a stream, aws-chunked, with a trailer.
    pub(super) fn chunked(bytes: Pieces, framing: Framing, trailer: Trailer) -> Self {
        let encoded_len = framing.encoded_len();
        Self::new(chunked::encode(exactly(bytes, framing.len), framing, trailer), encoded_len)
    }

    fn new(pieces: Pieces, left: u64) -> Self {
        let state = State {
            pieces: Some(pieces),
            left,
            phase: Phase::Untouched,
            since: Instant::now(),
            waker: None,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The body for one attempt. A second one goes on where the first stopped, so it is of use only
    /// while the body is untouched.
    pub(super) fn body(&self) -> SdkBody {
        self.lock().since = Instant::now();
        SdkBody::from_body_1_x(Sending(self.clone()))
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Calls the rest off: the connection that sends it closes.
    pub(super) fn call_off(&self) {
        let mut state = self.lock();
        if state.phase != Phase::Done {
            state.fail();
            if let Some(waker) = state.waker.take() {
                drop(state);
                waker.wake();
            }
        }
    }

    /// Resolves when nothing has moved for too long; tells where it stood and for how long.
    ///
    /// Bytes must keep moving within `idle_timeout` of each other; the answer is due within
    /// `answer_timeout` of the last one, however long the body took.
    pub(super) async fn stalled(&self, limits: &OriginLimits) -> (Phase, Duration) {
        loop {
            let (phase, since) = {
                let state = self.lock();
                (state.phase, state.since)
            };
            let limit = match phase {
                Phase::Awaited | Phase::Handed => limits.idle_timeout,
                Phase::Untouched | Phase::Done | Phase::Broken => limits.answer_timeout,
            };
            if since.elapsed() >= limit {
                return (phase, limit);
            }
            sleep_until(since + limit).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fail(&mut self) {
        self.pieces = None;
        self.phase = Phase::Broken;
        self.since = Instant::now();
    }

    fn enter(&mut self, phase: Phase) {
        if phase != Phase::Awaited || self.phase != Phase::Awaited {
            self.since = Instant::now();
        }
        self.phase = phase;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyBroken>>> {
        let Some(pieces) = &mut self.pieces else {
            let over = self.phase == Phase::Done;
            return Poll::Ready(if over { None } else { Some(Err(BodyBroken)) });
        };
        match pieces.poll_next_unpin(context) {
            Poll::Pending => {
                self.enter(Phase::Awaited);
                self.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Poll::Ready(Some(Ok(piece))) if piece.len() as u64 <= self.left => {
                self.left -= piece.len() as u64;
                let over = self.left == 0;
                self.enter(if over { Phase::Done } else { Phase::Handed });
                if over {
                    self.pieces = None;
                }
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(None) if self.left == 0 => {
                self.pieces = None;
                self.enter(Phase::Done);
                Poll::Ready(None)
            }
            Poll::Ready(_) => {
                self.fail();
                Poll::Ready(Some(Err(BodyBroken)))
            }
        }
    }
}

/// What the connection reads.
struct Sending(Upload);

impl Body for Sending {
    type Data = Bytes;
    type Error = BodyBroken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        self.0.lock().poll(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.phase() == Phase::Done
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.lock().left)
    }
}

/// Calls the body off when the request is given up, also by being dropped.
pub(super) struct Leash(pub(super) Option<Upload>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(upload) = &self.0 {
            upload.call_off();
        }
    }
}

/// The bytes of a stream, if it ends well after exactly `len` of them. The piece that completes the
/// length is held back until the stream has ended.
fn exactly(bytes: Pieces, len: u64) -> Pieces {
    struct Counted {
        bytes: Pieces,
        left: u64,
        over: bool,
    }
    let counted = Counted { bytes: bytes.fuse().boxed(), left: len, over: false };
    let step = |mut counted: Counted| async move {
        if counted.over {
            return None;
        }
        let item = counted.step().await;
        counted.over = counted.left == 0 || item.is_err();
        match item {
            Ok(piece) if piece.is_empty() => None,
            item => Some((item, counted)),
        }
    };
    impl Counted {
        /// The next piece; an empty one where `len` is 0.
        async fn step(&mut self) -> Result<Bytes, BodyBroken> {
            let piece = loop {
                match self.bytes.next().await {
                    Some(Ok(piece)) if piece.is_empty() => {}
                    Some(Ok(piece)) => break piece,
                    None if self.left == 0 => break Bytes::new(),
                    Some(Err(BodyBroken)) | None => return Err(BodyBroken),
                }
            };
            self.left = self.left.checked_sub(piece.len() as u64).ok_or(BodyBroken)?;
            while self.left == 0 {
                match self.bytes.next().await {
                    None => break,
                    Some(Ok(more)) if more.is_empty() => {}
                    Some(_) => return Err(BodyBroken),
                }
            }
            Ok(piece)
        }
    }
    stream::unfold(counted, step).boxed()
}

#[cfg(test)]
mod tests {
    use super::{Upload, exactly};
    use bytes::Bytes;
    use futures_util::stream::{self, StreamExt as _};
    use http_body_util::BodyExt as _;
    use larder_model::BodyBroken;

    type Item = Result<&'static str, BodyBroken>;

    async fn check(items: &[Item], len: u64, expected: &[Item]) {
        let pieces: Vec<_> = items.iter().map(|item| item.map(Bytes::from)).collect();
        let got: Vec<_> = exactly(stream::iter(pieces).boxed(), len).collect().await;
        let expected: Vec<_> = expected.iter().map(|item| item.map(Bytes::from)).collect();
        assert_eq!(got, expected, "{items:?} of {len}");
    }

    #[tokio::test]
    async fn the_last_piece_comes_only_when_all_is_well() {
        let broken = Err(BodyBroken);
        check(&[], 0, &[]).await;
        check(&[Ok("")], 0, &[]).await;
        check(&[Ok("ab"), Ok(""), Ok("c")], 3, &[Ok("ab"), Ok("c")]).await;
        check(&[Ok("ab"), Ok("c"), Ok("")], 3, &[Ok("ab"), Ok("c")]).await;
        check(&[Ok("ab"), Ok("c"), broken], 3, &[Ok("ab"), broken]).await;
        check(&[Ok("ab"), Ok("c"), Ok("d")], 3, &[Ok("ab"), broken]).await;
        check(&[Ok("ab"), Ok("cd")], 3, &[Ok("ab"), broken]).await;
        check(&[Ok("ab")], 3, &[Ok("ab"), broken]).await;
        check(&[broken], 0, &[broken]).await;
        check(&[Ok("a")], 0, &[broken]).await;
    }

    #[tokio::test]
    async fn a_body_in_memory_goes_in_pieces() {
        let bytes = Bytes::from(vec![7; 150_000]);
        let mut body = Upload::whole(bytes.clone()).body();
        let mut got = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= 64 * 1024);
            got.extend_from_slice(&piece);
        }
        assert_eq!(got, bytes);
    }

    #[tokio::test]
    async fn a_body_that_is_called_off_never_ends_well() {
        let upload = Upload::stream(stream::pending().boxed(), 3);
        let mut body = upload.body();
        let waiting = tokio::spawn(async move { body.frame().await });
        while upload.phase() != super::Phase::Awaited {
            tokio::task::yield_now().await;
        }
        upload.call_off();
        assert!(waiting.await.unwrap().unwrap().is_err());
    }
}
