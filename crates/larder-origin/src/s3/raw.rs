//! Requests that are passed on as they are, and the origin's answers to them.
//!
//! Invariant: nothing that could be done twice is sent twice, and an answer that speaks of our keys
//! is replaced before it leaves.

use super::failure::Failure;
use super::sign::Envelope;
use super::upload::{Leash, Phase};
use super::wire::{Answered, Lost, Outgoing};
use super::{Inner, prepare};
use crate::limits::Ticket;
use crate::metrics::Operation;
use crate::{error, headers};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::{CONTENT_LENGTH, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Method, Response};
use larder_model::{ErrorReply, OriginError, RawAnswer, RawRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The longest error answer that is passed on; a longer one is replaced.
const REFUSAL_BYTES: usize = 64 * 1024;

/// How many times the usual the origin may take to answer a request that makes it copy or join
/// bytes: gigabytes of them, and not every origin sends the head of its answer before it is done.
const LABOUR: u32 = 10;

/// What one attempt came to.
enum Outcome {
    /// To be passed on, streamed.
    Answer(Answered),
    /// An error answer, read and cleared of our keys.
    Refusal(Failure),
    Lost(Lost),
}

/// What a second attempt could do.
#[derive(Clone, Copy)]
struct Repeat {
    /// Whether the method says the same twice, and the body can be sent twice.
    harmless: bool,
    /// Whether the request would be refused for what its first attempt did.
    conditional: bool,
}

impl Repeat {
    fn of(envelope: &Envelope, body: &Outgoing) -> Self {
        let method = &envelope.method;
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let writes = matches!(*method, Method::PUT | Method::DELETE);
        let conditions = [IF_MATCH, IF_NONE_MATCH];
        Self {
            harmless: (reads || writes) && !matches!(body, Outgoing::Stream(_)),
            conditional: writes
                && conditions.iter().any(|name| envelope.headers.contains_key(name)),
        }
    }

    /// Whether to send again, and the least pause before it.
    fn after(self, outcome: &Outcome, body: &Outgoing) -> Option<Duration> {
        let untouched = match body {
            Outgoing::Stream(upload) => upload.phase() == Phase::Untouched,
            _ => true,
        };
        match outcome {
            Outcome::Answer(_) => None,
            Outcome::Refusal(failure) => {
                let undone = !self.conditional || failure.is_throttling();
                let again = self.harmless && undone && failure.is_transient();
                again.then(|| failure.retry_after().unwrap_or_default())
            }
            Outcome::Lost(lost) => {
                let unseen = !lost.connected && untouched;
                let again = lost.transient && (unseen || (self.harmless && !self.conditional));
                (again && !lost.broken).then_some(Duration::ZERO)
            }
        }
    }
}

impl Inner {
    /// [`larder_model::Origin::raw`].
    pub(super) async fn raw(
        self: &Arc<Self>,
        request: RawRequest,
    ) -> Result<RawAnswer, OriginError> {
        let operation = Operation::of(&request);
        let what = what(&request);
        let prepared = prepare::prepare(request, self.dialect, &self.wire.endpoint);
        let (envelope, body) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => {
                let told = format!("The request cannot be passed on: {reason}.");
                return Ok(answer(error::reply(400, "InvalidArgument", told), false));
            }
        };
        let ticket = self.exchange.gate.enter().await?;
        let is_head = envelope.method == Method::HEAD;
        let (outcome, attempts) = self.attempts(operation, &envelope, &body).await?;
        match outcome {
            Outcome::Answer(answered) => Ok(self.stream(answered, ticket, what)),
            Outcome::Refusal(Failure::Answer { reply, .. }) => Ok(answer(reply, is_head)),
            Outcome::Refusal(failure) => {
                let asked = super::failure::Asked::default();
                Err(self.error(&what, asked, (failure, attempts)))
            }
            Outcome::Lost(lost) if lost.broken => {
                tracing::debug!(%what, reason = lost.reason, "broken off");
                Err(OriginError::BodyBroken)
            }
            Outcome::Lost(lost) => {
                let reason = format!("{what}: {} (attempt {attempts})", lost.reason);
                let origin = self.exchange.origin.clone();
                Err(OriginError::Unreachable { origin, reason })
            }
        }
    }

    /// Sends as often as is allowed; the last outcome, and the number of attempts.
    async fn attempts(
        &self,
        operation: Operation,
        envelope: &Envelope,
        body: &Outgoing,
    ) -> Result<(Outcome, u32), OriginError> {
        let limits = &self.exchange.limits;
        let repeat = Repeat::of(envelope, body);
        let end = Instant::now() + limits.retry_time;
        let mut attempt = 1;
        loop {
            self.exchange.gate.pass().await?;
            let outcome = self.attempt(operation, envelope, body).await;
            let Some(least) = repeat.after(&outcome, body).filter(|_| attempt < limits.attempts)
            else {
                return Ok((outcome, attempt));
            };
            let pause = limits.pause(attempt + 1).max(least);
            if Instant::now() + pause > end {
                return Ok((outcome, attempt));
            }
            attempt += 1;
            tracing::debug!(origin = %self.exchange.origin, operation = operation.as_str(), attempt, ?pause, "retry");
            sleep(pause).await;
        }
    }

    async fn attempt(&self, operation: Operation, envelope: &Envelope, body: &Outgoing) -> Outcome {
        let exchange = &self.exchange;
        let mut limits = exchange.limits.clone();
        if labours(envelope) {
            limits.answer_timeout = limits.answer_timeout.saturating_mul(LABOUR);
        }
        // Boxed: this future lies inside several others.
        let sent = Box::pin(self.wire.send(envelope, body, &exchange.keys, &limits)).await;
        let answered = match sent {
            Ok(answered) => answered,
            Err(lost) => {
                exchange.requests.count(operation, None);
                return Outcome::Lost(lost);
            }
        };
        let status = answered.response.status().as_u16();
        exchange.requests.count(operation, Some(status));
        if status < 300 || status == 304 {
            return Outcome::Answer(answered);
        }
        let Answered { response, leash } = answered;
        let refusal = self.refusal(response).await;
        // What is left of the request's body is of no use to anybody.
        drop(leash);
        match refusal {
            Ok(failure) => Outcome::Refusal(failure),
            Err(reason) => {
                let (connected, broken, transient) = (true, false, true);
                Outcome::Lost(Lost { reason, connected, broken, transient })
            }
        }
    }

    /// Reads an error answer, and replaces it where it speaks of our keys or has no end.
    async fn refusal(&self, response: Response<SdkBody>) -> Result<Failure, String> {
        let (head, body) = response.into_parts();
        let mut body = ByteStream::new(body);
        let idle = self.exchange.limits.idle_timeout;
        let mut bytes = Vec::new();
        while bytes.len() <= REFUSAL_BYTES {
            match timeout(idle, body.next()).await {
                Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
                Ok(None) => break,
                Ok(Some(Err(error))) => return Err(super::failure::causes(&error)),
                Err(_) => return Err(format!("no byte of the answer's body within {idle:?}")),
            }
        }
        let status = head.status.as_u16();
        let long = bytes.len() > REFUSAL_BYTES;
        let mut failure =
            Failure::of_answer(status, &head.headers, Bytes::from(bytes), &self.exchange.keys);
        if let (Failure::Answer { reply, .. }, true) = (&mut failure, long) {
            *reply =
                error::reply(status, &reply.code, "The origin's answer is too long to repeat.");
        }
        Ok(failure)
    }

    /// The answer with its body as it comes. Its place in flight is held until the body is over.
    fn stream(self: &Arc<Self>, answered: Answered, ticket: Ticket, what: String) -> RawAnswer {
        let (head, body) = answered.response.into_parts();
        let state = Incoming {
            origin: Arc::clone(self),
            body: Some(ByteStream::new(body)),
            what,
            _leash: answered.leash,
            _ticket: ticket,
        };
        let body = stream::unfold(state, |mut state| async move {
            let item = state.step().await?;
            Some((item, state))
        });
        RawAnswer {
            status: head.status.as_u16(),
            headers: headers::passed(&head.headers),
            body: body.boxed(),
        }
    }
}

