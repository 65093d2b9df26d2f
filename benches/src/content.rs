//! The content of every object in the benches: a pure function of (key, offset).
//!
//! A key names its own size: `SIZE/REST`, so that an origin answers for any key without having been told of it,
//! and a reader can check any byte without having kept a copy. This is not random data for a compressor; it
//! exists so that shifted, mixed or foreign bytes are noticed.

use std::ops::Range;

use bytes::Bytes;

/// The bytes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    size_bytes: u64,
}

impl Content {
    /// The content that `key` names, or `None` if the key does not begin with `SIZE/`.
    #[must_use]
    pub fn of(key: &str) -> Option<Self> {
        let (size, _) = key.split_once('/')?;
        let size_bytes = size.parse().ok()?;
        // FNV-1a, 64 bits: stable over releases of the standard library, which its own hasher is not.
        let seed = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Some(Self { seed, size_bytes })
    }

    /// The object's size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The entity tag, with its quotes.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{:016x}\"", self.seed)
    }

    /// The bytes of `range`, which is cut at the object's end.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> Bytes {
        let end = range.end.min(self.size_bytes);
        if range.start >= end {
            return Bytes::new();
        }
        let first = range.start / 8;
        let words = end.div_ceil(8) - first;
        let mut out = vec![0; words as usize * 8];
        for (word, index) in out.chunks_exact_mut(8).zip(first..) {
            word.copy_from_slice(&self.word(index).to_le_bytes());
        }
        let lead = (range.start - first * 8) as usize;
        Bytes::from(out).slice(lead..lead + (end - range.start) as usize)
    }

    /// Where `got`, which claims to start at `offset`, differs first from this content.
    #[must_use]
    pub fn difference(&self, offset: u64, got: &[u8]) -> Option<u64> {
        let want = self.bytes(offset..offset + got.len() as u64);
        if want == got {
            return None;
        }
        let same = want.iter().zip(got).take_while(|(a, b)| a == b).count();
        Some(offset + same as u64)
    }

    /// Word `index` of the object (splitmix64, Steele et al. 2014).
    fn word(&self, index: u64) -> u64 {
        let z = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(key: &str) -> Content {
        Content::of(key).expect("a key that names its size")
    }

    #[test]
    fn any_range_is_a_slice_of_the_whole() {
        let it = content("1003/a");
        let whole = it.bytes(0..1003);
        assert_eq!(whole.len(), 1003);
        for (start, end) in [(0, 1), (3, 11), (7, 8), (8, 16), (999, 1003), (5, 5)] {
            assert_eq!(it.bytes(start..end), whole.slice(start as usize..end as usize));
        }
        assert_eq!(it.bytes(1000..9000).len(), 3);
        assert!(it.bytes(2000..3000).is_empty());
    }

    #[test]
    fn other_keys_and_other_places_hold_other_bytes() {
        let it = content("4096/a");
        assert_ne!(it.bytes(0..64), content("4096/b").bytes(0..64));
        assert_ne!(it.bytes(0..64), it.bytes(64..128));
        assert_ne!(it.etag(), content("4096/b").etag());
    }

    #[test]
    fn a_changed_byte_is_found_where_it_is() {
        let it = content("4096/a");
        let mut bytes = it.bytes(100..200).to_vec();
        assert_eq!(it.difference(100, &bytes), None);
        bytes[17] ^= 1;
        assert_eq!(it.difference(100, &bytes), Some(117));
        assert_eq!(it.difference(4095, &[it.bytes(4095..4096)[0], 0]), Some(4096));
    }

    #[test]
    fn a_key_without_a_size_has_no_content() {
        for key in ["a", "x/1", "", "/1", "-1/a"] {
            assert_eq!(Content::of(key), None, "{key}");
        }
    }
}
