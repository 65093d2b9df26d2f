//! The checksums that S3 knows, and the two ways in which those of an upload's parts make one of the
//! object (S3 User Guide, "Checking object integrity").

use aws_smithy_types::base64;
use crc_fast::{CrcAlgorithm, checksum_combine};
use http::{HeaderMap, HeaderValue};
use ring::digest;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

/// How a checksum is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    pub(super) const ALL: [Self; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As `x-amz-checksum-algorithm` has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The header that holds one.
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub(super) fn of_header(header: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header() == header)
    }

    /// The XML element that holds one.
    pub(super) fn element(self) -> String {
        format!("Checksum{}", self.name())
    }

    fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }
}

/// What of an uploaded object a checksum is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    /// The checksums of its parts.
    Composite,
    /// Its bytes.
    FullObject,
}

impl Kind {
    /// As `x-amz-checksum-type` has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Composite => "COMPOSITE",
            Self::FullObject => "FULL_OBJECT",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        [Self::Composite, Self::FullObject].into_iter().find(|kind| kind.name() == name)
    }

    /// What S3 takes when the upload does not say; only CRCs can be joined to one of the object.
    pub(super) fn default_of(algorithm: Algorithm) -> Self {
        if algorithm == Algorithm::Crc64Nvme { Self::FullObject } else { Self::Composite }
    }

    pub(super) fn goes_with(self, algorithm: Algorithm) -> bool {
        match self {
            Self::Composite => algorithm != Algorithm::Crc64Nvme,
            Self::FullObject => algorithm.crc().is_some(),
        }
    }
}

/// A checksum of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Checksum {
    pub(super) algorithm: Algorithm,
    /// Big-endian, as long as the algorithm's.
    bytes: Vec<u8>,
}

impl Checksum {
    /// Reads a header's value; `None` when it is none of this algorithm.
    pub(super) fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        Self::new(algorithm, base64::decode(text).ok()?)
    }

    pub(super) fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() == algorithm.bytes()).then_some(Self { algorithm, bytes })
    }

    /// As a header's value.
    pub(super) fn text(&self) -> String {
        base64::encode(&self.bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn number(&self) -> u64 {
        self.bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    fn of_number(algorithm: Algorithm, number: u64) -> Self {
        let bytes = number.to_be_bytes();
        Self { algorithm, bytes: bytes[bytes.len().saturating_sub(algorithm.bytes())..].to_vec() }
    }
}

/// What is told of an object's checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectChecksum {
    pub(super) algorithm: Algorithm,
    pub(super) kind: Kind,
    /// With `-` and the number of parts behind a composite one.
    pub(super) text: String,
}

impl ObjectChecksum {
    /// Of an object that was not uploaded in parts.
    pub(super) fn whole(checksum: &Checksum) -> Self {
        Self { algorithm: checksum.algorithm, kind: Kind::FullObject, text: checksum.text() }
    }

    /// Of the parts, each with its length in bytes; `None` when they cannot be joined so.
    pub(super) fn joined(
        algorithm: Algorithm,
        kind: Kind,
        parts: &[(Checksum, u64)],
    ) -> Option<Self> {
        let text = match kind {
            Kind::Composite => {
                let mut hasher = Hasher::new(algorithm);
                parts.iter().for_each(|(part, _)| hasher.update(part.as_bytes()));
                format!("{}-{}", hasher.finish().text(), parts.len())
            }
            Kind::FullObject => {
                let crc = algorithm.crc()?;
                let join = |sum, (part, len): &(Checksum, u64)| {
                    checksum_combine(crc, sum, part.number(), *len)
                };
                let (first, rest) = parts.split_first()?;
                let sum = rest.iter().fold(first.0.number(), join);
                Checksum::of_number(algorithm, sum).text()
            }
        };
        Some(Self { algorithm, kind, text })
    }

    /// As the headers of an answer.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        if let Ok(text) = HeaderValue::from_str(&self.text) {
            headers.insert(self.algorithm.header(), text);
            headers.insert("x-amz-checksum-type", HeaderValue::from_static(self.kind.name()));
        }
    }
}

