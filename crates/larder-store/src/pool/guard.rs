//! The engine around foyer's block engine: what comes from the SSD is verified here, before foyer
//! or anybody else sees it.
//!
//! foyer reports a failed checksum as a plain miss, and its decoder knows neither the budget nor
//! the pool. Here every entry is charged to the budget, opened (header, chunk checksums, key), and
//! whatever fails is counted, deleted and told as an error of kind `ChecksumMismatch`.

use super::entry::{Entry, EntryKey};
use super::residents::Residents;
use crate::metrics::{Cause, PoolMetrics};
use foyer::{
    Age, BlockEngineConfig, Device, Engine, EngineBuildContext, EngineConfig, Error, ErrorKind,
    HybridCacheProperties, Load, PieceRef, StorageFilterResult,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_model::{Block, Budget};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Properties = HybridCacheProperties;
/// foyer's own engine.
pub(crate) type Inner = Arc<dyn Engine<EntryKey, Entry, Properties>>;

/// Builds a [`Guard`] around the engine that `blocks` describes, and leaves that engine in
/// `opened`.
pub(crate) struct GuardConfig {
    pub(crate) blocks: BlockEngineConfig<EntryKey, Entry, Properties>,
    pub(crate) opened: Arc<OnceLock<Inner>>,
    pub(crate) residents: Residents,
    pub(crate) budget: Budget,
    pub(crate) metrics: PoolMetrics,
}

impl fmt::Debug for GuardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardConfig").field(&self.blocks).finish()
    }
}

impl From<GuardConfig> for Box<dyn EngineConfig<EntryKey, Entry, Properties>> {
    fn from(config: GuardConfig) -> Self {
        Box::new(config)
    }
}

impl EngineConfig<EntryKey, Entry, Properties> for GuardConfig {
    fn build(self: Box<Self>, ctx: EngineBuildContext) -> BoxFuture<'static, foyer::Result<Inner>> {
        async move {
            let inner: Inner = Box::new(self.blocks).build(ctx).await?;
            let _ = self.opened.set(inner.clone());
            let (residents, budget, metrics) = (self.residents, self.budget, self.metrics);
            Ok(Arc::new(Guard { inner, order: Mutex::new(()), residents, budget, metrics })
                as Inner)
        }
        .boxed()
    }
}

/// foyer's block engine, guarded.
struct Guard {
    inner: Inner,
    /// foyer numbers an entry and then queues it, in two steps. Two threads at once could queue
    /// their entries against the order of the numbers, and recovery stops reading a region there.
    order: Mutex<()>,
    residents: Residents,
    budget: Budget,
    metrics: PoolMetrics,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.inner).finish()
    }
}

type Loaded = foyer::Result<Load<EntryKey, Entry, Properties>>;

impl Engine<EntryKey, Entry, Properties> for Guard {
    fn device(&self) -> &Arc<dyn Device> {
        self.inner.device()
    }

    fn filter(&self, hash: u64, estimated_size: usize) -> StorageFilterResult {
        self.inner.filter(hash, estimated_size)
    }

    fn enqueue(&self, piece: PieceRef<EntryKey, Entry, Properties>, estimated_size: usize) {
        let _in_order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.enqueue(piece, estimated_size);
    }

    fn load(&self, hash: u64) -> BoxFuture<'static, Loaded> {
        let indexed = self.inner.may_contains(hash);
        let loading = self.inner.load(hash);
        let inner = self.inner.clone();
        let residents = self.residents.clone();
        let budget = self.budget.clone();
        let metrics = self.metrics.clone();
        async move {
            match loading.await {
                Ok(Load::Entry { key, value: Entry::Raw(sealed), mut populated }) => {
                    // What foyer has just read it takes for young, and would not write again when
                    // its region is reclaimed.
                    populated.age = Age::Fresh;
                    match open(hash, key, sealed, &budget) {
                        Ok(block) => Ok(Load::Entry { key, value: Entry::Open(block), populated }),
                        Err(error) => {
                            inner.delete(hash);
                            metrics.count(Cause::Corrupt);
                            Err(error)
                        }
                    }
                }
                // foyer found its own checksum or header broken, forgot the entry and says "miss".
                // A block that the engine removed meanwhile is no longer resident.
                Ok(Load::Miss)
                    if indexed && !inner.may_contains(hash) && residents.contains(hash) =>
                {
                    metrics.count(Cause::Corrupt);
                    Err(Error::new(ErrorKind::ChecksumMismatch, "foyer dropped a broken entry"))
                }
                Ok(other) => Ok(other),
                Err(error) => {
                    metrics.count(Cause::Io);
                    Err(error)
                }
            }
        }
        .boxed()
    }

    fn delete(&self, hash: u64) {
        self.inner.delete(hash);
    }

    fn may_contains(&self, hash: u64) -> bool {
        self.inner.may_contains(hash)
    }

    fn destroy(&self) -> BoxFuture<'static, foyer::Result<()>> {
        self.inner.destroy()
    }

    fn wait(&self) -> BoxFuture<'static, ()> {
        self.inner.wait()
    }

    fn close(&self) -> BoxFuture<'static, foyer::Result<()>> {
        self.inner.close()
    }
}

/// Opens an entry that was found under `hash`.
pub(crate) fn open(
    hash: u64,
    key: EntryKey,
    sealed: Vec<u8>,
    budget: &Budget,
) -> foyer::Result<Block> {
    let broken = |what: String| Error::new(ErrorKind::ChecksumMismatch, what);
    let reserve = budget.charge(sealed.len() as u64);
    let block = Block::open(key.0, sealed, reserve).map_err(|error| broken(error.to_string()))?;
    // A whole entry in the place of another passes every checksum of its own.
    if key.0.hash64() != hash {
        return Err(broken(format!("the entry of another block, {key:?}")));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::{EntryKey, open};
    use larder_model::{Block, BlockKey, Budget, Reserve};

    #[test]
    fn an_entry_in_the_place_of_another_is_refused() {
        let budget = Budget::new(1 << 20);
        let key = BlockKey::from_bits(3);
        let sealed = || Block::seal(key, &[vec![1; 100].into()], Reserve::none()).sealed().to_vec();
        let block = open(3, EntryKey(key), sealed(), &budget).unwrap();
        assert_eq!(budget.used(), block.sealed().len() as u64);
        drop(block);
        assert!(open(4, EntryKey(key), sealed(), &budget).is_err());
        // The key behind the value says something else than the block itself.
        assert!(open(4, EntryKey(BlockKey::from_bits(4)), sealed(), &budget).is_err());
        assert_eq!(budget.used(), 0);
    }
}
