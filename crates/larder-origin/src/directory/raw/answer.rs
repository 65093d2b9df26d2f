//! Answers as S3 gives them.

use super::super::refused;
use super::xml::Document;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use larder_model::{ErrorReply, OriginError, RawAnswer, Timestamp};
use rand::Rng as _;

/// Who owns everything in a folder, as far as S3 is told.
pub(super) const OWNER: &str = "larder";

/// An answer without a body.
pub(super) fn empty(status: u16) -> RawAnswer {
    RawAnswer { status, headers: HeaderMap::new(), body: stream::empty().boxed() }
}

/// 200 without a body, but with headers.
pub(super) fn bare(headers: HeaderMap) -> RawAnswer {
    let mut answer = RawAnswer { headers, ..empty(200) };
    answer.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    answer
}

/// 200 with a document.
pub(super) fn xml(document: Document) -> RawAnswer {
    with_xml(200, document)
}

fn with_xml(status: u16, document: Document) -> RawAnswer {
    let body = Bytes::from(document.finish());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    RawAnswer { status, headers, body: stream::iter([Ok(body)]).boxed() }
}

/// What S3 answers for an error. Only what is no answer stays an error.
pub(super) fn of_error(
    error: OriginError,
    method: &Method,
    resource: &str,
) -> Result<RawAnswer, OriginError> {
    let reply = match error {
        OriginError::NotFound(reply) | OriginError::Refused(reply) => reply,
        OriginError::RangeNotSatisfiable { reply, .. } => reply,
        OriginError::VersionChanged => {
            return Ok(of_error_reply(&precondition_failed_reply(), method, resource));
        }
        other => return Err(other),
    };
    Ok(of_error_reply(&reply, method, resource))
}

fn of_error_reply(reply: &ErrorReply, method: &Method, resource: &str) -> RawAnswer {
    if method == Method::HEAD || reply.status == 304 {
        return empty(reply.status);
    }
    let mut document = Document::bare("Error");
    document.text("Code", &reply.code).text("Message", &reply.message);
    document.text("Resource", resource).text("RequestId", request_id());
    with_xml(reply.status, document)
}

/// A name for this exchange, in the form of S3's.
fn request_id() -> String {
    hex::encode_upper(rand::rng().random::<[u8; 8]>())
}

pub(super) fn malformed_xml() -> OriginError {
    let message = "The XML you provided was not well-formed or did not validate against our \
        published schema";
    refused(400, "MalformedXML", message)
}

pub(super) fn invalid_argument(message: impl Into<String>) -> OriginError {
    refused(400, "InvalidArgument", message)
}

pub(super) fn invalid_request(message: impl Into<String>) -> OriginError {
    refused(400, "InvalidRequest", message)
}

pub(super) fn precondition_failed() -> OriginError {
    OriginError::Refused(precondition_failed_reply())
}

fn precondition_failed_reply() -> ErrorReply {
    let message = "At least one of the pre-conditions you specified did not hold";
    crate::error::reply(412, "PreconditionFailed", message)
}

/// What a folder cannot do.
pub(super) fn not_implemented(what: &str) -> OriginError {
    let message = format!(
        "A header or parameter you provided implies functionality that is not implemented: {what}. \
         This bucket is a folder."
    );
    refused(501, "NotImplemented", message)
}

/// `2026-11-21T05:25:00.000Z`
pub(super) fn show(time: Timestamp) -> String {
    const EPOCH: time::OffsetDateTime = time::OffsetDateTime::UNIX_EPOCH;
    let format = time::macros::format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
    );
    let nanos = i128::from(time.0) * 1_000_000;
    let time = time::OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(EPOCH);
    time.format(format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::show;
    use larder_model::Timestamp;

    #[test]
    fn times_are_in_s3s_form() {
        assert_eq!(show(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(show(Timestamp(1_763_702_700_123)), "2025-11-21T05:25:00.123Z");
    }
}
