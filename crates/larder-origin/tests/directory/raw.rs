//! Raw requests over a folder: each operation, each error, and what is left when one breaks off.

mod bucket;
mod checksum;
mod copy;
mod crowd;
mod listing;
mod multipart;
mod object;
mod refused;
mod removal;
mod tags;

use crate::fixture::{Fixture, bucket};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use larder_model::{
    BodyBroken, BucketName, ObjectKey, Origin as _, OriginError, RawBody, RawRequest, Trailer,
};
use std::sync::{Arc, OnceLock};

/// A request under construction.
pub(crate) struct Ask(RawRequest);

/// A request for a key of the fixture's bucket.
pub(crate) fn ask(method: Method, key: &str) -> Ask {
    let mut ask = ask_bucket(method);
    ask.0.key = Some(ObjectKey::new(key).unwrap());
    ask
}

/// A request for the fixture's bucket.
pub(crate) fn ask_bucket(method: Method) -> Ask {
    Ask(RawRequest {
        method,
        bucket: Some(bucket()),
        key: None,
        query: Vec::new(),
        headers: HeaderMap::new(),
        body: RawBody::Empty,
    })
}

pub(crate) fn put(key: &str, bytes: &[u8]) -> Ask {
    ask(Method::PUT, key).whole(bytes)
}

pub(crate) fn get(key: &str) -> Ask {
    ask(Method::GET, key)
}

impl Ask {
    pub(crate) fn of(mut self, bucket: &str) -> Self {
        self.0.bucket = Some(BucketName::new(bucket).unwrap());
        self
    }

    pub(crate) fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.0.query.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.0.headers.append(HeaderName::try_from(name).unwrap(), value);
        self
    }

    pub(crate) fn whole(mut self, bytes: &[u8]) -> Self {
        self.0.body = RawBody::Whole(Bytes::copy_from_slice(bytes));
        self
    }

    /// A body that is announced as `len` bytes.
    pub(crate) fn stream(mut self, len: usize, pieces: Vec<Result<Bytes, BodyBroken>>) -> Self {
        self.0.body = RawBody::Stream {
            len: len as u64,
            sha256: None,
            trailer: None,
            bytes: stream::iter(pieces).boxed(),
        };
        self
    }

    /// A body with a trailer, which comes, or does not, when the last piece has been taken.
    pub(crate) fn trailed(mut self, bytes: &[u8], name: &str, value: Option<&str>) -> Self {
        let trailer =
            Trailer { name: HeaderName::try_from(name).unwrap(), value: Arc::new(OnceLock::new()) };
        let (slot, value) = (Arc::clone(&trailer.value), value.map(str::to_owned));
        let last = stream::once(async move {
            if let Some(value) = value {
                slot.set(HeaderValue::try_from(value).unwrap()).unwrap();
            }
            Ok(Bytes::new())
        });
        self.0.body = RawBody::Stream {
            len: bytes.len() as u64,
            sha256: None,
            trailer: Some(trailer),
            bytes: stream::iter([Ok(Bytes::copy_from_slice(bytes))]).chain(last).boxed(),
        };
        self
    }
}

/// An answer with its body.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn tag(&self) -> String {
        self.header("etag").unwrap().to_owned()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The texts of all elements of this name, in order, as they are written.
    pub(crate) fn all(&self, element: &str) -> Vec<&str> {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        let inside = |rest: &'_ str| rest.find(&close).unwrap();
        self.text().split(&open).skip(1).map(|rest| &rest[..inside(rest)]).collect()
    }

    /// The text of the first element of this name.
    pub(crate) fn first(&self, element: &str) -> String {
        let found = self.all(element);
        (*found.first().unwrap_or_else(|| panic!("no {element} in {}", self.text()))).to_owned()
    }

    /// Status and code, such as `404 NoSuchKey`; the status alone where there is no error.
    pub(crate) fn outcome(&self) -> String {
        if self.status < 300 || self.body.is_empty() {
            return self.status.to_string();
        }
        assert_eq!(self.header("content-type"), Some("application/xml"));
        assert!(!self.first("RequestId").is_empty() && self.first("Resource").starts_with('/'));
        format!("{} {}", self.status, self.first("Code"))
    }
}

impl Fixture {
    /// Asks, and reads the answer to its end.
    pub(crate) async fn try_ask(&self, ask: Ask) -> Result<Told, OriginError> {
        let answer = self.origin.raw(ask.0).await?;
        let (mut body, mut pieces) = (Vec::new(), answer.body);
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece?);
        }
        Ok(Told { status: answer.status, headers: answer.headers, body })
    }

    pub(crate) async fn ask(&self, ask: Ask) -> Told {
        let is_head = ask.0.method == Method::HEAD;
        let told = self.try_ask(ask).await.unwrap();
        if let Some(len) = told.header("content-length").filter(|_| !is_head) {
            assert_eq!(len, told.body.len().to_string());
        }
        told
    }

    pub(crate) async fn outcome(&self, ask: Ask) -> String {
        self.ask(ask).await.outcome()
    }
}
