//! An honest small S3 origin: GET and HEAD with ranges, ETag, If-Match and If-None-Match; signatures are not looked at.
//!
//! It answers for every key that names its size (see [`content`](crate::content)) in any bucket, so nothing has to be
//! put there first. Keys that it was given to hold are served as one `Bytes` from memory, which makes it the "bare
//! hyper" that others are measured against; all other objects are computed while they are sent.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::content::Content;

/// How many bytes of a computed object are made at a time.
const FRAME: u64 = 64 * 1024;
/// All objects are this old; what the date is does not matter to anybody.
const LAST_MODIFIED: &str = "Fri, 24 May 2013 00:00:00 GMT";

/// Objects held in memory, by key, to be served without any work.
pub type Held = HashMap<String, Object>;

/// An object held in memory.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its entity tag, with the quotes.
    pub etag: HeaderValue,
}

/// The content of `keys`; a key that does not name its size is left out.
#[must_use]
pub fn hold(keys: impl IntoIterator<Item = String>) -> Held {
    keys.into_iter().filter_map(|key| object(&key).map(|object| (key, object))).collect()
}

fn object(key: &str) -> Option<Object> {
    let content = Content::of(key)?;
    let etag = HeaderValue::from_str(&content.etag()).ok()?;
    Some(Object { bytes: content.bytes(0..content.size_bytes()), etag })
}

/// Serves as the origin on `listener` until the future is dropped, which also ends the connections.
pub async fn serve(listener: TcpListener, held: Held) -> io::Result<()> {
    let held = Arc::new(held);
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&held, request.method(), request.uri().path(), request.headers());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    accept(listener, service).await
}

/// Accepts connections for `service` for ever, as plain HTTP/1.1 with TCP_NODELAY. The connections live in this future.
pub async fn accept<S, B>(listener: TcpListener, service: S) -> io::Result<()>
where
    S: HttpService<Incoming, ResBody = B> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
        // A client that hangs up is not the origin's matter.
        connections.spawn(async move { drop(served.await) });
        while connections.try_join_next().is_some() {}
    }
}

