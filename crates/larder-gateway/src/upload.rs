//! The body of a request: taken from hyper, decoded, verified, and handed on as it comes.
//!
//! Nothing is read before somebody asks for it, so a client that waits for `100 Continue` gets it only
//! once guard, signature and grant have passed. What s3s could do here it would do by holding a whole
//! chunk, which may be gigabytes; so it never sees a body.
//!
//! Invariant: the last bytes of a body are handed on only after all of it has been verified. Whoever
//! passes it on to an origin with its length leaves the origin with an incomplete request otherwise.

mod checks;
mod chunked;
mod declared;
mod decoder;
mod flow;

pub(crate) use checks::content_md5;
pub(crate) use chunked::Seal;
pub(crate) use declared::{CONTENT_MD5, Purpose, has_length, is_checksum, missing_length};
pub(crate) use flow::Slot;

use crate::fault::Fault;
use crate::pass::Scanner;
use bytes::{Bytes, BytesMut};
use chunked::Chunked;
use declared::{Declared, Shape, parse_promises};
use decoder::{Broken, Decoder, Framing};
use flow::{Flow, frame};
use futures_util::StreamExt;
use http::header::EXPECT;
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use hyper::body::Incoming;
use larder_model::{RawBody, Trailer};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The most bytes of one PutObject or UploadPart (S3 User Guide, "Uploading objects").
const MAX_OBJECT_BYTES: u64 = 5 << 30;

/// The most bytes of a document: S3's own limit for DeleteObjects.
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 2 << 20;

/// A body up to this long is read and verified before the origin is asked: it can then be sent again,
/// and one that is broken costs the origin nothing.
const SMALL_BYTES: u64 = 64 << 10;

/// The body of one request, as long as nobody has begun to read it, and once somebody has given up.
#[derive(Clone, Default)]
pub(crate) struct Intake(Option<Arc<Inner>>);

struct Inner {
    body: Mutex<Option<Incoming>>,
    /// Its length on the wire, where that is known.
    wire_len: Option<u64>,
    /// Whether the client waits to be told to send it.
    expects: bool,
    /// How its chunks are signed, if they are.
    seal: Mutex<Option<Seal>>,
}

/// A body for the origin, and what becomes of it.
pub(crate) struct Upload {
    pub(crate) body: RawBody,
    /// Where the reason is found if the body broke off.
    pub(crate) slot: Slot,
    /// A checksum that came behind a body which has been read already.
    pub(crate) checksum: Option<(http::HeaderName, HeaderValue)>,
}

impl Intake {
    /// Takes a body that nobody has polled yet.
    pub(crate) fn new(body: Incoming, headers: &HeaderMap, seal: Option<Seal>) -> Self {
        let expects = headers.get(EXPECT).is_some();
        let wire_len = body.size_hint().exact();
        let seal = Mutex::new(seal);
        Self(Some(Arc::new(Inner { body: Mutex::new(Some(body)), wire_len, expects, seal })))
    }

