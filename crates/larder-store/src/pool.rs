//! One pool: a foyer cache of its own, so that a neighbour's churn cannot touch it.
//!
//! Invariant: no more bytes are handed to foyer than its buffers hold; foyer drops what does not
//! fit without a word, so every write waits for its turn here, and for its confirmation after.

mod confirm;
mod entry;
#[cfg(test)]
mod faults;
mod guard;
pub(crate) mod health;
pub(crate) mod layout;
mod life;
mod overflow;
mod probe;
mod residents;
mod rewrite;
#[cfg(test)]
mod tests;
mod watch;

use crate::error::StoreError;
use crate::metrics::{Cause, PoolMetrics};
use confirm::{Fate, Pending};
use entry::{Entry, EntryKey, KeyHash};
use foyer::{
    BlockEngineConfig, DeviceBuilder, Engine, ErrorKind, FifoConfig, FifoPicker, FsDeviceBuilder,
    HybridCache, HybridCacheBuilder, HybridCachePolicy, InvalidRatioPicker, S3FifoConfig, Source,
    Spawner, StorageFilter,
};
use guard::{Guard, Guarded};
use health::Health;
use larder_model::{Block, BlockKey, Budget, Load, PoolSpec, Stored, Tier};
use layout::{CLEAN_REGIONS, Layout, stored_bytes};
use life::Blocks;
use residents::Residents;
use rewrite::{Rewrite, Rewriter};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a write waits for its turn. After that the device is too slow for what is asked of it.
const TURN: Duration = Duration::from_secs(10);
/// How long a read may take before the origin is asked instead.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// How often a write is handed to foyer that foyer dropped, its buffer being full of rewrites.
const TRIES: u32 = 3;
/// A region of which this share is removed blocks is reclaimed before the oldest one: reclaiming a
/// region that is full of residents only copies them.
const INVALID_SHARE: f64 = 0.25;
/// Bytes that may be being read from the SSD at once, and bounds on the number of reads.
const READ_BYTES: u64 = 256 << 20;
const READS: (u64, u64) = (8, 64);
/// How long the writes that are out are waited for when the pool is closed.
const CLOSING: Duration = Duration::from_secs(4);
/// Regions that are read at once when the pool is opened.
const RECOVERIES: usize = 32;
const PAGE: u64 = 4096;

/// One pool of the store.
pub(crate) struct Pool {
    spec: PoolSpec,
    cache: HybridCache<EntryKey, Entry, KeyHash>,
    residents: Residents,
    metrics: PoolMetrics,
    disk: Option<Disk>,
}

/// The SSD side of a pool.
struct Disk {
    guard: Arc<Guard>,
    layout: Layout,
    /// The window of unconfirmed writes, in pages.
    window: Arc<Semaphore>,
    reads: Semaphore,
    rewrite: Rewrite,
    /// How far into [`Rewrite::bytes`] the flushes have come, at least.
    rewritten: AtomicU64,
    announce: Mutex<Option<mpsc::Sender<Pending>>>,
    confirmer: Mutex<Option<JoinHandle<()>>>,
    health: Arc<Health>,
    watch: JoinHandle<()>,
}

