//! What can come back instead of an answer, and what becomes of it.
//!
//! Invariant: no credential and no signature of ours leaves through an error, not even where the
//! origin's own body repeats it.

use super::SharedCredentials;
use super::probe::header_map;
use crate::{error, headers};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use bytes::Bytes;
use http::HeaderMap;
use larder_model::{ErrorReply, OriginError, OriginName};
use std::error::Error;
use std::time::Duration;

/// The longest error body that is kept.
const BODY_BYTES: usize = 64 * 1024;

/// Codes that speak of our keys, clock or signature, not of the client's. Their bodies may repeat
/// key id, session token and signature.
const ABOUT_OUR_KEYS: [&str; 11] = [
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "InvalidToken",
    "InvalidSecurityToken",
    "InvalidSecurity",
    "ExpiredToken",
    "SecurityTokenExpired",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyIdOrSecret",
];

/// One attempt that did not give what was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The origin answered with an error.
    Answer {
        reply: ErrorReply,
        retry_after: Option<Duration>,
        /// The size that a 416 told.
        size: Option<u64>,
    },
    /// No answer, or one that cannot be right.
    Broken { reason: String, transient: bool },
    /// A limit of ours, or a verdict that is final.
    Final(OriginError),
}

/// What the request asked, as far as it decides what an error answer means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) if_match: bool,
    pub(super) range: bool,
}

impl Failure {
    /// An answer that was there but cannot be right; asking again will not help.
    pub(super) fn wrong(reason: impl Into<String>) -> Self {
        Self::Broken { reason: reason.into(), transient: false }
    }

    /// No answer in time; asking again may help.
    pub(super) fn silent(reason: impl Into<String>) -> Self {
        Self::Broken { reason: reason.into(), transient: true }
    }

    /// Reads the SDK's error.
    pub(super) fn read<E>(error: SdkError<E, HttpResponse>, keys: &SharedCredentials) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match error {
            SdkError::ServiceError(service) => {
                let meta = service.err().meta();
                let (code, message) = (meta.code().unwrap_or(""), meta.message().unwrap_or(""));
                answer(code, message, service.raw(), keys)
            }
            // An error answer whose body the SDK cannot read, or a good answer with a bad header.
            SdkError::ResponseError(response) => {
                let raw = response.raw();
                if raw.status().is_success() {
                    Self::wrong(format!(
                        "answer {} cannot be read: {}",
                        raw.status().as_u16(),
                        causes(&SdkError::<E, HttpResponse>::ResponseError(response))
                    ))
                } else {
                    answer("", "", raw, keys)
                }
            }
            SdkError::ConstructionFailure(_) => {
                Self::wrong(format!("request cannot be built: {}", causes(&error)))
            }
            other => Self::silent(causes(&other)),
        }
    }

    /// Reads an error answer that did not go through the SDK. Unlike [`Failure::read`], it keeps all
    /// headers that are not the connection's.
    pub(super) fn of_answer(
        status: u16,
        all: &HeaderMap,
        body: Bytes,
        keys: &SharedCredentials,
    ) -> Self {
        let code = element(&body, "Code").unwrap_or_default();
        let mut kept = headers::passed(all);
        if kept.values().any(|value| keys.occur_in(value.as_bytes())) {
            kept.clear();
        }
        let reply = concealed(status, &code, &body, keys).unwrap_or_else(|| ErrorReply {
            status,
            message: element(&body, "Message").unwrap_or_default(),
            code,
            headers: kept,
            body,
        });
        Self::Answer { reply, retry_after: headers::retry_after(all), size: None }
    }

    /// Whether the origin refused for the number of requests, so that it has done nothing.
    pub(super) fn is_throttling(&self) -> bool {
        matches!(self, Self::Answer { reply, .. } if is_throttling(reply))
    }

    /// Whether the same request may succeed a little later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Answer { reply, .. } => {
                is_throttling(reply) || is_server_failure(reply) || reply.code == "RequestTimeout"
            }
            Self::Broken { transient, .. } => *transient,
            Self::Final(_) => false,
        }
    }

    /// How long the origin asked to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answer { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The verdict after the last attempt.
    ///
    /// 500, 502, 503 and 504 that are no throttling become [`OriginError::Unreachable`], so that
    /// clients are told to come back, with the status and code in the reason. `what` names the
    /// operation and its object for that reason.
    pub(super) fn into_error(
        self,
        origin: &OriginName,
        what: &str,
        asked: Asked,
        attempts: u32,
    ) -> OriginError {
        let (reply, retry_after, size) = match self {
            Self::Final(error) => return error,
            Self::Broken { reason, .. } => {
                let reason = format!("{what}: {reason} (attempt {attempts})");
                return OriginError::Unreachable { origin: origin.clone(), reason };
            }
            Self::Answer { reply, retry_after, size } => (reply, retry_after, size),
        };
        let ErrorReply { status, code, .. } = &reply;
        let said = format!("{what}: it answered {status} {code} (attempt {attempts})");
        if is_throttling(&reply) {
            let retry_after = retry_after.unwrap_or(Duration::from_secs(1));
            return OriginError::Busy { origin: origin.clone(), reason: said, retry_after };
        }
        if is_server_failure(&reply) || reply.code == "RequestTimeout" {
            return OriginError::Unreachable { origin: origin.clone(), reason: said };
        }
        match reply.status {
            404 => OriginError::NotFound(reply),
            412 if asked.if_match => OriginError::VersionChanged,
            416 if asked.range => OriginError::RangeNotSatisfiable { size, reply },
            _ => OriginError::Refused(reply),
        }
    }
}

