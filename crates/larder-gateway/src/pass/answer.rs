//! The origin's answer on its way to the client.

use super::headers::{is_xml, strip_answer};
use super::is_silent;
use super::place::{Alias, Place};
use super::reveal::{error, reveal};
use crate::body::Exact;
use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::operation::{Class, Row, Shows};
use crate::refusal::{Asked, read_fault};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use larder_engine::{Passed, ReadError};
use larder_model::ErrorReply;
use s3s::Body;

const X_LARDER_CACHE: HeaderName = HeaderName::from_static("x-larder-cache");

/// The most bytes of an answer that is held whole.
pub(super) const MAX_HELD_BYTES: usize = 16 << 20;

/// The answer for the client.
pub(super) async fn reply(
    call: &Call<'_>,
    row: &Row,
    place: &Place,
    passed: Passed,
) -> Result<Reply, Fault> {
    let Passed { status, mut headers, mut body } = passed;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    strip_answer(&mut headers, status);
    if row.class == Class::Cached {
        headers.insert(X_LARDER_CACHE, HeaderValue::from_static("origin"));
    }
    if let Some(alias) = &place.alias {
        headers.remove(LOCATION);
        if status.is_client_error() || status.is_server_error() {
            return Err(hide(status, headers, body, alias).await);
        }
    }
    if is_silent(call.method, status) {
        // The cache has let go of what was changed once the answer has ended.
        while let Some(frame) = body.next().await {
            frame.map_err(|error| read_fault(error, Asked::default()))?;
        }
        return Ok(Reply { status, headers, body: Body::empty() });
    }
    match &place.alias {
        Some(alias) if row.shows == Shows::Names => {
            let document = hold(body, true).await?;
            let shown = reveal(&document, alias, &location(call, place));
            let shown = shown.ok_or_else(unreadable)?;
            headers.insert(CONTENT_LENGTH, HeaderValue::from(shown.len()));
            Ok(Reply { status, headers, body: Body::from(shown) })
        }
        _ => Ok(Reply { status, body: stream(call, &headers, body), headers }),
    }
}

/// A body that goes through as it comes, exactly as long as the origin said.
fn stream(
    call: &Call<'_>,
    headers: &HeaderMap,
    body: BoxStream<'static, Result<Bytes, ReadError>>,
) -> Body {
    let len = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    match len {
        Some(0) => Body::empty(),
        Some(len) => Body::http_body_unsync(Exact::new(body, len, call.id)),
        None => Body::http_body_unsync(StreamBody::new(body.map(|frame| frame.map(Frame::data)))),
    }
}

/// All of an answer's body. An error of the origin, where `aliased`, is told without its words.
pub(super) async fn hold(
    mut body: BoxStream<'static, Result<Bytes, ReadError>>,
    aliased: bool,
) -> Result<Bytes, Fault> {
    let mut held = BytesMut::new();
    while let Some(frame) = body.next().await {
        let frame =
            frame.map_err(|error| read_fault(error, Asked { aliased, ..Asked::default() }))?;
        if held.len() + frame.len() > MAX_HELD_BYTES {
            return Err(unreadable());
        }
        held.extend_from_slice(&frame);
    }
    Ok(held.freeze())
}

/// An error behind an alias.
async fn hide(
    status: StatusCode,
    headers: HeaderMap,
    body: BoxStream<'static, Result<Bytes, ReadError>>,
    alias: &Alias,
) -> Fault {
    let body = match is_xml(&headers) {
        true => hold(body, true).await.unwrap_or_default(),
        false => Bytes::new(),
    };
    let (code, message) = error(&body, alias);
    let reply = ErrorReply { status: status.as_u16(), code, message, headers, body: Bytes::new() };
    read_fault(ReadError::Origin(reply), Asked { aliased: true, ..Asked::default() })
}

/// Where the client finds what it has made.
fn location(call: &Call<'_>, place: &Place) -> String {
    let host = call.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (Some(alias), Some(key)) = (&place.alias, &place.key) else { return String::new() };
    let key = key.as_str().strip_prefix(&alias.hidden).unwrap_or_default();
    format!("http://{host}/{}/{key}", alias.bucket)
}

/// An answer of the origin that cannot be shown.
pub(super) fn unreadable() -> Fault {
    tracing::warn!("the origin's answer cannot be shown in the client's names");
    Fault::new(
        StatusCode::BAD_GATEWAY,
        "InternalError",
        "The origin's answer could not be understood. What was asked for may have been done.",
    )
}
