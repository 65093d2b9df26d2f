//! Which headers of an origin's answer a client is to see.
//!
//! Invariant: a header that is kept is kept byte for byte, as often as it came. What belongs to one
//! exchange rather than to the object (lengths, dates, request ids) is never kept.

use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG,
    EXPIRES, HeaderName, LAST_MODIFIED, RETRY_AFTER,
};
use std::time::Duration;

const KEPT: [HeaderName; 8] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
];

const KEPT_PREFIXES: [&str; 3] = ["x-amz-", "x-oss-", "x-bce-"];

/// Headers with a kept prefix that name or time one exchange.
const EXCHANGE: [&str; 9] = [
    "x-amz-request-id",
    "x-amz-id-2",
    "x-amz-cf-id",
    "x-amz-security-token",
    "x-oss-request-id",
    "x-oss-server-time",
    "x-oss-ec",
    "x-bce-request-id",
    "x-bce-debug-id",
];

/// The headers of `answer` to replay to a client, as DESIGN §3 lists them.
pub(crate) fn replayed(answer: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in answer {
        if is_replayed(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Headers of one connection (RFC 9110 §7.6.1), and of the server that answered.
const CONNECTION: [&str; 11] = [
    "connection",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The headers of `answer` to pass on to whoever made the request: all but those of the connection
/// and those that name one exchange.
pub(crate) fn passed(answer: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = answer
        .get_all(http::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut kept = HeaderMap::new();
    for (name, value) in answer {
        let text = name.as_str();
        let dropped = CONNECTION.contains(&text)
            || EXCHANGE.contains(&text)
            || named.iter().any(|named| named == text);
        if !dropped {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

fn is_replayed(name: &HeaderName) -> bool {
    let text = name.as_str();
    KEPT.contains(name)
        || (KEPT_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
            && !EXCHANGE.contains(&text))
}

/// A header's value as text; `None` when it is missing or not visible ASCII.
pub(crate) fn text(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Retry-After in its form of seconds. The form with a date is not used by any known origin.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    text(headers, RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
}

/// A Content-Range header, `bytes first-last/size` or `bytes */size` (RFC 9110 §14.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContentRange {
    /// First and last byte, both inside; `None` in a 416.
    pub(crate) span: Option<(u64, u64)>,
    /// The object's size; `None` when the origin did not know it.
    pub(crate) size: Option<u64>,
}

impl ContentRange {
    /// `None` when the header is malformed.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let (unit, rest) = value.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (span, size) = rest.trim().split_once('/')?;
        let size = if size == "*" { None } else { Some(size.parse().ok()?) };
        let span = if span == "*" {
            None
        } else {
            let (first, last) = span.split_once('-')?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && size.is_none_or(|size| last < size)).then_some(())?;
            Some((first, last))
        };
        Some(Self { span, size })
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentRange, passed, replayed};
    use http::{HeaderMap, HeaderName, HeaderValue};

    #[test]
    fn what_belongs_to_the_object_is_kept_byte_for_byte() {
        let mut answer = HeaderMap::new();
        for (name, value) in [
            ("etag", "\"ABCdef\""),
            ("x-amz-meta-a", "one"),
            ("x-amz-meta-a", "two"),
            ("x-oss-hash-crc64ecma", "12"),
            ("x-amz-request-id", "no"),
            ("x-bce-debug-id", "no"),
            ("content-length", "3"),
            ("content-range", "bytes 0-2/3"),
            ("date", "now"),
            ("server", "no"),
        ] {
            answer.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        answer.append("x-amz-meta-b", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let kept = replayed(&answer);
        assert_eq!(kept.len(), 5);
        assert_eq!(kept["etag"], "\"ABCdef\"");
        assert_eq!(kept.get_all("x-amz-meta-a").iter().count(), 2);
        assert_eq!(kept["x-amz-meta-b"].as_bytes(), b"caf\xe9");
    }

    #[test]
    fn all_but_the_connections_own_is_passed_on() {
        let mut answer = HeaderMap::new();
        for (name, value) in [
            ("content-length", "3"),
            ("location", "/there"),
            ("x-unheard-of", "kept"),
            ("connection", "close, X-Hop"),
            ("x-hop", "no"),
            ("transfer-encoding", "chunked"),
            ("server", "no"),
            ("date", "no"),
            ("x-amz-request-id", "no"),
            ("x-amz-version-id", "v1"),
        ] {
            answer.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut kept: Vec<_> = passed(&answer).keys().map(ToString::to_string).collect();
        kept.sort();
        assert_eq!(kept, ["content-length", "location", "x-amz-version-id", "x-unheard-of"]);
    }

    #[test]
    fn content_ranges_are_read() {
        let check = |value: &str, span, size| {
            assert_eq!(ContentRange::parse(value), Some(ContentRange { span, size }), "{value}");
        };
        check("bytes 0-9/10", Some((0, 9)), Some(10));
        check("bytes 5-9/*", Some((5, 9)), None);
        check("bytes */0", None, Some(0));
        for malformed in ["bytes 5-4/10", "bytes 0-10/10", "lines 0-1/2", "bytes 0-1", ""] {
            assert_eq!(ContentRange::parse(malformed), None, "{malformed}");
        }
    }
}
