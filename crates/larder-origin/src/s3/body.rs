//! The body of a GET: counted, timed, and resumed where it breaks.
//!
//! Invariant: the stream yields exactly the bytes of its range, all of one ETag, or an error. It
//! never ends early and never goes on too long, and a whole object's last piece comes only if its
//! checksum holds, where the origin tells one.

use super::Inner;
use super::answer::{self, Wanted};
use super::crc::Check;
use super::failure::{Asked, Failure, causes};
use crate::limits::Ticket;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use larder_model::{ByteRange, ETag, ObjectName, OriginError};
use std::sync::Arc;
use tokio::time::{sleep, timeout};

/// Progress after which a broken body may be resumed as often as a new one.
const PROGRESS_BYTES: u64 = 1024 * 1024;

/// A body in transfer.
pub(super) struct Transfer {
    pub(super) origin: Arc<Inner>,
    pub(super) name: ObjectName,
    /// The tag of the first answer; without a strong one there is no resuming.
    pub(super) etag: Option<ETag>,
    /// The whole object's size.
    pub(super) size: u64,
    pub(super) body: ByteStream,
    /// The offset of the next byte.
    pub(super) next: u64,
    /// The offset behind the last byte that is wanted.
    pub(super) end: u64,
    /// Whether the origin sends more than was asked for: it answered a range with the whole object.
    pub(super) overlong: bool,
    /// For a whole object whose checksum is known.
    pub(super) check: Option<Check>,
    /// Counts as a request in flight until the body ends or is dropped.
    pub(super) _ticket: Ticket,
}

struct State {
    transfer: Transfer,
    resumes: u32,
    resumed_at: u64,
    over: bool,
}

impl Transfer {
    /// The bytes as a stream. Nothing is read that is not polled for.
    pub(super) fn into_stream(self) -> BoxStream<'static, Result<Bytes, OriginError>> {
        let state = State { resumes: 0, resumed_at: self.next, over: false, transfer: self };
        stream::unfold(state, |mut state| async move {
            let item = state.step().await?;
            state.over = item.is_err();
            Some((item, state))
        })
        .boxed()
    }
}

impl State {
    /// The next piece; `None` at the end.
    async fn step(&mut self) -> Option<Result<Bytes, OriginError>> {
        if self.over {
            return None;
        }
        loop {
            let transfer = &mut self.transfer;
            let left = transfer.end - transfer.next;
            if left == 0 {
                return self.finish().await;
            }
            let idle = transfer.origin.exchange.limits.idle_timeout;
            let broken = match timeout(idle, transfer.body.next()).await {
                Ok(Some(Ok(piece))) if piece.is_empty() => continue,
                Ok(Some(Ok(piece))) => return Some(self.take(piece, left)),
                Ok(Some(Err(error))) => causes(&error),
                Ok(None) => format!("the body ended {left} bytes early"),
                Err(_) => format!("no byte of the body within {idle:?}"),
            };
            if let Err(error) = Box::pin(self.resume(broken)).await {
                return Some(Err(error));
            }
        }
    }

    fn take(&mut self, mut piece: Bytes, left: u64) -> Result<Bytes, OriginError> {
        if piece.len() as u64 > left {
            if !self.transfer.overlong {
                return Err(self.error(Failure::wrong("the body is longer than promised"), 1));
            }
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        self.transfer.next += piece.len() as u64;
        let over = self.transfer.next == self.transfer.end;
        if let Some(check) = &mut self.transfer.check {
            check.update(&piece);
            if over && !check.holds() {
                let told = "the bytes are not those of the checksum that the origin tells";
                return Err(self.error(Failure::wrong(told), 1));
            }
        }
        Ok(piece)
    }

    /// All bytes are there: nothing may follow.
    async fn finish(&mut self) -> Option<Result<Bytes, OriginError>> {
        self.over = true;
        if self.transfer.overlong {
            return None;
        }
        let idle = self.transfer.origin.exchange.limits.idle_timeout;
        match timeout(idle, self.transfer.body.next()).await {
            Ok(Some(Ok(piece))) if !piece.is_empty() => {
                Some(Err(self.error(Failure::wrong("the body is longer than promised"), 1)))
            }
            // A connection that breaks behind the last byte has done its work.
            _ => None,
        }
    }

    /// Asks for the rest of the same version, or tells why there is none.
    async fn resume(&mut self, broken: String) -> Result<(), OriginError> {
        if self.transfer.next - self.resumed_at >= PROGRESS_BYTES {
            self.resumes = 0;
        }
        let origin = Arc::clone(&self.transfer.origin);
        let etag = self.transfer.etag.clone().filter(answer::is_strong);
        let (Some(etag), true) = (etag, self.resumes < origin.exchange.limits.resumes) else {
            return Err(self.error(Failure::silent(broken), self.resumes + 1));
        };
        self.resumes += 1;
        self.resumed_at = self.transfer.next;
        tracing::debug!(name = %self.transfer.name, at = self.transfer.next, broken, "resume");
        sleep(origin.exchange.limits.pause(self.resumes + 1)).await;
        let Some(rest) = ByteRange::new(self.transfer.next, self.transfer.end) else {
            return Ok(());
        };
        let wanted = Wanted { range: Some(rest), if_match: Some(etag), ..Wanted::default() };
        let (body, head) = origin
            .get(&self.transfer.name, &wanted)
            .await
            .map_err(|(failure, attempts)| self.error(failure, attempts))?;
        let found = answer::examine(&head, &wanted).map_err(|failure| self.error(failure, 1))?;
        if found.overlong || found.range != Some(rest) || found.meta.size != self.transfer.size {
            return Err(self.error(Failure::wrong("the rest of a broken body has another size"), 1));
        }
        self.transfer.body = body;
        Ok(())
    }

    fn error(&self, failure: Failure, attempts: u32) -> OriginError {
        let transfer = &self.transfer;
        let what = format!("GET of {} at byte {}", transfer.name, transfer.next);
        let asked = Asked { if_match: true, range: true };
        failure.into_error(&transfer.origin.exchange.origin, &what, asked, attempts)
    }
}
