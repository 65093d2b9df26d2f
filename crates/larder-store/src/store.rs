//! The block store: pools under one directory.

use crate::directory::{Directory, takes_direct_io};
use crate::error::StoreError;
use crate::metrics::Metrics;
use crate::pool::Pool;
use async_trait::async_trait;
use foyer::Spawner;
use futures_util::future::join_all;
use larder_model::{Block, BlockKey, BlockStore, Budget, Load, PoolName, PoolSpec, Stored};
use prometheus::Registry;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The cache directory; without one, every pool is in memory only.
    pub path: Option<PathBuf>,
    /// Whether to take all that the pools' files may take from the file system at once, so that
    /// there is always room for a write. Where the file system cannot, a warning says so.
    pub reserve: bool,
    /// The pools.
    pub pools: Vec<PoolSpec>,
    /// Charged for each block that is read from the SSD. Shared with the engine.
    pub budget: Budget,
    /// Where the store's metrics go.
    pub registry: Registry,
}

/// Blocks in memory and on SSD, in pools that do not touch each other.
///
/// A pool that it was not opened with is empty and keeps nothing.
pub struct HybridStore {
    pools: HashMap<PoolName, Arc<Pool>>,
    /// The lock on the directory, until [`BlockStore::close`].
    directory: Mutex<Option<Directory>>,
}

impl HybridStore {
    /// Opens the directory and all pools, and finds what an earlier process left there. Must be
    /// called within a tokio runtime; the I/O is done on threads of the store's own.
    ///
    /// # Errors
    ///
    /// When the directory is another program's, another format's or in use; when there is no room
    /// for what is to be reserved; when files cannot be
    /// created (the limit of open files must allow for [`crate::region_files`] of each pool).
    pub async fn open(config: StoreConfig) -> Result<Self, StoreError> {
        let StoreConfig { path, reserve, pools: specs, budget, registry } = config;
        let metrics = Metrics::new(&registry)?;
        let directory = path.as_deref().map(Directory::open).transpose()?;
        if let Some(directory) = &directory {
            directory.warn(&specs);
        }
        let spawner = spawner(specs.len())?;
        let mut pools = HashMap::new();
        for spec in specs {
            let name = spec.name.clone();
            let counters = metrics.pool(&name);
            let folder = match (&directory, spec.disk_bytes) {
                (_, 0) => None,
                (None, bytes) => return Err(StoreError::NoDirectory { pool: name, bytes }),
                (Some(directory), _) => Some(directory.pool(&spec, reserve)?),
            };
            let disk = match &folder {
                Some(folder) => Some((folder.as_path(), takes_direct_io(&name, folder)?)),
                None => None,
            };
            let pool = Pool::open(spec, disk, budget.clone(), counters, &spawner).await?;
            if pools.insert(name.clone(), pool).is_some() {
                return Err(StoreError::Twice { pool: name });
            }
        }
        Ok(Self { pools, directory: Mutex::new(directory) })
    }
}

/// Threads of the store's own: the copies and checksums of whole blocks would hold up requests, and
/// each pool may block one while it reclaims a region.
pub(crate) fn spawner(pools: usize) -> Result<Spawner, StoreError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(pools + 2)
        .thread_name("larder-store")
        .enable_all()
        .build()
        .map(Spawner::from)
        .map_err(StoreError::Threads)
}

#[async_trait]
impl BlockStore for HybridStore {
    fn peek(&self, pool: &PoolName, key: BlockKey) -> Option<Block> {
        self.pools.get(pool)?.peek(key)
    }

    async fn load(&self, pool: &PoolName, key: BlockKey) -> Load {
        match self.pools.get(pool) {
            Some(pool) => pool.load(key).await,
            None => Load::Miss,
        }
    }

    async fn store(&self, pool: &PoolName, block: Block) -> Stored {
        match self.pools.get(pool) {
            Some(pool) => pool.store(block).await,
            None => Stored::Dropped,
        }
    }

    fn remove(&self, pool: &PoolName, key: BlockKey) {
        if let Some(pool) = self.pools.get(pool) {
            pool.remove(key);
        }
    }

    fn contains(&self, pool: &PoolName, key: BlockKey) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.contains(key))
    }

    async fn adopt(&self, pool: &PoolName, keys: Vec<BlockKey>) -> Vec<bool> {
        match self.pools.get(pool) {
            Some(pool) => pool.adopt(&keys),
            None => vec![false; keys.len()],
        }
    }

    fn stored_bytes(&self, pool: &PoolName, len: u32) -> u64 {
        self.pools.get(pool).map_or(0, |pool| pool.stored_bytes(len))
    }

    fn persistent(&self, pool: &PoolName) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.persistent())
    }

    async fn close(&self) {
        join_all(self.pools.values().map(|pool| pool.close())).await;
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
