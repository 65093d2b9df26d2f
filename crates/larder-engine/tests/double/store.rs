//! In-memory doubles of what keeps things: a store that can lose and spoil blocks, and a catalog.

use larder_model::{
    Block, BlockKey, BlockStore, Catalog, CatalogChange, CatalogError, DatasetName, Load,
    ObjectName, ObjectRecord, PoolName, Reserve, Stored, Tier,
};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store: what is "on the SSD" survives a restart, what is in memory is a small part of it.
#[derive(Default)]
pub(crate) struct Shelves {
    disk: Mutex<HashMap<BlockKey, Vec<u8>>>,
    memory: Mutex<Vec<(BlockKey, Block)>>,
    /// Whether the next block to be stored meets a defect.
    pub(crate) panics: AtomicBool,
}

const MEMORY_BLOCKS: usize = 8;

impl Shelves {
    /// Loses, or spoils, the block at this place of an arbitrary but fixed order.
    pub(crate) fn harm(&self, at: usize, spoil: bool) {
        let mut disk = self.disk.lock().unwrap();
        let mut keys: Vec<_> = disk.keys().copied().collect();
        keys.sort_unstable();
        if keys.is_empty() {
            return;
        }
        let key = keys[at % keys.len()];
        self.memory.lock().unwrap().retain(|(other, _)| *other != key);
        match disk.get_mut(&key) {
            Some(bytes) if spoil => {
                let at = bytes.len() / 2;
                bytes[at] ^= 0x40;
            }
            _ => {
                disk.remove(&key);
            }
        }
    }

    /// What a restart leaves.
    pub(crate) fn restart(&self) {
        self.memory.lock().unwrap().clear();
    }

    /// Bytes of the blocks that are held in memory, from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.lock().unwrap().iter().map(|(_, block)| block.sealed().len() as u64).sum()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.disk.lock().unwrap().len()
    }
}

#[async_trait::async_trait]
impl BlockStore for Shelves {
    fn peek(&self, _pool: &PoolName, key: BlockKey) -> Option<Block> {
        let memory = self.memory.lock().unwrap();
        memory.iter().find(|(other, _)| *other == key).map(|(_, block)| block.clone())
    }

    async fn load(&self, pool: &PoolName, key: BlockKey) -> Load {
        tokio::task::yield_now().await;
        if let Some(block) = self.peek(pool, key) {
            return Load::Hit(block, Tier::Memory);
        }
        let Some(bytes) = self.disk.lock().unwrap().get(&key).cloned() else { return Load::Miss };
        match Block::open(key, bytes, Reserve::none()) {
            Ok(block) => Load::Hit(block, Tier::Disk),
            Err(_) => {
                self.disk.lock().unwrap().remove(&key);
                Load::Corrupt
            }
        }
    }

    async fn store(&self, _pool: &PoolName, block: Block) -> Stored {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a defect of the store, on purpose");
        {
            let mut memory = self.memory.lock().unwrap();
            memory.push((block.key(), block.clone()));
            if memory.len() > MEMORY_BLOCKS {
                drop(memory.remove(0));
            }
        }
        tokio::task::yield_now().await;
        self.disk.lock().unwrap().insert(block.key(), block.sealed().to_vec());
        Stored::Kept
    }

    fn remove(&self, _pool: &PoolName, key: BlockKey) {
        self.memory.lock().unwrap().retain(|(other, _)| *other != key);
        self.disk.lock().unwrap().remove(&key);
    }

    fn contains(&self, _pool: &PoolName, key: BlockKey) -> bool {
        self.disk.lock().unwrap().contains_key(&key)
    }

    async fn adopt(&self, _pool: &PoolName, keys: Vec<BlockKey>) -> Vec<bool> {
        let disk = self.disk.lock().unwrap();
        keys.iter().map(|key| disk.contains_key(key)).collect()
    }

    fn stored_bytes(&self, _pool: &PoolName, len: u32) -> u64 {
        u64::from(len) + 16
    }

    fn persistent(&self, _pool: &PoolName) -> bool {
        true
    }

    async fn close(&self) {}
}

/// A catalog.
#[derive(Default)]
pub(crate) struct Records(Mutex<HashMap<(DatasetName, ObjectName), ObjectRecord>>);

#[async_trait::async_trait]
impl Catalog for Records {
    async fn load(&self) -> Result<Vec<ObjectRecord>, CatalogError> {
        Ok(self.0.lock().unwrap().values().cloned().collect())
    }

    async fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), CatalogError> {
        tokio::task::yield_now().await;
        let mut records = self.0.lock().unwrap();
        for change in changes {
            match change {
                CatalogChange::Put(record) => {
                    records.insert((record.dataset.clone(), record.name.clone()), record);
                }
                CatalogChange::Remove(dataset, name) => {
                    records.remove(&(dataset, name));
                }
            }
        }
        Ok(())
    }
}