/// The body of an answer on its way back.
struct Incoming {
    origin: Arc<Inner>,
    /// `None` once it is over.
    body: Option<ByteStream>,
    what: String,
    _leash: Leash,
    _ticket: Ticket,
}

impl Incoming {
    async fn step(&mut self) -> Option<Result<Bytes, OriginError>> {
        let body = self.body.as_mut()?;
        let idle = self.origin.exchange.limits.idle_timeout;
        let reason = match timeout(idle, body.next()).await {
            Ok(Some(Ok(piece))) => return Some(Ok(piece)),
            Ok(None) => {
                self.body = None;
                return None;
            }
            Ok(Some(Err(error))) => super::failure::causes(&error),
            Err(_) => format!("no byte of the answer's body within {idle:?}"),
        };
        self.body = None;
        let reason = format!("{}: {reason}", self.what);
        let origin = self.origin.exchange.origin.clone();
        Some(Err(OriginError::Unreachable { origin, reason }))
    }
}

/// Whether the origin has to copy an object, or to join the parts of one.
fn labours(envelope: &Envelope) -> bool {
    let query = envelope.uri.query().unwrap_or_default();
    let joins = query.split('&').any(|part| part.starts_with("uploadId="));
    envelope.headers.contains_key("x-amz-copy-source") || (envelope.method == Method::POST && joins)
}

/// An error answer that is all there.
fn answer(reply: ErrorReply, is_head: bool) -> RawAnswer {
    let mut headers: HeaderMap = reply.headers;
    let body: BoxStream<'static, _> = if is_head {
        stream::empty().boxed()
    } else {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(reply.body.len()));
        stream::iter([Ok(reply.body)]).boxed()
    };
    RawAnswer { status: reply.status, headers, body }
}

fn what(request: &RawRequest) -> String {
    let RawRequest { method, bucket, key, .. } = request;
    match (bucket, key) {
        (None, _) => format!("{method} of the service"),
        (Some(bucket), None) => format!("{method} of bucket {bucket}"),
        (Some(bucket), Some(key)) => {
            format!("{method} of {bucket}/{}", key.as_str().escape_debug())
        }
    }
}
