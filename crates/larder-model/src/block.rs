//! Blocks: sealed, checksummed pieces of one object at one version.
//!
//! Invariant: the only ways to a [`Block`] are [`Block::seal`], from bytes that just arrived from
//! the origin, and [`Block::open`], which checks stored or received bytes against the key they were
//! asked under. Keys are immutable: a changed object simply has other keys.

use crate::{DatasetName, ObjectName, Reserve, Version};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Range;
use twox_hash::XxHash3_128;

/// The bytes that one checksum covers, so that a receiver can verify while it streams.
pub const CHUNK_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 4] = *b"LRDB";
const FORMAT: u16 = 1;
const FIXED_BYTES: usize = 32;
const CRC_BYTES: usize = 4;

/// The digest of (dataset, name, version, size, block length) from which the block keys of one pinned
/// object derive.
///
/// SHA-256, cut to 128 bits: names and tags may be chosen by somebody who would like two objects to
/// share their blocks, so a fast hash without collision resistance would not do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectDigest(u128);

impl ObjectDigest {
    /// Each field goes in behind its length, so no two tuples run into the same bytes.
    #[must_use]
    pub fn new(
        dataset: &DatasetName,
        name: &ObjectName,
        version: &Version,
        size: u64,
        block_bytes: u32,
    ) -> Self {
        let mut hash = Sha256::new();
        let mut field = |tag: u8, bytes: &[u8]| {
            hash.update([tag]);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(b'd', dataset.as_str().as_bytes());
        field(b'o', name.origin.as_str().as_bytes());
        field(b'b', name.bucket.as_str().as_bytes());
        field(b'k', name.key.as_str().as_bytes());
        // With and without `versionId` in the request, the object table knows an object twice; so
        // must the store, or one would take the other's blocks away.
        if let Some(id) = &name.version_id {
            field(b'v', id.as_str().as_bytes());
        }
        match version {
            Version::Id(id) => field(b'i', id.as_str().as_bytes()),
            Version::Content { etag, .. } => field(b'e', etag.as_str().as_bytes()),
        }
        field(b's', &size.to_le_bytes());
        field(b'l', &block_bytes.to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(u128::from_le_bytes(half))
    }

    /// The key of block `index`.
    #[must_use]
    pub fn block(self, index: u64) -> BlockKey {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.0.to_le_bytes());
        bytes[16..].copy_from_slice(&index.to_le_bytes());
        BlockKey(XxHash3_128::oneshot(&bytes))
    }
}

/// The name of a block in every store and on the wire: 128 bits that stand for dataset,
/// pinned object, block length and index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(u128);

impl BlockKey {
    /// The key whose bits these are, as stored by an adapter.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, for an adapter to store.
    #[must_use]
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// 64 of the bits; uniformly distributed.
    #[must_use]
    pub fn hash64(self) -> u64 {
        (self.0 >> 64) as u64 ^ self.0 as u64
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Sealed bytes that were not what their key promises. Always treated as a miss, always counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// Shorter or longer than its header says, or than a header is.
    #[error("the sealed block is truncated or overlong")]
    Length,
    /// Not a block of this format.
    #[error("the sealed block does not begin with a header of this format")]
    Header,
    /// A good block, but of another key.
    #[error("the sealed block belongs to another key")]
    Key,
    /// The bytes of this chunk are not those that were sealed.
    #[error("chunk {0} of the sealed block fails its checksum")]
    Chunk(usize),
}

/// Bytes of one block, verified, with the header that lets any later reader verify them again.
///
/// Cloning shares the memory. The [`Reserve`] for that memory lives inside and is given back when
/// the last slice of it is dropped, wherever that slice went.
///
/// Sealed form, little endian: magic `LRDB`, format (u16), reserved (u16), key (u128), data length
/// (u32), chunk length (u32), CRC-32C of each chunk, CRC-32C of all the preceding; then the data.
#[derive(Clone)]
#[must_use]
pub struct Block {
    key: BlockKey,
    sealed: Bytes,
    data: Range<usize>,
}

/// The memory of a block together with the budget's record of it.
struct Owned {
    bytes: Vec<u8>,
    _reserve: Reserve,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Block {
    /// Seals bytes that arrived from the origin under `key`. Copies them once, into one piece.
    ///
    /// `reserve` should cover [`Block::sealed_bytes`] of the data's length.
    ///
    /// # Panics
    ///
    /// When the frames hold no byte, or 4 GiB and more: the layout does not make such blocks.
    pub fn seal(key: BlockKey, frames: &[Bytes], reserve: Reserve) -> Self {
        let len: usize = frames.iter().map(Bytes::len).sum();
        assert!(len > 0 && u32::try_from(len).is_ok(), "a block of {len} bytes");
        let header = header_bytes(len);
        let mut bytes = Vec::with_capacity(header + len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&key.0.to_le_bytes());
        bytes.extend_from_slice(&(len as u32).to_le_bytes());
        bytes.extend_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        bytes.resize(header, 0);
        for frame in frames {
            bytes.extend_from_slice(frame);
        }
        let (head, data) = bytes.split_at_mut(header);
        for (slot, chunk) in
            head[FIXED_BYTES..].chunks_exact_mut(CRC_BYTES).zip(data.chunks(CHUNK_BYTES))
        {
            slot.copy_from_slice(&crc32c::crc32c(chunk).to_le_bytes());
        }
        let last = header - CRC_BYTES;
        let crc = crc32c::crc32c(&head[..last]);
        head[last..].copy_from_slice(&crc.to_le_bytes());
        let sealed = Bytes::from_owner(Owned { bytes, _reserve: reserve });
        Self { key, data: header..sealed.len(), sealed }
    }

    /// Verifies sealed bytes that came from a disk or a peer: header, key, length and each chunk.
    pub fn open(key: BlockKey, sealed: Vec<u8>, reserve: Reserve) -> Result<Self, Corrupt> {
        let found = verify(&sealed)?;
        if found != key {
            return Err(Corrupt::Key);
        }
        Self::from_verified(key, sealed, reserve)
    }

    /// Like [`Block::open`] where the key is not yet known, as in a store's decoder: the caller
    /// must compare [`Block::key`] with the one it asked for before it serves a byte.
    pub fn open_any(sealed: Vec<u8>, reserve: Reserve) -> Result<Self, Corrupt> {
        let key = verify(&sealed)?;
        Self::from_verified(key, sealed, reserve)
    }

    fn from_verified(key: BlockKey, bytes: Vec<u8>, reserve: Reserve) -> Result<Self, Corrupt> {
        let len = data_len(&bytes).ok_or(Corrupt::Length)?;
        let sealed = Bytes::from_owner(Owned { bytes, _reserve: reserve });
        Ok(Self { key, data: header_bytes(len)..sealed.len(), sealed })
    }

    /// The key that the block was sealed under.
    #[must_use]
    pub fn key(&self) -> BlockKey {
        self.key
    }

    /// The object's bytes, sharing the block's memory.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.sealed.slice(self.data.clone())
    }

