//! Reads the head of a good answer, and refuses one that is not what was asked for.

use super::failure::Failure;
use super::probe::Head;
use crate::headers::{self, ContentRange};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use larder_model::{ByteRange, ETag, ObjectMeta, OriginError, VersionId};

/// What a GET asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) range: Option<ByteRange>,
    pub(super) if_match: Option<ETag>,
    pub(super) part_number: Option<u32>,
    pub(super) checksums: bool,
}

/// What the head of the answer to a GET says.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) meta: ObjectMeta,
    /// The bytes that the body is to yield; `None` for an empty object.
    pub(super) range: Option<ByteRange>,
    /// Whether the body goes on behind them: the origin ignored the range.
    pub(super) overlong: bool,
}

/// Whether a tag promises equal bytes (RFC 9110 §8.8.1), so that If-Match can hold for it.
pub(super) fn is_strong(etag: &ETag) -> bool {
    !etag.as_str().starts_with("W/")
}

/// The object's state from an answer to a HEAD, or to a GET whose `size` is known already.
pub(super) fn meta(head: &Head, size: u64) -> ObjectMeta {
    ObjectMeta {
        size,
        etag: headers::text(&head.headers, ETAG).and_then(ETag::new),
        version_id: headers::text(&head.headers, "x-amz-version-id")
            .and_then(|id| VersionId::new(id).ok()),
        headers: headers::replayed(&head.headers),
    }
}

/// The whole object's size: from Content-Range where a part was asked for, else Content-Length.
pub(super) fn size(head: &Head) -> Result<u64, Failure> {
    let total = content_range(head)?.and_then(|range| range.size);
    total.or_else(|| content_length(head)).ok_or_else(|| Failure::wrong("the answer tells no size"))
}

/// Checks the head of the answer to a GET against what was asked.
pub(super) fn examine(head: &Head, wanted: &Wanted) -> Result<Found, Failure> {
    let (range, size, overlong) = match head.status {
        206 => partial(head, wanted)?,
        200 => whole(head, wanted)?,
        status => return Err(Failure::wrong(format!("a GET was answered with status {status}"))),
    };
    let meta = meta(head, size);
    match &wanted.if_match {
        Some(tag) if meta.etag.as_ref() != Some(tag) => {
            Err(Failure::Final(OriginError::VersionChanged))
        }
        _ => Ok(Found { meta, range, overlong }),
    }
}

type Extent = (Option<ByteRange>, u64, bool);

fn partial(head: &Head, wanted: &Wanted) -> Result<Extent, Failure> {
    let told = content_range(head)?;
    let Some(ContentRange { span: Some((first, last)), size: Some(size) }) = told else {
        return Err(Failure::wrong("a 206 without a usable Content-Range"));
    };
    let got = last.checked_add(1).and_then(|end| ByteRange::new(first, end));
    let expected = match wanted.range {
        Some(range) => range.clip(size),
        None => got,
    };
    if got.is_none() || got != expected {
        return Err(Failure::wrong(format!("bytes {first}-{last} of {size} were not asked for")));
    }
    let told = content_length(head);
    if told.is_some() && told != got.map(|range| range.len()) {
        return Err(Failure::wrong("Content-Length and Content-Range contradict each other"));
    }
    Ok((got, size, false))
}

/// An origin that ignores ranges is fine where the range begins at the object's beginning.
fn whole(head: &Head, wanted: &Wanted) -> Result<Extent, Failure> {
    let size = content_length(head).ok_or_else(|| Failure::wrong("the answer tells no size"))?;
    let all = ByteRange::new(0, size);
    match (wanted.range, all) {
        (Some(range), Some(_)) if range.start() > 0 => {
            Err(Failure::wrong("the origin ignored the range"))
        }
        (Some(range), Some(all)) => {
            let cut = range.clip(size);
            Ok((cut, size, cut != Some(all)))
        }
        (_, all) => Ok((all, size, false)),
    }
}

fn content_length(head: &Head) -> Option<u64> {
    headers::text(&head.headers, CONTENT_LENGTH)?.parse().ok()
}

fn content_range(head: &Head) -> Result<Option<ContentRange>, Failure> {
    match headers::text(&head.headers, CONTENT_RANGE) {
        None => Ok(None),
        Some(value) => match ContentRange::parse(value) {
            Some(range) => Ok(Some(range)),
            None => Err(Failure::wrong("a malformed Content-Range")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, examine};
    use crate::s3::probe::Head;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use larder_model::{ByteRange, ETag};

    fn head(status: u16, headers: &[(&'static str, &'static str)]) -> Head {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Head { status, headers: map }
    }

    fn ask(range: Option<(u64, u64)>) -> Wanted {
        Wanted { range: range.and_then(|(a, b)| ByteRange::new(a, b)), ..Wanted::default() }
    }

    #[test]
    fn a_range_is_clipped_to_the_object() {
        let answer = head(206, &[("content-range", "bytes 4-9/10"), ("content-length", "6")]);
        let found = examine(&answer, &ask(Some((4, 100)))).unwrap();
        assert_eq!(found.range, ByteRange::new(4, 10));
        assert_eq!(found.meta.size, 10);
    }

    #[test]
    fn other_bytes_than_asked_for_are_refused() {
        for range in ["bytes 5-9/10", "bytes 4-8/10", "bytes 4-9/*", "bytes 4-10/10"] {
            let answer = Head {
                status: 206,
                headers: [(http::header::CONTENT_RANGE, HeaderValue::from_static(range))]
                    .into_iter()
                    .collect(),
            };
            assert!(examine(&answer, &ask(Some((4, 10)))).is_err(), "{range}");
        }
        assert!(examine(&head(206, &[]), &ask(Some((4, 10)))).is_err());
    }

    #[test]
    fn an_ignored_range_is_cut_from_the_beginning_only() {
        let answer = head(200, &[("content-length", "10")]);
        let found = examine(&answer, &ask(Some((0, 4)))).unwrap();
        assert_eq!((found.range, found.overlong), (ByteRange::new(0, 4), true));
        assert!(!examine(&answer, &ask(Some((0, 40)))).unwrap().overlong);
        assert!(examine(&answer, &ask(Some((1, 4)))).is_err());
        let empty = head(200, &[("content-length", "0")]);
        assert_eq!(examine(&empty, &ask(Some((0, 4)))).unwrap().range, None);
    }

    #[test]
    fn the_tag_must_match_byte_for_byte() {
        let answer = head(200, &[("content-length", "1"), ("etag", "\"AB\"")]);
        let wanted = |tag: &str| Wanted { if_match: ETag::new(tag), ..Wanted::default() };
        assert!(examine(&answer, &wanted("\"AB\"")).is_ok());
        assert!(examine(&answer, &wanted("\"ab\"")).is_err());
        assert!(examine(&head(200, &[("content-length", "1")]), &wanted("\"ab\"")).is_err());
    }
}