impl Pool {
    /// Opens the pool; `disk` is its folder and whether direct I/O works there. What an earlier
    /// process left is found again, but not resident until it is adopted.
    pub(crate) async fn open(
        spec: PoolSpec,
        disk: Option<(&Path, bool)>,
        budget: Budget,
        metrics: PoolMetrics,
        spawner: &Spawner,
    ) -> Result<Arc<Self>, StoreError> {
        let residents = Residents::default();
        let failed = |error: foyer::Error| StoreError::Device {
            pool: spec.name.clone(),
            reason: error.to_string(),
        };
        let layout = Layout::new(&spec);
        let memory = memory(&spec, layout.is_some());
        let (Some(layout), Some((folder, direct))) = (layout, disk) else {
            let cache = memory.storage().with_spawner(spawner.clone()).build().await;
            let cache = cache.map_err(failed)?;
            return Ok(Arc::new(Self { spec, cache, residents, metrics, disk: None }));
        };
        let health = Health::new(&spec.name, folder, metrics.clone());
        let rewrite =
            Rewrite::new(residents.clone(), budget.clone(), metrics.clone(), health.clone());
        let (of, path) = (rewrite.clone(), folder.to_owned());
        let recipe = move |signs| blocks(&path, direct, layout, of.during(signs));
        let recipe = Box::new(recipe);
        let counters = metrics.clone();
        let guard = Guard::open(recipe, residents.clone(), budget, counters, health.clone());
        let guard = guard.await.map_err(failed)?;
        let cache = memory
            .storage()
            .with_spawner(spawner.clone())
            .with_engine_config(Guarded(guard.clone()))
            .build()
            .await
            .map_err(failed)?;
        let disk = Some(Disk::new(guard, layout, rewrite.clone(), health, &spec));
        let pool = Arc::new(Self { spec, cache, residents, metrics, disk });
        rewrite.bind(&pool);
        Ok(pool)
    }

    pub(crate) fn peek(&self, key: BlockKey) -> Option<Block> {
        self.cache.memory().get(&EntryKey(key))?.value().block().cloned()
    }

    pub(crate) async fn load(&self, key: BlockKey) -> Load {
        if let Some(block) = self.peek(key) {
            return Load::Hit(block, Tier::Memory);
        }
        let Some(disk) = &self.disk else { return Load::Miss };
        if !disk.health.may_read() {
            self.metrics.count(Cause::Down);
            return Load::Failed;
        }
        // The wait for a turn counts: behind reads that hang there is none.
        let found = timeout(READ_PATIENCE, async {
            // Closed never: nobody closes this semaphore.
            let _read = disk.reads.acquire().await;
            self.cache.get(&EntryKey(key)).await
        });
        let Ok(found) = found.await else {
            self.metrics.count(Cause::Timeout);
            disk.health.timed_out();
            tracing::warn!(pool = %self.spec.name, %key, "a read from the SSD took too long");
            return Load::Failed;
        };
        match found {
            Ok(None) => Load::Miss,
            Ok(Some(entry)) => match entry.value().block() {
                Some(block) if block.key() == key => {
                    let memory = entry.source() == Source::Memory;
                    Load::Hit(block.clone(), if memory { Tier::Memory } else { Tier::Disk })
                }
                _ => {
                    self.metrics.count(Cause::Corrupt);
                    disk.health.corrupt();
                    self.remove(key);
                    Load::Corrupt
                }
            },
            Err(error) if error.kind() == ErrorKind::ChecksumMismatch => {
                tracing::warn!(pool = %self.spec.name, %key, %error, "a block on the SSD is corrupt");
                disk.health.corrupt();
                self.remove(key);
                Load::Corrupt
            }
            Err(error) if error.kind() == ErrorKind::Closed => {
                self.metrics.count(Cause::Down);
                Load::Failed
            }
            Err(error) => {
                tracing::warn!(pool = %self.spec.name, %key, %error, "cannot read from the SSD");
                disk.health.failed();
                Load::Failed
            }
        }
    }

