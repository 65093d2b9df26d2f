//! The query of a request, decoded exactly once: percent-escapes, and `+` for a space, as S3 does
//! in queries (not in paths).

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Names and values in the order in which they came. Names are case-sensitive, as S3's are.
#[derive(Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// A percent-escape that is none, or bytes that are no UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecodable;

impl<'a> Query<'a> {
    /// Reads the part of a URI behind the `?`. `None` when it cannot be decoded.
    #[must_use]
    pub fn parse(query: &'a str) -> Option<Self> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        pairs.collect::<Result<_, Undecodable>>().ok().map(Self)
    }

    /// The first value under `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// Whether `name` is there, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Everything, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>, Undecodable> {
    if !escapes_are_whole(text) {
        return Err(Undecodable);
    }
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| Undecodable)?;
        return Ok(Cow::Owned(decoded.into_owned()));
    }
    percent_decode_str(text).decode_utf8().map_err(|_| Undecodable)
}

/// Whether each `%` is followed by two hexadecimal digits.
pub(crate) fn escapes_are_whole(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().all(|(at, b)| *b != b'%' || (digit(at + 1) && digit(at + 2)))
}

#[cfg(test)]
mod tests {
    use super::Query;

    fn check(query: &str, expected: &[(&str, &str)]) {
        let parsed = Query::parse(query).unwrap();
        assert_eq!(parsed.iter().collect::<Vec<_>>(), expected, "{query}");
    }

    #[test]
    fn a_query_is_decoded_once() {
        check("a=1&b", &[("a", "1"), ("b", "")]);
        check("a+b=c+d%2Be", &[("a b", "c d+e")]);
        check("p=%2525", &[("p", "%25")]);
        check("X%2DAmz-Date=1", &[("X-Amz-Date", "1")]);
        check("&&a=b=c&", &[("a", "b=c")]);
    }

    #[test]
    fn broken_escapes_and_bytes_that_are_no_text_are_refused() {
        for query in ["a=%", "a=%2", "%zz=1", "a=%ff", "a=%C3%28"] {
            assert!(Query::parse(query).is_none(), "{query}");
        }
    }
}
