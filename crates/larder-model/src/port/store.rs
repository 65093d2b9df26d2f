//! The block store: memory and SSD, in pools.

use crate::{Block, BlockKey, PoolName};

/// Where bytes were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// In memory.
    Memory,
    /// On the SSD.
    Disk,
}

/// The answer to [`BlockStore::load`].
#[derive(Debug)]
pub enum Load {
    /// The block, verified against the key.
    Hit(Block, Tier),
    /// Not there.
    Miss,
    /// Something was there and failed verification; it has been dropped.
    Corrupt,
    /// The device failed. Whether the block is there is unknown.
    Failed,
}

/// The answer to [`BlockStore::store`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Confirmed on the SSD (in a pool without SSD: in memory).
    Kept,
    /// Not kept where it was to be kept: the device is too slow, full or failing. It may be in
    /// memory for a while.
    Dropped,
}

/// What one pool is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name; also the name of its folder.
    pub name: PoolName,
    /// Bytes of memory for hot blocks.
    pub memory_bytes: u64,
    /// Bytes of SSD that its residents may take, as [`BlockStore::stored_bytes`] counts; 0 for a
    /// pool in memory only. The device gets the slack that the store needs on top.
    pub disk_bytes: u64,
    /// The longest block that it must take.
    pub max_block_bytes: u32,
}

/// Keeps blocks. Every failure is a miss and a counter, never an error to a client.
///
/// The engine decides what is resident; the store decides memory versus SSD only. Keys are
/// immutable, so storing a key twice is harmless.
#[async_trait::async_trait]
pub trait BlockStore: Send + Sync + 'static {
    /// The block if it is in memory. Does no I/O and does not wait.
    fn peek(&self, pool: &PoolName, key: BlockKey) -> Option<Block>;

    /// The block from wherever it is.
    async fn load(&self, pool: &PoolName, key: BlockKey) -> Load;

    /// Keeps the block: in memory at once, and, in a pool with an SSD, there too; returns when the
    /// SSD has confirmed it. Waits for its turn when the device is behind, within a bound.
    ///
    /// Not cancel safe in one respect: a dropped call may or may not have stored.
    async fn store(&self, pool: &PoolName, block: Block) -> Stored;

    /// Forgets a block. Its space comes back in the background.
    fn remove(&self, pool: &PoolName, key: BlockKey);

    /// Whether a load would likely hit. Does no I/O; may rarely be wrong either way.
    fn contains(&self, pool: &PoolName, key: BlockKey) -> bool;

    /// After a restart: declares which blocks are resident, so that the store keeps them alive
    /// when it reclaims space, and tells which of them it really has, in the same order.
    async fn adopt(&self, pool: &PoolName, keys: Vec<BlockKey>) -> Vec<bool>;

    /// How many bytes of its tier of record (SSD, or memory where there is none) a block of `len`
    /// bytes of data takes in this pool.
    fn stored_bytes(&self, pool: &PoolName, len: u32) -> u64;

    /// Whether the pool has an SSD, so that its residents outlive the process.
    fn persistent(&self, pool: &PoolName) -> bool;

    /// Flushes and closes; called once, last.
    async fn close(&self);
}
