//! What others refused, as the client hears it: the engine's [`ReadError`]s and s3s's own errors.

use crate::fault::Fault;
use crate::guard::signature_mismatch;
use crate::object::NOT_MODIFIED_HEADERS;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use larder_engine::ReadError;
use larder_model::ErrorReply;
use std::time::Duration;

/// When a client is to come back to an origin that cannot be reached.
const RETRY_AFTER_UNREACHABLE: Duration = Duration::from_secs(2);

/// What an error's answer repeats of its request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked<'a> {
    /// The Range header.
    pub(crate) range: Option<&'a str>,
    /// The condition that S3 names when it does not hold.
    pub(crate) condition: &'static str,
    /// Whether the origin's own words would show a name that an alias hides.
    pub(crate) aliased: bool,
}

/// The one place where errors of the data path become S3 answers.
///
/// | error | answer |
/// |---|---|
/// | `NotModified` | 304 with ETag, Last-Modified, Cache-Control, Expires, Vary, Content-Location and the version id |
/// | `PreconditionFailed` | 412 PreconditionFailed with the Condition |
/// | `RangeNotSatisfiable` | 416 InvalidRange with RangeRequested, ActualObjectSize and `Content-Range: bytes */N` |
/// | `Origin` | the origin's status, headers and body; a document of ours where it had none, or behind an alias |
/// | `Busy` | 503 SlowDown, Retry-After as told |
/// | `Unreachable` | 503 ServiceUnavailable, Retry-After: 2 |
/// | `Changed` | 503 ServiceUnavailable, Retry-After: 1 |
/// | `BodyBroken` | 400 IncompleteBody |
/// | `NotPermitted` | 403 AccessDenied, and an error in the log: a defect of the gateway |
pub(crate) fn read_fault(error: ReadError, asked: Asked<'_>) -> Fault {
    match error {
        ReadError::NotModified(meta) => {
            let mut headers = HeaderMap::with_capacity(NOT_MODIFIED_HEADERS.len());
            for name in &NOT_MODIFIED_HEADERS {
                if let Some(value) = meta.headers.get(name) {
                    headers.insert(name, value.clone());
                }
            }
            Fault::replay(StatusCode::NOT_MODIFIED, headers, Bytes::new())
        }
        ReadError::PreconditionFailed(_) => Fault::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            "At least one of the pre-conditions you specified did not hold",
        )
        .with("Condition", asked.condition),
        ReadError::RangeNotSatisfiable { size } => {
            let fault = Fault::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "InvalidRange",
                "The requested range is not satisfiable",
            )
            .with("RangeRequested", asked.range.unwrap_or_default())
            .with("ActualObjectSize", size.to_string());
            match HeaderValue::try_from(format!("bytes */{size}")) {
                Ok(value) => fault.header(CONTENT_RANGE, value),
                Err(_) => fault,
            }
        }
        ReadError::Origin(reply) => replay(reply, asked.aliased),
        ReadError::Busy { retry_after, reason } => {
            tracing::debug!(%reason, "too busy");
            Fault::unavailable("SlowDown", "Please reduce your request rate.", retry_after)
        }
        ReadError::Unreachable { origin, reason } => {
            tracing::warn!(%origin, %reason, "origin cannot be reached");
            let message = "The origin cannot be reached. Please try again.";
            Fault::unavailable("ServiceUnavailable", message, RETRY_AFTER_UNREACHABLE)
        }
        ReadError::Changed(name) => {
            tracing::debug!(%name, "changed while it was being read");
            let message = "The object kept changing while it was being read. Please try again.";
            Fault::unavailable("ServiceUnavailable", message, Duration::from_secs(1))
        }
        // Whoever made the body has told its own fault already; this is for what is left.
        ReadError::BodyBroken => Fault::bad(
            "IncompleteBody",
            "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        ),
        ReadError::NotPermitted { dataset, name } => {
            tracing::error!(%dataset, %name, "permit does not cover the request");
            Fault::access_denied()
        }
    }
}

