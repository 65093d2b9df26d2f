//! What foyer is given to keep: a key of 128 bits, and a sealed block as it is.

use foyer::Code;
use larder_model::{Block, BlockKey};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::io::{Read, Write};

/// A block's key, as foyer stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryKey(pub(crate) BlockKey);

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash64());
    }
}

impl Code for EntryKey {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        writer.write_all(&self.0.to_bits().to_le_bytes()).map_err(foyer::Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> foyer::Result<Self> {
        let mut bits = [0; 16];
        reader.read_exact(&mut bits).map_err(foyer::Error::io_error)?;
        Ok(Self(BlockKey::from_bits(u128::from_le_bytes(bits))))
    }

    fn estimated_size(&self) -> usize {
        16
    }
}

/// Passes 64 bits through: a block key is a digest already. The same in every process, as the
/// index on the SSD needs it to be.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct KeyHasher(u64);

/// Builds [`KeyHasher`]s.
pub(crate) type KeyHash = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

/// A block, as foyer stores it.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Verified. Nothing else is ever in memory.
    Open(Block),
    /// Just decoded. foyer's decoder knows neither budget nor pool, so the engine around foyer's
    /// ([`super::disk`]) verifies and counts it before anybody else sees it.
    Raw(Vec<u8>),
}

impl Entry {
    fn sealed(&self) -> &[u8] {
        match self {
            Self::Open(block) => block.sealed(),
            Self::Raw(bytes) => bytes,
        }
    }

    /// The block, if it has been verified.
    pub(crate) fn block(&self) -> Option<&Block> {
        match self {
            Self::Open(block) => Some(block),
            Self::Raw(_) => None,
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.sealed().len()
    }
}

impl Code for Entry {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        writer.write_all(self.sealed()).map_err(foyer::Error::io_error)
    }

    /// Takes all that the reader has: foyer hands in exactly the value. For a slice this is one
    /// allocation and one copy, the only one beyond the buffer that the device filled.
    fn decode(reader: &mut impl Read) -> foyer::Result<Self> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(foyer::Error::io_error)?;
        Ok(Self::Raw(bytes))
    }

    fn estimated_size(&self) -> usize {
        self.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, EntryKey, KeyHash};
    use foyer::Code;
    use larder_model::{Block, BlockKey, Reserve};
    use std::hash::BuildHasher;

    #[test]
    fn a_key_is_read_back_as_it_was_written() {
        let key = EntryKey(BlockKey::from_bits(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210));
        let mut bytes = Vec::new();
        key.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), key.estimated_size());
        assert_eq!(EntryKey::decode(&mut bytes.as_slice()).unwrap(), key);
    }

    #[test]
    fn the_hash_of_a_key_is_its_own() {
        let key = BlockKey::from_bits(77 << 64 | 5);
        assert_eq!(KeyHash::default().hash_one(EntryKey(key)), key.hash64());
    }

    #[test]
    fn a_block_is_written_as_it_was_sealed() {
        let key = BlockKey::from_bits(9);
        let block = Block::seal(key, &[b"some bytes"[..].into()], Reserve::none());
        let mut bytes = Vec::new();
        Entry::Open(block.clone()).encode(&mut bytes).unwrap();
        assert_eq!(&bytes, block.sealed());
        let decoded = Entry::decode(&mut bytes.as_slice()).unwrap();
        assert!(decoded.block().is_none());
        assert_eq!(decoded.weight(), block.sealed().len());
    }
}
