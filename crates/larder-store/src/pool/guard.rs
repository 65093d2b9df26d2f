//! The engine that foyer's cache is given: one life of foyer's block engine after another
//! ([`Life`]), and everything that comes from the SSD verified before foyer or anybody else sees
//! it.
//!
//! foyer reports a failed checksum as a plain miss, and its decoder knows neither the budget nor
//! the pool. Here every entry is charged to the budget, opened (header, chunk checksums, key), and
//! whatever fails is counted, deleted and told as an error of kind `ChecksumMismatch`. An error of
//! kind `Closed` says that no engine is there at the moment.

use super::entry::{Entry, EntryKey};
use super::health::Health;
use super::life::{Blocks, Inner, Life, Properties, Signs};
use super::residents::Residents;
use crate::metrics::{Cause, PoolMetrics};
use foyer::{
    Age, Device, DeviceBuilder, Engine, EngineBuildContext, EngineConfig, Error, ErrorKind, Load,
    NoopDeviceBuilder, PieceRef, StorageFilterResult,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_model::{Block, Budget};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// How long the end of a life is waited for, each time that another is to begin.
const END: Duration = Duration::from_secs(5);
/// How long a life may take to find what its files hold.
const BEGINNING: Duration = Duration::from_secs(300);
/// How long the writes that are out may take when the pool is closed.
const CLOSING: Duration = Duration::from_secs(2);

/// How long a read waits for the next life, when one has ended, and how many it tries.
const NEXT: Duration = Duration::from_secs(2);
const LIVES: usize = 2;

/// Makes the configuration of another life.
pub(crate) type Recipe = Box<dyn Fn(Arc<Signs>) -> foyer::Result<Blocks> + Send + Sync>;

/// foyer's block engine, guarded.
pub(crate) struct Guard {
    recipe: Recipe,
    /// None while one life has ended and the next has not begun, and after the close.
    life: watch::Sender<Option<Arc<Life>>>,
    /// A life that is ending.
    ending: Mutex<Option<oneshot::Receiver<()>>>,
    /// Of no use but to be there: each life has its own.
    device: Arc<dyn Device>,
    /// foyer numbers an entry and then queues it, in two steps. Two threads at once could queue
    /// their entries against the order of the numbers, and recovery stops reading a region there.
    order: Mutex<()>,
    reader: Reader,
    health: Arc<Health>,
}

/// Why no other life could be begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MendError {
    #[error("reads or writes of before still hang")]
    Hanging,
    #[error("the regions cannot be read in time")]
    Slow,
    #[error(transparent)]
    Foyer(#[from] foyer::Error),
}

impl Guard {
    /// Begins the first life.
    pub(crate) async fn open(
        recipe: Recipe,
        residents: Residents,
        budget: Budget,
        metrics: PoolMetrics,
        health: Arc<Health>,
    ) -> foyer::Result<Arc<Self>> {
        let life = Life::begin(&recipe).await?;
        Ok(Arc::new(Self {
            recipe,
            life: watch::Sender::new(Some(Arc::new(life))),
            ending: Mutex::new(None),
            device: NoopDeviceBuilder::default().build()?,
            order: Mutex::new(()),
            reader: Reader { residents, budget, metrics },
            health,
        }))
    }

    pub(crate) fn life(&self) -> Option<Arc<Life>> {
        self.life.borrow().clone()
    }

    /// The engine, if it may be written to.
    fn writable(&self) -> Option<Arc<Life>> {
        if self.health.broken() { None } else { self.life() }
    }

    /// How often foyer's buffer had no room, in this life.
    pub(crate) fn overflows(&self) -> u64 {
        self.life().map_or(0, |life| life.overflows.count())
    }

    /// Ends the present life and begins another, which knows what the files really hold. Until
    /// [`Health::mended`] nothing is written to it.
    pub(crate) async fn mend(&self) -> Result<(), MendError> {
        self.end(END).await?;
        let next = timeout(BEGINNING, Life::begin(&self.recipe)).await;
        let next = Arc::new(next.map_err(|_| MendError::Slow)??);
        let lost = self.reader.residents.drop_unless(|hash| next.inner.may_contains(hash));
        tracing::info!(lost, "the regions were read again");
        self.life.send_replace(Some(next));
        Ok(())
    }

    /// Ends the present life, if there is one, and waits for what an earlier call began.
    async fn end(&self, patience: Duration) -> Result<(), MendError> {
        let life = self.life.send_replace(None);
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(life) = life {
            ending = life.retire();
        }
        let Some(mut ended) = ending else { return Ok(()) };
        let done = timeout(patience, &mut ended).await.is_ok();
        if !done {
            *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            return Err(MendError::Hanging);
        }
        Ok(())
    }
}

/// Hands the guard to foyer's cache.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Arc<Guard>);

impl From<Guarded> for Box<dyn EngineConfig<EntryKey, Entry, Properties>> {
    fn from(guarded: Guarded) -> Self {
        Box::new(guarded)
    }
}

impl EngineConfig<EntryKey, Entry, Properties> for Guarded {
    fn build(self: Box<Self>, _: EngineBuildContext) -> BoxFuture<'static, foyer::Result<Inner>> {
        let guard: Inner = self.0;
        std::future::ready(Ok(guard)).boxed()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.life()).finish()
    }
}

