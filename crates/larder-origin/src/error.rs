//! Why an origin cannot be set up, and error answers in S3's form.
//!
//! Invariant: nothing here holds a credential.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use larder_model::{ErrorReply, OriginName};

/// An origin's configuration cannot work. The message names the origin and what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The endpoint is not a URL that a client could use.
    #[error("origin {origin}: endpoint {endpoint:?} is not usable: {reason}")]
    Endpoint {
        /// The origin.
        origin: OriginName,
        /// What was configured.
        endpoint: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The certificates to trust cannot be used.
    #[error("origin {origin}: its ca cannot be used: {reason}")]
    Ca {
        /// The origin.
        origin: OriginName,
        /// What is wrong with it.
        reason: String,
    },
    /// A limit that would let nothing through.
    #[error("origin {origin}: {limit} must be at least 1")]
    Limit {
        /// The origin.
        origin: OriginName,
        /// The limit's name in [`crate::OriginLimits`].
        limit: &'static str,
    },
    /// The folder of a directory origin cannot be used.
    #[error("origin {origin}: folder {path:?} cannot be used: {reason}")]
    Folder {
        /// The origin.
        origin: OriginName,
        /// The folder as configured.
        path: std::path::PathBuf,
        /// What went wrong.
        reason: std::io::Error,
    },
    /// The metrics are registered already: two origins of one name.
    #[error("origin {origin}: its metrics cannot be registered: {reason}")]
    Metrics {
        /// The origin.
        origin: OriginName,
        /// What the registry said.
        reason: prometheus::Error,
    },
}

/// An error answer of our own, with a body as S3 would send it.
pub(crate) fn reply(status: u16, code: &str, message: impl Into<String>) -> ErrorReply {
    let message = message.into();
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>",
        escape(code),
        escape(&message),
    );
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    ErrorReply { status, code: code.to_owned(), message, headers, body: Bytes::from(body) }
}

/// Text as XML 1.0 can hold it: markup escaped, characters that XML has no form for replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(character),
            control if control < ' ' => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::reply;

    #[test]
    fn a_message_cannot_break_out_of_the_xml() {
        let reply = reply(400, "InvalidArgument", "<a>&\u{0}\"");
        assert!(
            reply
                .body
                .ends_with("<Message>&lt;a&gt;&amp;\u{fffd}&quot;</Message></Error>".as_bytes())
        );
        assert_eq!(reply.message, "<a>&\u{0}\"");
    }
}