    pub(crate) async fn store(&self, block: Block) -> Stored {
        if block.len() as u64 > u64::from(self.spec.max_block_bytes) {
            return self.dropped(Cause::Oversize);
        }
        let key = block.key();
        let hash = key.hash64();
        let bytes = self.stored_bytes(block.len() as u32);
        // In memory at once, whatever the device does.
        let entry = self.cache.memory().insert(EntryKey(key), Entry::Open(block));
        let Some(disk) = &self.disk else {
            self.residents.add(hash, bytes);
            return Stored::Kept;
        };
        if self.residents.contains(hash) && disk.guard.may_contains(hash) {
            return Stored::Kept;
        }
        if !disk.health.may_write() {
            return self.dropped(Cause::Down);
        }
        if self.residents.bytes() + bytes > self.spec.disk_bytes + self.spec.disk_bytes / 8 {
            return self.dropped(Cause::Full);
        }
        let pages = u32::try_from(bytes / PAGE).unwrap_or(u32::MAX);
        let turn = timeout(TURN, async {
            let room = disk.window.clone().acquire_many_owned(pages).await.ok()?;
            disk.wait_for_reclaim().await;
            Some(room)
        });
        let Ok(Some(room)) = turn.await else {
            disk.health.suspect();
            return self.dropped(Cause::Timeout);
        };
        let removals = self.residents.removals(hash);
        self.residents.add(hash, bytes);
        let (room, mut overflown, mut fate) = (Arc::new(room), true, None);
        for _ in 0..TRIES {
            let overflows = disk.guard.overflows();
            let Some(announce) = disk.announcer() else { break };
            self.cache.storage().enqueue(entry.piece(), true);
            let (tell, told) = oneshot::channel();
            let pending = Pending { key, fate: tell, _room: room.clone() };
            let sent = announce.send(pending).await;
            fate = if sent.is_ok() { told.await.ok() } else { None };
            overflown = disk.guard.overflows() != overflows;
            if fate != Some(Fate::Dropped) || !overflown || !self.residents.contains(hash) {
                break;
            }
        }
        if fate == Some(Fate::Written) {
            return Stored::Kept;
        }
        // Removed meanwhile: that is no loss, and would explain why it is not there.
        let there = self.residents.remove(hash);
        let untouched = self.residents.removals(hash) == removals.wrapping_add(1);
        match fate {
            _ if !there => Stored::Dropped,
            None => self.dropped(Cause::Down),
            Some(Fate::TimedOut) => {
                disk.health.write_failed();
                self.dropped(Cause::Timeout)
            }
            Some(_) => {
                if overflown || !untouched {
                    disk.health.suspect();
                } else {
                    disk.health.write_failed();
                }
                self.dropped(Cause::Dropped)
            }
        }
    }

    /// Hands a resident whose region is being reclaimed to foyer as if it were new. Leaves the
    /// memory tier as it is.
    fn write_again(&self, block: Block) {
        let key = EntryKey(block.key());
        match self.cache.memory().get(&key) {
            Some(entry) => self.cache.storage().enqueue(entry.piece(), true),
            None => {
                self.cache.storage_writer(key).force().insert(Entry::Open(block));
            }
        }
        if !self.residents.wants(key.0.hash64()) {
            // Removed while it was being read: foyer just learned of it again.
            self.cache.storage().delete(&key);
        }
    }

    fn dropped(&self, cause: Cause) -> Stored {
        self.metrics.count(cause);
        tracing::debug!(pool = %self.spec.name, ?cause, "a block was not kept");
        Stored::Dropped
    }

    pub(crate) fn remove(&self, key: BlockKey) {
        self.residents.remove(key.hash64());
        self.cache.remove(&EntryKey(key));
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.cache.contains(&EntryKey(key))
    }

    pub(crate) fn adopt(&self, keys: &[BlockKey]) -> Vec<bool> {
        let there: Vec<bool> = keys.iter().map(|key| self.contains(*key)).collect();
        let found = keys.iter().zip(&there).filter(|(_, there)| **there);
        self.residents.adopt(found.map(|(key, _)| key.hash64()));
        there
    }

    pub(crate) fn stored_bytes(&self, len: u32) -> u64 {
        match self.disk {
            Some(_) => stored_bytes(len),
            None => Block::sealed_bytes(len as usize) as u64,
        }
    }

    pub(crate) fn persistent(&self) -> bool {
        self.disk.is_some()
    }

    /// Waits for the writes that are out and closes foyer.
    pub(crate) async fn close(&self) {
        if let Some(disk) = &self.disk {
            disk.watch.abort();
            disk.announce.lock().unwrap_or_else(PoisonError::into_inner).take();
            let confirmer = disk.confirmer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut confirmer) = confirmer {
                match timeout(CLOSING, &mut confirmer).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::error!(pool = %self.spec.name, %error, "the confirmation of writes failed");
                    }
                    Err(_) => {
                        confirmer.abort();
                        tracing::warn!(pool = %self.spec.name, "writes to the SSD are left behind");
                    }
                }
            }
        }
        if let Err(error) = self.cache.close().await {
            tracing::error!(pool = %self.spec.name, %error, "cannot close the pool");
        }
    }
}