type Loaded = foyer::Result<Load<EntryKey, Entry, Properties>>;

impl Engine<EntryKey, Entry, Properties> for Guard {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn filter(&self, _: u64, _: usize) -> StorageFilterResult {
        StorageFilterResult::Admit
    }

    fn enqueue(&self, piece: PieceRef<EntryKey, Entry, Properties>, estimated_size: usize) {
        let _in_order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = self.writable() {
            life.inner.enqueue(piece, estimated_size);
        }
    }

    fn load(&self, hash: u64) -> BoxFuture<'static, Loaded> {
        let mut lives = self.life.subscribe();
        let reader = self.reader.clone();
        async move {
            for _ in 0..LIVES {
                let life = timeout(NEXT, lives.wait_for(Option::is_some)).await;
                let life = life.ok().and_then(|life| life.ok()?.clone());
                let Some(life) = life else { break };
                match reader.load(&life, hash).await {
                    // Its threads ended under it.
                    Err(error) if error.kind() == ErrorKind::Join => {}
                    loaded => return loaded,
                }
            }
            Err(Error::new(ErrorKind::Closed, "no engine at the moment"))
        }
        .boxed()
    }

    fn delete(&self, hash: u64) {
        // Where it cannot be told now, the block comes back with the next life, and nobody wants
        // it: its region is reclaimed without it.
        if let Some(life) = self.writable() {
            life.inner.delete(hash);
        }
    }

    fn may_contains(&self, hash: u64) -> bool {
        self.life().is_some_and(|life| life.inner.may_contains(hash))
    }

    fn destroy(&self) -> BoxFuture<'static, foyer::Result<()>> {
        let unsupported = Error::new(ErrorKind::Unsupported, "a pool is never emptied at once");
        std::future::ready(Err(unsupported)).boxed()
    }

    /// Waits for the writes that are out, but not on an engine that is not sound.
    fn wait(&self) -> BoxFuture<'static, ()> {
        let Some(life) = self.writable() else { return std::future::ready(()).boxed() };
        let health = self.health.clone();
        let flushed = life.flushed();
        async move {
            tokio::select! {
                flushed = flushed => if flushed.is_err() { health.write_failed() },
                () = health.break_down() => {}
            }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, foyer::Result<()>> {
        let flushed = self.wait();
        let life = self.life.send_replace(None);
        async move {
            let flushed = timeout(CLOSING, flushed).await.is_ok();
            let ended = match life.and_then(Life::retire) {
                Some(ended) => timeout(END, ended).await.is_ok(),
                None => true,
            };
            if flushed && ended {
                Ok(())
            } else {
                Err(Error::new(ErrorKind::Io, "reads or writes hang and are left behind"))
            }
        }
        .boxed()
    }
}

/// What it takes to load an entry and trust it.
#[derive(Clone)]
struct Reader {
    residents: Residents,
    budget: Budget,
    metrics: PoolMetrics,
}

impl Reader {
    async fn load(&self, life: &Life, hash: u64) -> Loaded {
        let indexed = life.inner.may_contains(hash);
        let gone = || indexed && !life.inner.may_contains(hash) && self.residents.contains(hash);
        match life.inner.load(hash).await {
            Ok(Load::Entry { key, value: Entry::Raw(sealed), mut populated }) => {
                // What foyer has just read it takes for young, and would not write again when its
                // region is reclaimed.
                populated.age = Age::Fresh;
                match open(hash, key, sealed, &self.budget) {
                    Ok(block) => Ok(Load::Entry { key, value: Entry::Open(block), populated }),
                    Err(error) => {
                        life.inner.delete(hash);
                        self.metrics.count(Cause::Corrupt);
                        Err(error)
                    }
                }
            }
            // foyer found its own checksum or header broken, forgot the entry and says "miss". A
            // block that the engine removed meanwhile is no longer resident.
            Ok(Load::Miss) if gone() => {
                self.metrics.count(Cause::Corrupt);
                Err(Error::new(ErrorKind::ChecksumMismatch, "foyer dropped a broken entry"))
            }
            Err(error) if error.kind() != ErrorKind::Join => {
                self.metrics.count(Cause::Io);
                Err(error)
            }
            other => other,
        }
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