    /// Of a request that brings none.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    fn wire_len(&self) -> Option<u64> {
        self.0.as_ref().map_or(Some(0), |inner| inner.wire_len)
    }

    /// Whether no byte of a body will come.
    pub(crate) fn is_empty(&self) -> bool {
        self.wire_len() == Some(0)
    }

    /// What is left of the body, if the client is sending it unasked.
    pub(crate) fn rest(&self) -> Option<Incoming> {
        let expects = self.0.as_ref().is_some_and(|inner| inner.expects);
        self.take().filter(|body| !expects && !body.is_end_stream())
    }

    /// Whether some of the body has not been read.
    pub(crate) fn is_left(&self) -> bool {
        let Some(inner) = &self.0 else { return false };
        let body = inner.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.as_ref().is_some_and(|body| !body.is_end_stream())
    }

    /// How long the body is on the wire, where that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.wire_len()
    }

    /// Reads the body's beginning, until `judge` has found in it what it looks for.
    pub(crate) async fn read_until<T>(
        &self,
        judge: impl Fn(&[u8]) -> Result<Option<T>, Fault>,
    ) -> Result<(T, Bytes), Fault> {
        let mut body = self.take();
        let mut read = BytesMut::new();
        let found = loop {
            match judge(&read) {
                Ok(None) => {}
                Ok(Some(found)) => break Ok(found),
                Err(fault) => break Err(fault),
            }
            match frame(&mut body).await {
                Ok(Some(bytes)) => read.extend_from_slice(&bytes),
                Ok(None) => break Err(flow::fault(Broken::Short)),
                Err(fault) => break Err(fault),
            }
        };
        if let Some(body) = body {
            self.put(body);
        }
        Ok((found?, read.freeze()))
    }

    /// The file of a form whose beginning has been read: `begun`, and what is still to come.
    pub(crate) fn file(
        &self,
        begun: Bytes,
        scanner: Scanner,
        len: u64,
        headers: &HeaderMap,
    ) -> Result<Upload, Fault> {
        check_size(len)?;
        let promises = parse_promises(headers)?;
        let decoder = Decoder::new(Framing::Form(Box::new(scanner)), promises, len);
        let slot = Slot::default();
        let flow = Flow::new(self.clone(), self.take(), begun, decoder, slot.clone());
        let bytes = flow.stream(Arc::default()).boxed();
        let body = RawBody::Stream { len, sha256: None, trailer: None, bytes };
        Ok(Upload { body, slot, checksum: None })
    }

    fn take(&self) -> Option<Incoming> {
        self.0.as_ref()?.body.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives back what was not read.
    fn put(&self, body: Incoming) {
        if let Some(inner) = &self.0 {
            *inner.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }

    fn take_seal(&self) -> Option<Seal> {
        self.0.as_ref()?.seal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The bytes of an object or of a part, for the origin.
    pub(crate) async fn object(&self, headers: &HeaderMap) -> Result<Upload, Fault> {
        let declared = Declared::parse(headers, self.wire_len(), Purpose::Object)?;
        check_size(declared.len)?;
        let (len, trailer) = (declared.len, declared.trailer.clone());
        let sha256 = declared.promises.sha256.map(hex::encode);
        let (flow, slot) = self.begin(declared)?;
        if len <= SMALL_BYTES {
            let (bytes, value) = flow.read(len).await?;
            let checksum = trailer.zip(value.and_then(|v| HeaderValue::try_from(v).ok()));
            let body = if bytes.is_empty() { RawBody::Empty } else { RawBody::Whole(bytes) };
            return Ok(Upload { body, slot, checksum });
        }
        let value = Arc::new(OnceLock::new());
        let trailer = trailer.map(|name| Trailer { name, value: value.clone() });
        let bytes = flow.stream(value).boxed();
        let body = RawBody::Stream { len, sha256, trailer, bytes };
        Ok(Upload { body, slot, checksum: None })
    }

    /// A document, whole and verified, and the checksum that came behind it.
    pub(crate) async fn document(
        &self,
        headers: &HeaderMap,
        purpose: Purpose,
    ) -> Result<(Bytes, Option<(http::HeaderName, HeaderValue)>), Fault> {
        if self.is_empty() && !has_length(headers) {
            return Ok((Bytes::new(), None));
        }
        let declared = Declared::parse(headers, self.wire_len(), purpose)?;
        if declared.len > MAX_DOCUMENT_BYTES {
            return Err(Fault::bad("MaxMessageLengthExceeded", "Your request was too big.")
                .with("MaxMessageLengthBytes", MAX_DOCUMENT_BYTES.to_string()));
        }
        let (len, trailer) = (declared.len, declared.trailer.clone());
        let (flow, _) = self.begin(declared)?;
        let (bytes, value) = flow.read(len).await?;
        Ok((bytes, trailer.zip(value.and_then(|v| HeaderValue::try_from(v).ok()))))
    }

    fn begin(&self, declared: Declared) -> Result<(Flow, Slot), Fault> {
        let framing = match declared.shape {
            Shape::Plain => Framing::Plain,
            Shape::Chunked { signed } => {
                let seal = match (signed, self.take_seal()) {
                    (true, Some(seal)) => Some(seal),
                    (false, _) => None,
                    (true, None) => {
                        let text = "Chunks can be signed only where the Authorization header is";
                        return Err(Fault::bad("InvalidRequest", text));
                    }
                };
                Framing::Chunked(Box::new(Chunked::new(seal, declared.trailer)))
            }
        };
        let decoder = Decoder::new(framing, declared.promises, declared.len);
        let slot = Slot::default();
        Ok((Flow::new(self.clone(), self.take(), Bytes::new(), decoder, slot.clone()), slot))
    }
}

impl Upload {
    /// Of bytes that have all been read, held against what the headers promise of them.
    pub(crate) fn whole(bytes: Bytes, headers: &HeaderMap) -> Result<Self, Fault> {
        let promises = parse_promises(headers)?;
        let mut decoder = Decoder::new(Framing::Plain, promises, bytes.len() as u64);
        decoder.next(&mut bytes.clone()).map_err(flow::fault)?;
        decoder.finish().map_err(flow::fault)?;
        let body = if bytes.is_empty() { RawBody::Empty } else { RawBody::Whole(bytes) };
        Ok(Self { body, slot: Slot::verified(), checksum: None })
    }
}

fn check_size(len: u64) -> Result<(), Fault> {
    if len <= MAX_OBJECT_BYTES {
        return Ok(());
    }
    let text = "Your proposed upload exceeds the maximum allowed size";
    Err(Fault::bad("EntityTooLarge", text)
        .with("ProposedSize", len.to_string())
        .with("MaxSizeAllowed", MAX_OBJECT_BYTES.to_string()))
}

/// Room for a body of `len` bytes, which its sender may never send.
fn room(len: u64) -> BytesMut {
    BytesMut::with_capacity(usize::try_from(len.min(SMALL_BYTES)).unwrap_or_default())
}