    /// How many of the object's bytes the block holds; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Header and data in one piece, as a store writes it and a peer receives it.
    #[must_use]
    pub fn sealed(&self) -> &Bytes {
        &self.sealed
    }

    /// The sealed length of a block of `len` bytes of data.
    #[must_use]
    pub fn sealed_bytes(len: usize) -> usize {
        header_bytes(len) + len
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}, {} bytes)", self.key, self.len())
    }
}

fn header_bytes(len: usize) -> usize {
    FIXED_BYTES + len.div_ceil(CHUNK_BYTES) * CRC_BYTES + CRC_BYTES
}

fn data_len(sealed: &[u8]) -> Option<usize> {
    Some(u32_at(sealed, 24)? as usize)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Checks everything and tells whose block it is.
fn verify(sealed: &[u8]) -> Result<BlockKey, Corrupt> {
    if sealed.len() < FIXED_BYTES + CRC_BYTES {
        return Err(Corrupt::Length);
    }
    if sealed[..4] != MAGIC || sealed[4..6] != FORMAT.to_le_bytes() {
        return Err(Corrupt::Header);
    }
    let len = data_len(sealed).ok_or(Corrupt::Length)?;
    if len == 0 || Some(CHUNK_BYTES as u32) != u32_at(sealed, 28) {
        return Err(Corrupt::Header);
    }
    let header = header_bytes(len);
    if sealed.len() != header + len {
        return Err(Corrupt::Length);
    }
    let (head, data) = sealed.split_at(header);
    let last = header - CRC_BYTES;
    if Some(crc32c::crc32c(&head[..last])) != u32_at(head, last) {
        return Err(Corrupt::Header);
    }
    let crcs = head[FIXED_BYTES..last].chunks_exact(CRC_BYTES);
    for (index, (crc, chunk)) in crcs.zip(data.chunks(CHUNK_BYTES)).enumerate() {
        if crc32c::crc32c(chunk).to_le_bytes() != crc {
            return Err(Corrupt::Chunk(index));
        }
    }
    let mut bits = [0; 16];
    bits.copy_from_slice(&head[8..24]);
    Ok(BlockKey(u128::from_le_bytes(bits)))
}

#[cfg(test)]
mod tests {
    use super::{Block, BlockKey, CHUNK_BYTES, Corrupt, ObjectDigest};
    use crate::{
        BucketName, DatasetName, ETag, ObjectKey, ObjectName, OriginName, Reserve, Version,
    };
    use bytes::Bytes;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    const KEY: BlockKey = BlockKey(0x0123_4567_89ab_cdef);

    fn seal(data: &[u8]) -> Block {
        let (a, b) = data.split_at(data.len() / 3);
        Block::seal(KEY, &[Bytes::copy_from_slice(a), Bytes::copy_from_slice(b)], Reserve::none())
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens(data in prop::collection::vec(any::<u8>(), 1..200_000)) {
            let block = seal(&data);
            prop_assert_eq!(&block.data()[..], &data[..]);
            prop_assert_eq!(block.sealed().len(), Block::sealed_bytes(data.len()));
            let opened = Block::open(KEY, block.sealed().to_vec(), Reserve::none());
            prop_assert_eq!(&opened.unwrap().data()[..], &data[..]);
        }

        #[test]
        fn any_flipped_bit_is_noticed(len in 1_usize..100_000, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut sealed = seal(&vec![7; len]).sealed().to_vec();
            let at = at.index(sealed.len());
            // The two reserved bytes are covered by the header's checksum as well.
            sealed[at] ^= 1_u8 << bit;
            prop_assert!(Block::open(KEY, sealed, Reserve::none()).is_err());
        }

        #[test]
        fn any_other_length_is_noticed(len in 1_usize..100_000, cut in any::<prop::sample::Index>()) {
            let sealed = seal(&vec![7; len]).sealed().to_vec();
            let short = sealed[..cut.index(sealed.len())].to_vec();
            prop_assert!(Block::open(KEY, short, Reserve::none()).is_err());
            let mut long = sealed;
            long.push(0);
            prop_assert!(Block::open(KEY, long, Reserve::none()).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Block::open_any(bytes, Reserve::none()).is_err());
        }
    }

    #[test]
    fn a_block_of_another_key_is_refused() {
        let sealed = seal(b"bytes").sealed().to_vec();
        let error = Block::open(BlockKey(1), sealed, Reserve::none()).unwrap_err();
        assert_eq!(error, Corrupt::Key);
    }

    #[test]
    fn the_damaged_chunk_is_named() {
        let mut sealed = seal(&vec![1; 3 * CHUNK_BYTES]).sealed().to_vec();
        let at = sealed.len() - CHUNK_BYTES - 1;
        sealed[at] ^= 1;
        assert_eq!(Block::open(KEY, sealed, Reserve::none()).unwrap_err(), Corrupt::Chunk(1));
    }

    #[test]
    fn every_field_of_the_digest_counts() {
        let name = |bucket: &str, key: &str| ObjectName {
            origin: OriginName::new("o").unwrap(),
            bucket: BucketName::new(bucket).unwrap(),
            key: ObjectKey::new(key).unwrap(),
            version_id: None,
        };
        let content = |tag: &str| Version::Content { etag: ETag::new(tag).unwrap(), size: 1 };
        let dataset = DatasetName::new("d").unwrap();
        let base = ObjectDigest::new(&dataset, &name("bbb", "k"), &content("t"), 1, 1024);
        let others = [
            ObjectDigest::new(&dataset, &name("bbbk", "k"), &content("t"), 1, 1024),
            ObjectDigest::new(&dataset, &name("bbb", "kk"), &content("t"), 1, 1024),
            ObjectDigest::new(&dataset, &name("bbb", "k"), &content("u"), 1, 1024),
            ObjectDigest::new(&dataset, &name("bbb", "k"), &content("t"), 2, 1024),
            ObjectDigest::new(&dataset, &name("bbb", "k"), &content("t"), 1, 2048),
            ObjectDigest::new(
                &DatasetName::new("p").unwrap(),
                &name("bbb", "k"),
                &content("t"),
                1,
                1024,
            ),
        ];
        assert!(others.iter().all(|other| *other != base));
        assert_ne!(base.block(0), base.block(1));
    }
}