fn replay(reply: ErrorReply, aliased: bool) -> Fault {
    let ErrorReply { status, code, message, mut headers, body } = reply;
    let status = StatusCode::from_u16(status)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error())
        .unwrap_or(StatusCode::BAD_GATEWAY);
    headers.remove(CONTENT_LENGTH);
    if !body.is_empty() && !aliased {
        return Fault::replay(status, headers, body);
    }
    let (code, message) = match (code.is_empty(), status) {
        (false, _) => (code, message),
        // A HEAD at the origin has no document; the status says as much as S3 would.
        (true, StatusCode::NOT_FOUND) => {
            ("NoSuchKey".to_owned(), "The specified key does not exist.".to_owned())
        }
        (true, StatusCode::FORBIDDEN) => ("AccessDenied".to_owned(), "Access Denied".to_owned()),
        (true, _) => {
            let reason = status.canonical_reason().unwrap_or("Error");
            (reason.replace([' ', '-'], ""), reason.to_owned())
        }
    };
    headers.remove(CONTENT_TYPE);
    let mut fault = Fault::new(status, code, message);
    for (name, value) in &headers {
        fault = fault.header(name.clone(), value.clone());
    }
    fault
}

/// An error that s3s answered before the route was reached, in S3's own words.
pub(crate) fn s3s_fault(status: StatusCode, document: &[u8]) -> Fault {
    let document = std::str::from_utf8(document).unwrap_or_default();
    let element = |open: &str, close: &str| {
        let (_, rest) = document.split_once(open)?;
        Some(rest.split_once(close)?.0.to_owned())
    };
    let code = element("<Code>", "</Code>").unwrap_or_default();
    match code.as_str() {
        "SignatureDoesNotMatch" => signature_mismatch(),
        "InvalidAccessKeyId" => Fault::new(
            StatusCode::FORBIDDEN,
            "InvalidAccessKeyId",
            "The AWS Access Key Id you provided does not exist in our records.",
        ),
        "KeyTooLongError" => {
            Fault::bad("KeyTooLongError", "Your key is too long").with("MaxSizeAllowed", "1024")
        }
        "InvalidURI" => Fault::invalid_uri(),
        "AccessDenied" => Fault::access_denied(),
        "" => Fault::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "We encountered an internal error. Please try again.",
        ),
        // Texts of s3s about lengths and payload headers; escaped already, and without quotes.
        _ => Fault::new(status, code, element("<Message>", "</Message>").unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, read_fault, s3s_fault};
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use larder_engine::ReadError;
    use larder_model::{ErrorReply, ObjectName, OriginName};
    use std::time::Duration;

    fn check(error: ReadError, status: u16, code: &str) {
        let fault = read_fault(error, Asked::default());
        assert_eq!((fault.status().as_u16(), fault.code()), (status, code));
    }

    fn reply(status: u16, code: &str, body: &'static str) -> ReadError {
        ReadError::Origin(ErrorReply {
            status,
            code: code.to_owned(),
            message: String::new(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        })
    }

    #[test]
    fn each_error_has_its_answer() {
        let origin = OriginName::new("o").unwrap();
        let name = ObjectName {
            origin: origin.clone(),
            bucket: larder_model::BucketName::new("bbb").unwrap(),
            key: larder_model::ObjectKey::new("k").unwrap(),
            version_id: None,
        };
        let retry_after = Duration::from_millis(1500);
        check(ReadError::RangeNotSatisfiable { size: 1 }, 416, "InvalidRange");
        check(ReadError::Busy { reason: String::new(), retry_after }, 503, "SlowDown");
        check(ReadError::Unreachable { origin, reason: String::new() }, 503, "ServiceUnavailable");
        check(ReadError::Changed(name), 503, "ServiceUnavailable");
        check(reply(404, "NoSuchVersion", ""), 404, "NoSuchVersion");
        check(reply(404, "", ""), 404, "NoSuchKey");
        check(reply(403, "", ""), 403, "AccessDenied");
        check(reply(405, "", ""), 405, "MethodNotAllowed");
        check(reply(404, "NoSuchKey", "<Error/>"), 404, "");
        check(reply(200, "Odd", ""), 502, "Odd");
    }

    #[test]
    fn an_alias_hides_the_words_of_the_origin() {
        let asked = Asked { aliased: true, ..Asked::default() };
        let fault = read_fault(reply(404, "NoSuchKey", "<Key>hidden/k</Key>"), asked);
        assert_eq!(fault.code(), "NoSuchKey");
    }

    #[test]
    fn errors_of_s3s_are_told_in_the_words_of_s3() {
        let document = b"<Error><Code>SignatureDoesNotMatch</Code></Error>";
        let fault = s3s_fault(StatusCode::FORBIDDEN, document);
        assert_eq!((fault.status().as_u16(), fault.code()), (403, "SignatureDoesNotMatch"));
        assert_eq!(s3s_fault(StatusCode::BAD_REQUEST, b"").code(), "InternalError");
    }
}
