//! A body on its way: hyper's frames in, verified bytes out.

use super::checks::Mismatch;
use super::declared::invalid_checksum;
use super::decoder::{Broken, Decoder};
use super::{Intake, room};
use crate::fault::Fault;
use crate::guard::signature_mismatch;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use larder_model::BodyBroken;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// How long a client may send nothing in the middle of a body.
const STALL: Duration = Duration::from_secs(60);

/// What has become of a body, told by the one who read it to the one who answers.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<End>>);

#[derive(Default)]
enum End {
    #[default]
    Pending,
    /// All of it was verified and handed on.
    Verified,
    /// It was not what it was said to be.
    Failed(Fault),
}

impl Slot {
    /// Of a body that has been verified already.
    pub(super) fn verified() -> Self {
        Self(Arc::new(Mutex::new(End::Verified)))
    }

    fn set(&self, end: End) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    /// Why the body broke off, if it did.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *end) {
            End::Failed(fault) => Some(fault),
            other => {
                *end = other;
                None
            }
        }
    }

    /// Whether all of the body was verified.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), End::Verified)
    }
}

/// The reading of one body. Dropped early, it gives the rest back to its [`Intake`].
pub(super) struct Flow {
    intake: Intake,
    body: Option<Incoming>,
    /// What has come and is not decoded yet.
    input: Bytes,
    /// Gone once the body has been judged.
    decoder: Option<Decoder>,
    slot: Slot,
    trailer: Option<String>,
}

impl Flow {
    pub(super) fn new(
        intake: Intake,
        body: Option<Incoming>,
        input: Bytes,
        decoder: Decoder,
        slot: Slot,
    ) -> Self {
        Self { intake, body, input, decoder: Some(decoder), slot, trailer: None }
    }

    /// All of a short body, and its trailer.
    pub(super) async fn read(mut self, len: u64) -> Result<(Bytes, Option<String>), Fault> {
        let mut whole = room(len);
        while let Some(bytes) = self.next().await? {
            whole.extend_from_slice(&bytes);
        }
        self.slot.set(End::Verified);
        Ok((whole.freeze(), self.trailer.take()))
    }

    /// The body piece by piece, the last of them held back until all has been verified. `trailer` is
    /// filled by then.
    pub(super) fn stream(
        self,
        trailer: Arc<OnceLock<HeaderValue>>,
    ) -> impl Stream<Item = Result<Bytes, BodyBroken>> + Send {
        let begun = (Some(self), Bytes::new(), trailer);
        futures_util::stream::unfold(begun, |(flow, mut held, trailer)| async move {
            let mut flow = flow?;
            loop {
                match flow.next().await {
                    Ok(Some(bytes)) if held.is_empty() => held = bytes,
                    Ok(Some(bytes)) => return Some((Ok(held), (Some(flow), bytes, trailer))),
                    Ok(None) => {
                        let value = flow.trailer.take().map(HeaderValue::try_from);
                        if let Some(Ok(value)) = value {
                            let _ = trailer.set(value);
                        }
                        flow.slot.set(End::Verified);
                        return (!held.is_empty())
                            .then(|| (Ok(held), (None, Bytes::new(), trailer)));
                    }
                    Err(fault) => {
                        flow.slot.set(End::Failed(fault));
                        return Some((Err(BodyBroken), (None, Bytes::new(), trailer)));
                    }
                }
            }
        })
    }

    /// The next bytes of the payload; `None` once all of it has been verified.
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(None) };
            match decoder.next(&mut self.input) {
                Ok(Some(bytes)) => return Ok(Some(bytes)),
                Ok(None) => {}
                Err(broken) => return Err(fault(broken)),
            }
            match frame(&mut self.body).await? {
                Some(bytes) => self.input = bytes,
                None => {
                    if let Some(decoder) = self.decoder.take() {
                        self.trailer = decoder.finish().map_err(fault)?;
                    }
                    return Ok(None);
                }
            }
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.intake.put(body);
        }
    }
}

/// The next bytes of a body; `None` at its end. A client that stalls or goes away loses its body.
pub(super) async fn frame(body: &mut Option<Incoming>) -> Result<Option<Bytes>, Fault> {
    let Some(incoming) = body else { return Ok(None) };
    let fault = match timeout(STALL, incoming.frame()).await {
        Ok(Some(Ok(frame))) => return Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(None) => {
            *body = None;
            return Ok(None);
        }
        // The client went away, or broke HTTP's own framing.
        Ok(Some(Err(_))) => fault(Broken::Short).close(),
        Err(_) => stalled(),
    };
    *body = None;
    Err(fault)
}

/// A broken body as S3 tells it.
pub(super) fn fault(broken: Broken) -> Fault {
    match broken {
        Broken::Framing(what) => {
            Fault::bad("InvalidRequest", format!("The body is not valid aws-chunked: {what}"))
        }
        Broken::Signature => signature_mismatch(),
        Broken::Trailer => Fault::bad(
            "MalformedTrailerError",
            "The request contained trailing data that was not well-formed or did not conform to our \
             published schema.",
        ),
        Broken::Short | Broken::Long => Fault::bad(
            "IncompleteBody",
            "You did not provide the number of bytes specified by the Content-Length HTTP header",
        ),
        Broken::Mismatch(Mismatch::Sha256(promised, computed)) => Fault::bad(
            "XAmzContentSHA256Mismatch",
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )
        .with("ClientComputedContentSHA256", promised)
        .with("S3ComputedContentSHA256", computed),
        Broken::Mismatch(Mismatch::Md5(promised, computed)) => {
            Fault::bad("BadDigest", "The Content-MD5 you specified did not match what we received.")
                .with("ExpectedDigest", promised)
                .with("CalculatedDigest", computed)
        }
        Broken::Mismatch(Mismatch::Checksum(algorithm)) => {
            let name = algorithm.as_str();
            let text = format!("The {name} you specified did not match the calculated checksum.");
            Fault::bad("BadDigest", text)
        }
        Broken::Mismatch(Mismatch::Unreadable(algorithm)) => invalid_checksum(algorithm),
    }
}

fn stalled() -> Fault {
    Fault::bad(
        "RequestTimeout",
        "Your socket connection to the server was not read from or written to within the timeout \
         period. Idle connections will be closed.",
    )
    .close()
}
