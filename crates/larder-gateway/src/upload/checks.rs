//! Digests of a body: what a client declared of it, computed as it comes and compared at its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use http::HeaderName;
use md5::{Digest as _, Md5};
use ring::digest;

/// Begins the names of the checksum headers.
pub(crate) const CHECKSUM_PREFIX: &str = "x-amz-checksum-";

/// The checksums that S3 takes ("Checking object integrity" in the S3 User Guide).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

/// What a body is held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promises {
    /// `x-amz-content-sha256`, where it is a digest.
    pub(crate) sha256: Option<[u8; 32]>,
    /// `Content-MD5`.
    pub(crate) md5: Option<[u8; 16]>,
    /// `x-amz-checksum-…`.
    pub(crate) checksum: Option<Promise>,
}

/// One checksum of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// In a header: its bytes.
    Header(Algorithm, Vec<u8>),
    /// In the trailer.
    Trailer(Algorithm),
}

/// Which promise a body breaks, and what was computed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// `x-amz-content-sha256`: promised and computed, in hexadecimal.
    Sha256(String, String),
    /// `Content-MD5`: promised and computed, in base64.
    Md5(String, String),
    /// A checksum.
    Checksum(Algorithm),
    /// A checksum whose text is none of its kind.
    Unreadable(Algorithm),
}

impl Algorithm {
    const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The algorithm behind the name of a header, in lower case.
    pub(crate) fn of_header(name: &str) -> Option<Self> {
        let suffix = name.strip_prefix(CHECKSUM_PREFIX)?;
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(suffix))
    }

    /// The name of its header.
    pub(crate) fn header(self) -> HeaderName {
        HeaderName::from_static(match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        })
    }

    /// S3's name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// Reads a header's value; `None` when it is no base64 or of another length.
    pub(crate) fn decode(self, value: &[u8]) -> Option<Vec<u8>> {
        let length = match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        };
        STANDARD.decode(value).ok().filter(|bytes| bytes.len() == length)
    }

    fn start(self) -> Sum {
        match self {
            Self::Crc32 => Sum::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc), 4),
            Self::Crc32c => Sum::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi), 4),
            Self::Crc64Nvme => Sum::Crc(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme), 8),
            Self::Sha1 => Sum::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Self::Sha256 => Sum::Sha(digest::Context::new(&digest::SHA256)),
        }
    }
}

impl Promise {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Header(algorithm, _) | Self::Trailer(algorithm) => *algorithm,
        }
    }
}

/// A checksum under way.
enum Sum {
    /// The digest, and how many of its last bytes count.
    Crc(crc_fast::Digest, usize),
    Sha(digest::Context),
}

impl Sum {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest, _) => digest.update(bytes),
            Self::Sha(context) => context.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc(digest, bytes) => {
                let whole = digest.finalize().to_be_bytes();
                whole.get(8 - bytes..).unwrap_or_default().to_vec()
            }
            Self::Sha(context) => context.finish().as_ref().to_vec(),
        }
    }
}

/// The promises of one body, and the digests under way.
pub(crate) struct Checks {
    promises: Promises,
    sha256: Option<digest::Context>,
    md5: Option<Md5>,
    sum: Option<Sum>,
}

impl Checks {
    /// Begins with an empty body.
    pub(crate) fn new(promises: Promises) -> Self {
        let sha256 = promises.sha256.map(|_| digest::Context::new(&digest::SHA256));
        let md5 = promises.md5.map(|_| Md5::new());
        let sum = promises.checksum.as_ref().map(|promise| promise.algorithm().start());
        Self { promises, sha256, md5, sum }
    }