fn is_throttling(reply: &ErrorReply) -> bool {
    let code = matches!(
        reply.code.as_str(),
        "SlowDown"
            | "Throttling"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "TooManyRequests"
    );
    // A bare 503 is how OSS, BOS and most gateways throttle.
    code || reply.status == 429 || reply.status == 503
}

fn is_server_failure(reply: &ErrorReply) -> bool {
    matches!(reply.status, 500 | 502 | 504) || reply.code == "InternalError"
}

fn answer(code: &str, message: &str, raw: &HttpResponse, keys: &SharedCredentials) -> Failure {
    let status = raw.status().as_u16();
    let all = header_map(raw.headers());
    let body = raw.body().bytes().unwrap_or_default();
    // The SDK makes a code up for a 404 without a body.
    let (code, message) = if body.is_empty() { ("", "") } else { (code, message) };
    let size = headers::text(&all, http::header::CONTENT_RANGE)
        .and_then(headers::ContentRange::parse)
        .and_then(|range| range.size)
        .or_else(|| actual_size(body));
    let reply = concealed(status, code, body, keys).unwrap_or_else(|| ErrorReply {
        status,
        code: code.to_owned(),
        message: message.to_owned(),
        headers: headers::replayed(&all),
        body: Bytes::copy_from_slice(&body[..body.len().min(BODY_BYTES)]),
    });
    Failure::Answer { reply, retry_after: headers::retry_after(&all), size }
}

/// What is told instead of an answer about our keys; `None` for any other.
fn concealed(status: u16, code: &str, body: &[u8], keys: &SharedCredentials) -> Option<ErrorReply> {
    let ours = ABOUT_OUR_KEYS.contains(&code);
    if !ours && !keys.occur_in(body) {
        return None;
    }
    let named = if code.is_empty() { "an error about its keys" } else { code };
    let told = format!("The origin refused the proxy's own request with {named}.");
    Some(error::reply(status, if ours { "AccessDenied" } else { code }, told))
}

/// `<ActualObjectSize>` of an `InvalidRange` error.
fn actual_size(body: &[u8]) -> Option<u64> {
    element(body, "ActualObjectSize")?.parse().ok()
}

/// The text of the first element of this name in an error's XML.
pub(super) fn element(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once('<')?;
    Some(text.trim().to_owned())
}

/// An error and its causes in one line.
pub(super) fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Asked, Failure, actual_size};
    use crate::error;
    use larder_model::{OriginError, OriginName};

    fn verdict(status: u16, code: &str, asked: Asked) -> OriginError {
        let reply = error::reply(status, code, "");
        Failure::Answer { reply, retry_after: None, size: None }.into_error(
            &OriginName::new("o").unwrap(),
            "GET",
            asked,
            1,
        )
    }

    #[test]
    fn each_status_has_its_verdict() {
        let plain = Asked::default();
        let both = Asked { if_match: true, range: true };
        assert!(matches!(verdict(404, "NoSuchBucket", plain), OriginError::NotFound(_)));
        assert!(matches!(verdict(412, "PreconditionFailed", plain), OriginError::Refused(_)));
        assert!(matches!(verdict(412, "PreconditionFailed", both), OriginError::VersionChanged));
        assert!(matches!(verdict(416, "InvalidPartNumber", plain), OriginError::Refused(_)));
        assert!(matches!(
            verdict(416, "InvalidRange", both),
            OriginError::RangeNotSatisfiable { .. }
        ));
        for (status, code) in [(503, "SlowDown"), (503, ""), (429, ""), (400, "Throttling")] {
            assert!(matches!(verdict(status, code, plain), OriginError::Busy { .. }));
        }
        for status in [500, 502, 504] {
            assert!(matches!(verdict(status, "", plain), OriginError::Unreachable { .. }));
        }
        for status in [301, 307, 400, 403, 405, 501] {
            assert!(matches!(verdict(status, "X", plain), OriginError::Refused(_)));
        }
    }

    #[test]
    fn the_size_in_an_invalid_range_error_is_read() {
        assert_eq!(
            actual_size(b"<Error><ActualObjectSize>12</ActualObjectSize></Error>"),
            Some(12)
        );
        assert_eq!(actual_size(b"<Error><ActualObjectSize>x</ActualObjectSize></Error>"), None);
        assert_eq!(actual_size(b""), None);
    }
}