/// A checksum in the making.
pub(super) enum Hasher {
    Crc(Algorithm, crc_fast::Digest),
    Sha(Algorithm, digest::Context),
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm.crc() {
            Some(crc) => Self::Crc(algorithm, crc_fast::Digest::new(crc)),
            None if algorithm == Algorithm::Sha1 => {
                Self::Sha(algorithm, digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY))
            }
            None => Self::Sha(algorithm, digest::Context::new(&digest::SHA256)),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha(_, digest) => digest.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Checksum {
        match self {
            Self::Crc(algorithm, digest) => Checksum::of_number(algorithm, digest.finalize()),
            Self::Sha(algorithm, digest) => {
                Checksum { algorithm, bytes: digest.finish().as_ref().to_vec() }
            }
        }
    }
}

/// The checksum that a client says a body has.
#[derive(Clone, Debug)]
pub(super) enum Stated {
    /// Before the body.
    Header(Checksum),
    /// Behind it: filled when the body has ended.
    Trailer(Algorithm, Arc<OnceLock<HeaderValue>>),
}

impl Stated {
    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Header(checksum) => checksum.algorithm,
            Self::Trailer(algorithm, _) => *algorithm,
        }
    }

    /// What it says; `None` for a trailer that did not come, or holds no checksum.
    pub(super) fn value(&self) -> Option<Checksum> {
        match self {
            Self::Header(checksum) => Some(checksum.clone()),
            Self::Trailer(algorithm, value) => {
                Checksum::parse(*algorithm, value.get()?.to_str().ok()?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Checksum, Hasher, Kind, ObjectChecksum};

    fn sum(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
        let mut hasher = Hasher::new(algorithm);
        bytes.chunks(3).for_each(|piece| hasher.update(piece));
        hasher.finish()
    }

    /// The check values of the CRC catalogue, and the SHAs of FIPS 180's test, for other bytes.
    #[test]
    fn the_algorithms_are_the_standards() {
        let check = |algorithm, bytes: &[u8], hex: &str| {
            assert_eq!(hex::encode(sum(algorithm, bytes).as_bytes()), hex, "{algorithm:?}");
        };
        check(Algorithm::Crc32, b"123456789", "cbf43926");
        check(Algorithm::Crc32c, b"123456789", "e3069283");
        check(Algorithm::Crc64Nvme, b"123456789", "ae8b14860a799888");
        check(Algorithm::Sha1, b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(
            Algorithm::Sha256,
            b"abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        );
    }

    #[test]
    fn a_value_of_another_length_is_none() {
        assert!(Checksum::parse(Algorithm::Crc32, "y/Q5Jg==").is_some());
        for text in ["", "y/Q5", "y/Q5Jg==y/Q5Jg==", "?", "y/Q5Jg"] {
            assert_eq!(Checksum::parse(Algorithm::Crc32, text), None, "{text}");
        }
    }

    #[test]
    fn joined_crcs_are_those_of_the_joined_bytes() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let parts: Vec<_> = [&b"1234"[..], b"", b"56789"]
                .into_iter()
                .map(|part| (sum(algorithm, part), part.len() as u64))
                .collect();
            let joined = ObjectChecksum::joined(algorithm, Kind::FullObject, &parts).unwrap();
            assert_eq!(joined, ObjectChecksum::whole(&sum(algorithm, b"123456789")));
        }
        let sha = [(sum(Algorithm::Sha1, b"a"), 1)];
        assert_eq!(ObjectChecksum::joined(Algorithm::Sha1, Kind::FullObject, &sha), None);
    }

    #[test]
    fn a_composite_is_over_the_parts_own() {
        let parts = [b"a", b"b"].map(|part| (sum(Algorithm::Sha256, part), 1));
        let both: Vec<u8> = parts.iter().flat_map(|(part, _)| part.as_bytes().to_vec()).collect();
        let joined = ObjectChecksum::joined(Algorithm::Sha256, Kind::Composite, &parts).unwrap();
        assert_eq!(joined.text, format!("{}-2", sum(Algorithm::Sha256, &both).text()));
    }
}