    /// Takes the next bytes of the body.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
    }

    /// Compares at the body's end. `trailer` is the value that came behind it.
    pub(crate) fn finish(self, trailer: Option<&str>) -> Result<(), Mismatch> {
        if let (Some(promised), Some(context)) = (self.promises.sha256, self.sha256) {
            let computed = context.finish();
            if computed.as_ref() != promised {
                return Err(Mismatch::Sha256(hex::encode(promised), hex::encode(computed)));
            }
        }
        if let (Some(promised), Some(md5)) = (self.promises.md5, self.md5) {
            let computed: [u8; 16] = md5.finalize().into();
            if computed != promised {
                return Err(Mismatch::Md5(STANDARD.encode(promised), STANDARD.encode(computed)));
            }
        }
        let (Some(promise), Some(sum)) = (self.promises.checksum, self.sum) else { return Ok(()) };
        let algorithm = promise.algorithm();
        let promised = match promise {
            Promise::Header(_, value) => value,
            Promise::Trailer(_) => {
                let value = trailer.and_then(|text| algorithm.decode(text.as_bytes()));
                value.ok_or(Mismatch::Unreadable(algorithm))?
            }
        };
        if sum.finish() == promised { Ok(()) } else { Err(Mismatch::Checksum(algorithm)) }
    }
}

/// The value of `Content-MD5` for a body.
pub(crate) fn content_md5(body: &[u8]) -> String {
    STANDARD.encode(Md5::digest(body))
}

/// Reads `Content-MD5`.
pub(crate) fn decode_md5(value: &[u8]) -> Option<[u8; 16]> {
    STANDARD.decode(value).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Checks, Mismatch, Promise, Promises, content_md5, decode_md5};

    fn check(algorithm: Algorithm, text: &str) {
        let promise = || Promises {
            checksum: Some(Promise::Header(algorithm, algorithm.decode(text.as_bytes()).unwrap())),
            ..Promises::default()
        };
        let mut checks = Checks::new(promise());
        checks.update(b"12345");
        checks.update(b"6789");
        assert_eq!(checks.finish(None), Ok(()), "{algorithm:?}");
        let mut checks = Checks::new(promise());
        checks.update(b"12345678");
        assert_eq!(checks.finish(None), Err(Mismatch::Checksum(algorithm)));
        let trailer =
            Promises { checksum: Some(Promise::Trailer(algorithm)), ..Promises::default() };
        let mut checks = Checks::new(trailer);
        checks.update(b"123456789");
        assert_eq!(checks.finish(Some(text)), Ok(()));
        assert_eq!(Algorithm::of_header(algorithm.header().as_str()), Some(algorithm));
    }

    #[test]
    fn checksums_are_those_of_the_catalogue() {
        // The check values of "123456789" in the catalogue of parametrised CRC algorithms.
        check(Algorithm::Crc32, "y/Q5Jg==");
        check(Algorithm::Crc32c, "4waSgw==");
        check(Algorithm::Crc64Nvme, "rosUhgp5mIg=");
        check(Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE=");
        check(Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=");
        assert_eq!(Algorithm::of_header("x-amz-checksum-type"), None);
        assert_eq!(Algorithm::Crc32.decode(b"y/Q5Jg"), None, "no padding");
        assert_eq!(Algorithm::Crc32.decode(b"rosUhgp5mIg="), None, "too long");
    }

    #[test]
    fn the_digests_of_the_headers_are_compared() {
        let md5 = decode_md5(content_md5(b"abc").as_bytes()).unwrap();
        let mut checks = Checks::new(Promises { md5: Some(md5), ..Promises::default() });
        checks.update(b"abd");
        assert!(matches!(checks.finish(None), Err(Mismatch::Md5(..))));
        let mut checks = Checks::new(Promises { sha256: Some([0; 32]), ..Promises::default() });
        checks.update(b"abc");
        let Err(Mismatch::Sha256(_, computed)) = checks.finish(None) else { panic!("passed") };
        assert_eq!(computed, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(content_md5(b"abc"), "kAFQmDzST7DWlj99KOF/cg==");
        assert_eq!(decode_md5(b"kAFQmDzST7DWlj99KOF/"), None);
    }
}
