//! The content oracle: each little-endian word of eight bytes of a test object is a function of
//! (key, version, place), so that a reader finds the version from any word and checks every other
//! byte with it, without having kept a copy.
//!
//! Invariant: bytes of another key, another place or two versions are told apart from good ones; a
//! single foreign word passes by chance once in 2³².

use std::fmt;

/// The bytes of a word.
const WORD: u64 = 8;

/// The content of one key in all its versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Oracle {
    seed: u64,
}

/// What is wrong with bytes that were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A word that no version of this key holds at this place.
    Foreign {
        /// The offset of the word in the object.
        at: u64,
    },
    /// Words of two versions.
    Mixed {
        /// The offset of the first word of the second version.
        at: u64,
        /// The version before it.
        first: u32,
        /// The version there.
        second: u32,
    },
    /// Not one whole word, so the version cannot be told.
    Short,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { at } => write!(f, "foreign or shifted bytes at {at}"),
            Self::Mixed { at, first, second } => {
                write!(f, "version {first} up to {at}, version {second} from there")
            }
            Self::Short => write!(f, "too few bytes to tell the version"),
        }
    }
}

impl std::error::Error for Wrong {}

impl Oracle {
    /// The content of a key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        // FNV-1a: the same in every release, which the standard library's hasher is not.
        let seed = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { seed }
    }

    /// The whole object at one version.
    #[must_use]
    pub fn body(self, version: u32, size: u64) -> Vec<u8> {
        self.slice(version, 0, size)
    }

    /// `len` bytes from `offset`.
    #[must_use]
    pub fn slice(self, version: u32, offset: u64, len: u64) -> Vec<u8> {
        let first = offset / WORD;
        let last = (offset + len).div_ceil(WORD);
        let words = (first..last).flat_map(|index| self.word(version, index).to_le_bytes());
        words.skip((offset % WORD) as usize).take(len as usize).collect()
    }

    /// A reader of bytes from `offset` on, piece by piece.
    #[must_use]
    pub fn reader(self, offset: u64) -> Reader {
        Reader { oracle: self, offset, version: None, pending: Vec::new() }
    }

    /// The version of bytes that were read from `offset`.
    pub fn check(self, offset: u64, bytes: &[u8]) -> Result<u32, Wrong> {
        let mut reader = self.reader(offset);
        reader.push(bytes)?;
        reader.close()
    }

    /// What is mixed into the word at an index. The version itself stays below 2³², so the upper
    /// half of what remains tells a word from noise.
    fn mask(self, index: u64) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014).
        let z = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn word(self, version: u32, index: u64) -> u64 {
        self.mask(index) ^ u64::from(version)
    }

    fn version(self, word: u64, index: u64) -> Option<u32> {
        u32::try_from(word ^ self.mask(index)).ok()
    }
}

/// Checks bytes as they come.
#[derive(Clone, Debug)]
pub struct Reader {
    oracle: Oracle,
    /// Of the next byte that has not been checked, `pending` included.
    offset: u64,
    version: Option<u32>,
    /// Bytes before the first whole word, and of a word that is not whole yet.
    pending: Vec<u8>,
}

impl Reader {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let lead = self.offset.next_multiple_of(WORD) - self.offset;
        if self.pending.is_empty() && self.version.is_some() && lead == 0 {
            return self.words(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        if (pending.len() as u64) < lead + WORD {
            // Not one whole word yet. A known version checks its part of a word at the close.
            self.pending = pending;
            return Ok(());
        }
        let (head, rest) = pending.split_at(lead as usize);
        let start = self.offset;
        self.offset += lead;
        self.words(rest)?;
        // The version is known now, so the bytes before the first whole word can be checked.
        let Some(version) = self.version else { return Err(Wrong::Short) };
        self.part(version, start, head)
    }

    /// All bytes are there: the version of all of them.
    pub fn close(self) -> Result<u32, Wrong> {
        let version = self.version.ok_or(Wrong::Short)?;
        self.part(version, self.offset, &self.pending)?;
        Ok(version)
    }

    /// Bytes from a word's beginning on; what is not a whole word is kept for later.
    fn words(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let whole = bytes.chunks_exact(WORD as usize);
        let rest = whole.remainder();
        for word in whole {
            let mut array = [0; WORD as usize];
            array.copy_from_slice(word);
            let (word, at) = (u64::from_le_bytes(array), self.offset);
            let found = self.oracle.version(word, at / WORD).ok_or(Wrong::Foreign { at })?;
            match self.version {
                None => self.version = Some(found),
                Some(first) if first == found => {}
                Some(first) => return Err(Wrong::Mixed { at, first, second: found }),
            }
            self.offset += WORD;
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    fn part(&self, version: u32, at: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let good = self.oracle.slice(version, at, bytes.len() as u64) == bytes;
        if good { Ok(()) } else { Err(Wrong::Foreign { at }) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Oracle, Wrong};

    const KEY: &str = "a/key";

    #[test]
    fn good_bytes_tell_their_version() {
        let oracle = Oracle::of(KEY);
        let body = oracle.body(7, 1003);
        assert_eq!(body.len(), 1003);
        assert_eq!(oracle.check(0, &body), Ok(7));
        assert_eq!(oracle.check(3, &body[3..500]), Ok(7));
        assert_eq!(oracle.check(995, &body[995..]), Err(Wrong::Short));
        assert_eq!(oracle.check(990, &body[990..]), Ok(7));
    }

    #[test]
    fn a_slice_is_a_part_of_the_whole() {
        let oracle = Oracle::of(KEY);
        let body = oracle.body(1, 100);
        for (offset, len) in [(0, 100), (1, 7), (8, 8), (13, 80), (99, 1), (5, 0)] {
            let end = (offset + len) as usize;
            assert_eq!(oracle.slice(1, offset, len), body[offset as usize..end]);
        }
    }

    #[test]
    fn two_versions_in_one_body_are_named() {
        let oracle = Oracle::of(KEY);
        let mut body = oracle.body(1, 64);
        body[40..].copy_from_slice(&oracle.slice(2, 40, 24));
        assert_eq!(oracle.check(0, &body), Err(Wrong::Mixed { at: 40, first: 1, second: 2 }));
    }

    #[test]
    fn a_few_bytes_tell_nothing() {
        assert_eq!(Oracle::of(KEY).check(0, &[]), Err(Wrong::Short));
        assert_eq!(Oracle::of(KEY).check(0, &[1, 2, 3]), Err(Wrong::Short));
    }
}
