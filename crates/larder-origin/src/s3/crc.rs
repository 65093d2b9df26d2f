//! OSS tells the CRC-64 of the whole object with each answer (OSS API, "Use CRC-64 to check data
//! integrity"): CRC-64/XZ, as a decimal number, also for objects of several parts.

use crate::headers;
use crc_fast::{CrcAlgorithm, Digest};
use larder_model::{ByteRange, ObjectMeta};

const HEADER: &str = "x-oss-hash-crc64ecma";

/// A body that is checked as it goes by.
pub(super) struct Check {
    digest: Digest,
    expected: u64,
}

impl Check {
    /// `None` where nothing is told, or the body is not the whole object.
    pub(super) fn of(meta: &ObjectMeta, range: Option<ByteRange>) -> Option<Self> {
        let whole = range? == ByteRange::new(0, meta.size)?;
        let expected = headers::text(&meta.headers, HEADER)?.parse().ok()?;
        whole.then(|| Self { digest: Digest::new(CrcAlgorithm::Crc64Xz), expected })
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
    }

    /// Whether all that went by is what the origin has stored.
    pub(super) fn holds(&self) -> bool {
        self.digest.finalize() == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::Check;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use larder_model::{ByteRange, ObjectMeta};

    fn check(size: u64, range: Option<(u64, u64)>, told: &'static str) -> Option<Check> {
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("x-oss-hash-crc64ecma");
        headers.insert(name, HeaderValue::from_static(told));
        let meta = ObjectMeta { size, etag: None, version_id: None, headers };
        Check::of(&meta, range.and_then(|(start, end)| ByteRange::new(start, end)))
    }

    #[test]
    fn the_check_value_of_the_catalogue_holds() {
        // CRC-64/XZ of "123456789" is 995dc9bbdf1939fa (catalogue of parametrised CRC algorithms).
        let mut whole = check(9, Some((0, 9)), "11051210869376104954").unwrap();
        whole.update(b"12345");
        assert!(!whole.holds());
        whole.update(b"6789");
        assert!(whole.holds());
    }

    #[test]
    fn only_whole_objects_are_checked() {
        assert!(check(9, Some((0, 8)), "1").is_none());
        assert!(check(9, Some((1, 9)), "1").is_none());
        assert!(check(0, None, "0").is_none());
        assert!(check(9, Some((0, 9)), "none").is_none());
    }
}