fn answer(held: &Held, method: &Method, path: &str, headers: &HeaderMap) -> Response<Payload> {
    let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
    let Some(found) = find(held, key) else {
        return refusal(StatusCode::NOT_FOUND, "NoSuchKey");
    };
    let (size, etag) = (found.size, found.etag);
    if *method != Method::GET && *method != Method::HEAD {
        return refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed");
    }
    let names = |name| headers.get(name).is_some_and(|tags| matches(tags, &etag));
    if headers.contains_key(header::IF_MATCH) && !names(header::IF_MATCH) {
        return refusal(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
    }
    if names(header::IF_NONE_MATCH) {
        let mut response = Response::new(Payload::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        describe(response.headers_mut(), etag);
        return response;
    }
    let part = match headers.get(header::RANGE).map(|range| read_range(range, size)) {
        Some(Asked::Part(part)) => Some(part),
        Some(Asked::Outside) => return refusal(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
        Some(Asked::Nonsense) | None => None,
    };
    let sent = part.clone().unwrap_or(0..size);
    let body = match found.source {
        _ if method == Method::HEAD => Payload::Absent(sent.end - sent.start),
        Source::Held(bytes) => Payload::Held(bytes.slice(sent.start as usize..sent.end as usize)),
        Source::Made(content) => Payload::Made { content, next: sent.start, end: sent.end },
    };
    let mut response = Response::new(body);
    describe(response.headers_mut(), etag);
    if let Some(part) = part {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let value = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
    }
    response
}

struct Found {
    size: u64,
    etag: HeaderValue,
    source: Source,
}

enum Source {
    Held(Bytes),
    Made(Content),
}

fn find(held: &Held, key: &str) -> Option<Found> {
    if let Some(Object { bytes, etag }) = held.get(key) {
        let source = Source::Held(bytes.clone());
        return Some(Found { size: bytes.len() as u64, etag: etag.clone(), source });
    }
    let content = Content::of(key)?;
    let etag = HeaderValue::from_str(&content.etag()).ok()?;
    Some(Found { size: content.size_bytes(), etag, source: Source::Made(content) })
}

fn describe(headers: &mut HeaderMap, etag: HeaderValue) {
    headers.insert(header::ETAG, etag);
    headers.insert(header::LAST_MODIFIED, HeaderValue::from_static(LAST_MODIFIED));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
}

fn refusal(status: StatusCode, code: &str) -> Response<Payload> {
    let body = format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>");
    let mut response = Response::new(Payload::Held(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

fn matches(tags: &HeaderValue, etag: &HeaderValue) -> bool {
    let etag = etag.to_str().unwrap_or_default();
    let mut tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag == etag || tag == etag.trim_matches('"'))
}

enum Asked {
    Part(Range<u64>),
    Outside,
    Nonsense,
}

/// A single range of RFC 9110 §14.1.2; several ranges are ignored, as S3 does.
fn read_range(value: &HeaderValue, size: u64) -> Asked {
    let bounds = value.to_str().ok().and_then(|text| text.strip_prefix("bytes=")?.split_once('-'));
    let part = match bounds
        .map(|(first, last)| (first.parse::<u64>(), last.parse::<u64>(), first, last))
    {
        Some((Ok(first), Ok(last), ..)) if first <= last => first..last.saturating_add(1).min(size),
        Some((Ok(first), _, _, "")) => first..size,
        Some((_, Ok(count), "", _)) => size.saturating_sub(count)..size,
        _ => return Asked::Nonsense,
    };
    if part.start >= part.end { Asked::Outside } else { Asked::Part(part) }
}

/// The body of an answer.
#[derive(Debug)]
enum Payload {
    Held(Bytes),
    Made {
        content: Content,
        next: u64,
        end: u64,
    },
    /// The length that a GET would have sent.
    Absent(u64),
}

impl Payload {
    fn empty() -> Self {
        Self::Held(Bytes::new())
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Self::Held(bytes) => std::mem::take(bytes),
            Self::Made { content, next, end } => {
                let bytes = content.bytes(*next..(*next + FRAME).min(*end));
                *next += bytes.len() as u64;
                bytes
            }
            Self::Absent(_) => Bytes::new(),
        };
        Poll::Ready((!bytes.is_empty()).then_some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Held(bytes) => bytes.is_empty(),
            Self::Made { next, end, .. } => next >= end,
            Self::Absent(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::Made { next, end, .. } => end - next,
            Self::Absent(length) => *length,
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(
        held: &Held,
        path: &str,
        fields: &[(&'static str, &str)],
    ) -> (u16, Bytes, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, HeaderValue::from_str(value).expect("a header value"));
        }
        let (parts, body) = answer(held, &Method::GET, path, &headers).into_parts();
        let bytes = body.collect().await.expect("a body cannot fail").to_bytes();
        (parts.status.as_u16(), bytes, parts.headers)
    }

    #[tokio::test]
    async fn held_and_computed_objects_are_the_same_bytes() {
        let key = "700001/a";
        let held = hold([key.to_owned()]);
        let whole = Content::of(key).expect("a key").bytes(0..700_001);
        for shelf in [&held, &Held::new()] {
            let (status, bytes, headers) = ask(shelf, "/bench/700001/a", &[]).await;
            assert_eq!((status, bytes), (200, whole.clone()));
            assert_eq!(headers["etag"], Content::of(key).expect("a key").etag());
            for (range, want) in [
                ("bytes=0-0", 0..1),
                ("bytes=5-299999", 5..300_000),
                ("bytes=700000-", 700_000..700_001),
                ("bytes=-3", 699_998..700_001),
                ("bytes=10-99999999", 10..700_001),
            ] {
                let (status, bytes, headers) =
                    ask(shelf, "/bench/700001/a", &[("range", range)]).await;
                assert_eq!((status, bytes), (206, whole.slice(want.clone())), "{range}");
                let place = format!("bytes {}-{}/700001", want.start, want.end - 1);
                assert_eq!(headers["content-range"], place);
            }
        }
    }

    #[tokio::test]
    async fn conditions_and_impossible_ranges_are_answered_as_s3_does() {
        let etag = Content::of("10/a").expect("a key").etag();
        let held = Held::new();
        let status =
            async |path: &str, name, value: &str| ask(&held, path, &[(name, value)]).await.0;
        assert_eq!(status("/b/10/a", "if-match", &etag).await, 200);
        assert_eq!(status("/b/10/a", "if-match", "\"other\"").await, 412);
        assert_eq!(status("/b/10/a", "if-none-match", &etag).await, 304);
        assert_eq!(status("/b/10/a", "if-none-match", "\"other\"").await, 200);
        assert_eq!(status("/b/10/a", "range", "bytes=10-").await, 416);
        assert_eq!(status("/b/0/a", "range", "bytes=0-9").await, 416);
        assert_eq!(status("/b/10/a", "range", "bytes=0-1,3-4").await, 200);
        assert_eq!(status("/b/none", "range", "bytes=0-1").await, 404);
    }
}
