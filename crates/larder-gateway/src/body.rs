//! The body of an object's answer: exactly the promised bytes, or a connection that is cut.

use crate::id::RequestId;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use http_body::{Body, Frame, SizeHint};
use larder_engine::ReadError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A stream that must yield `left` more bytes.
///
/// An error, too few or too many bytes make the body fail, so that hyper closes the connection
/// short (HTTP/1.1) or resets the stream (HTTP/2): the client then knows that it has not got all.
pub(crate) struct Exact {
    stream: BoxStream<'static, Result<Bytes, ReadError>>,
    left: u64,
    id: RequestId,
}

/// Why a body was cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error(transparent)]
    Read(ReadError),
    #[error("the body ended {0} bytes early")]
    Short(u64),
    #[error("the body went on behind its last byte")]
    Long,
}

impl Exact {
    /// The answer to request `id` has `len` bytes.
    pub(crate) fn new(
        stream: BoxStream<'static, Result<Bytes, ReadError>>,
        len: u64,
        id: RequestId,
    ) -> Self {
        Self { stream, left: len, id }
    }

    fn cut(&self, cut: Cut) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        tracing::warn!(id = %self.id, reason = %cut, left = self.left, "answer cut short");
        Poll::Ready(Some(Err(cut)))
    }
}

impl Body for Exact {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            match ready!(Pin::new(&mut self.stream).poll_next(cx)) {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    return match self.left.checked_sub(bytes.len() as u64) {
                        Some(left) => {
                            self.left = left;
                            Poll::Ready(Some(Ok(Frame::data(bytes))))
                        }
                        None => self.cut(Cut::Long),
                    };
                }
                Some(Err(error)) => return self.cut(Cut::Read(error)),
                None if self.left > 0 => return self.cut(Cut::Short(self.left)),
                None => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, Exact};
    use crate::id::RequestId;
    use bytes::Bytes;
    use futures_util::StreamExt;
    use http_body_util::BodyExt;

    async fn check(pieces: &'static [&'static [u8]], len: u64) -> Result<Bytes, Cut> {
        let pieces = pieces.iter().map(|piece| Ok(Bytes::from_static(piece)));
        let stream = futures_util::stream::iter(pieces).boxed();
        Ok(Exact::new(stream, len, RequestId::random()).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn a_body_is_exactly_as_long_as_promised_or_fails() {
        assert_eq!(check(&[b"ab", b"", b"c"], 3).await.unwrap(), "abc");
        assert!(matches!(check(&[b"ab"], 3).await, Err(Cut::Short(1))));
        assert!(matches!(check(&[b"ab", b"cd"], 3).await, Err(Cut::Long)));
    }
}