impl Disk {
    fn new(
        guard: Arc<Guard>,
        layout: Layout,
        rewrite: Rewrite,
        health: Arc<Health>,
        spec: &PoolSpec,
    ) -> Self {
        let (announce, announced) = confirm::channel();
        let confirming = confirm::confirm(guard.clone(), health.clone(), announced);
        let watching = watch::watch(health.clone(), guard.clone(), layout.region);
        let reads = READ_BYTES / u64::from(spec.max_block_bytes.max(1));
        Self {
            guard,
            layout,
            window: Arc::new(Semaphore::new((layout.window / PAGE) as usize)),
            reads: Semaphore::new(reads.clamp(READS.0, READS.1) as usize),
            rewrite,
            rewritten: AtomicU64::new(0),
            announce: Mutex::new(Some(announce)),
            confirmer: Mutex::new(Some(tokio::spawn(confirming))),
            watch: tokio::spawn(watching),
            health,
        }
    }

    /// Where writes are announced, until the pool is closed.
    fn announcer(&self) -> Option<mpsc::Sender<Pending>> {
        self.announce.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Holds new writes back while more than a region of residents waits to be written again: they
    /// share one buffer, and what does not fit into it foyer drops.
    async fn wait_for_reclaim(&self) {
        loop {
            let told = self.rewrite.bytes();
            if told - self.rewritten.load(Ordering::Acquire).min(told) <= self.layout.region {
                return;
            }
            self.guard.wait().await;
            self.rewritten.fetch_max(told, Ordering::AcqRel);
        }
    }
}

type MemoryPhase = foyer::HybridCacheBuilderPhaseMemory<EntryKey, Entry, KeyHash>;

/// The memory tier. In front of an SSD foyer evicts by S3-FIFO, whose hits take only a shared lock
/// and which a scan does not flush. Without one the memory is the tier of record: the engine keeps
/// to the share, and foyer must not evict behind its back, hence one shard and some slack.
fn memory(spec: &PoolSpec, disk: bool) -> MemoryPhase {
    let largest = Block::sealed_bytes(spec.max_block_bytes as usize) as u64;
    let slack = if disk { 0 } else { spec.memory_bytes / 8 + 2 * largest };
    let shards = if disk { (spec.memory_bytes / (16 * largest)).clamp(1, 8) } else { 1 };
    let builder = HybridCacheBuilder::new()
        .with_name(spec.name.as_str().to_owned())
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .with_flush_on_close(false)
        .memory((spec.memory_bytes + slack) as usize)
        .with_hash_builder(KeyHash::default())
        .with_weighter(|_: &EntryKey, entry: &Entry| entry.weight())
        .with_shards(shards as usize);
    if disk {
        builder.with_eviction_config(S3FifoConfig::default())
    } else {
        builder.with_eviction_config(FifoConfig::default())
    }
}

/// foyer's block engine over a folder of region files.
fn blocks(
    folder: &Path,
    direct: bool,
    layout: Layout,
    rewriter: Rewriter,
) -> foyer::Result<Blocks> {
    let device = FsDeviceBuilder::new(folder)
        .with_capacity((layout.regions * layout.region) as usize)
        .with_direct(direct)
        .build()?;
    Ok(BlockEngineConfig::new(device)
        .with_block_size(layout.region as usize)
        .with_buffer_pool_size(layout.buffer as usize)
        // The window before it is the bound; this one would drop.
        .with_submit_queue_size_threshold(usize::MAX)
        .with_clean_block_threshold(CLEAN_REGIONS)
        .with_recover_concurrency(RECOVERIES)
        .with_eviction_pickers(vec![
            Box::new(InvalidRatioPicker::new(INVALID_SHARE)),
            Box::new(FifoPicker::default()),
        ])
        .with_reinsertion_filter(StorageFilter::new().with_condition(rewriter))
        // Keys are immutable: a removed block that comes back after a restart is the same bytes,
        // and nobody adopts it.
        .with_tombstone_log(false))
}
