//! One life of foyer's block engine, from the opening of its region files to the end of its I/O.
//!
//! After a failed write foyer 0.22.6 goes on with the wrong region: what it writes next lands on
//! blocks that it wrote before, and at the next region's end an assertion poisons its locks. No
//! later write can be trusted then. Reads still can, each being verified, so a life that is
//! not sound is read until the device works again, and then another is begun from the same files.
//!
//! Invariant: no two lives have I/O on the files at once. Each has threads of its own for its I/O,
//! and [`Life::retire`] waits for the last system call on them.

use super::entry::{Entry, EntryKey};
use super::overflow::Overflows;
use foyer::{
    BlockEngineConfig, Engine, EngineBuildContext, EngineConfig, Error, ErrorKind,
    HybridCacheBuilder, HybridCacheProperties, PsyncIoEngineConfig, RecoverMode, Spawner,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Properties that foyer gives its entries.
pub(crate) type Properties = HybridCacheProperties;
/// foyer's own engine.
pub(crate) type Inner = Arc<dyn Engine<EntryKey, Entry, Properties>>;
/// What foyer's own engine is built from.
pub(crate) type Blocks = BlockEngineConfig<EntryKey, Entry, Properties>;

/// Threads for foyer's flusher, and its reclaimer, which may block one.
const WORKERS: usize = 2;
/// I/O that may be under way at once, or hang.
const IO_THREADS: usize = 128;
/// How long foyer's tasks may take to notice that their I/O has ended.
const QUIET: Duration = Duration::from_secs(2);

/// One life of the engine. Dropping it lets its threads end by themselves.
pub(crate) struct Life {
    pub(crate) inner: Inner,
    pub(crate) overflows: Overflows,
    signs: Arc<Signs>,
    threads: Mutex<Option<Threads>>,
}

/// What those who work for a life must know of it.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    /// Its engine: set as soon as it has been built. Weak, since it owns who asks.
    engine: OnceLock<Weak<dyn Engine<EntryKey, Entry, Properties>>>,
    /// Whether all of its I/O has ended.
    retired: AtomicBool,
}

impl Signs {
    /// The engine, while it lives. Waits until it has been built.
    pub(crate) fn engine(&self) -> Option<Inner> {
        self.engine.wait().upgrade()
    }

    pub(crate) fn retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// The threads of one life.
struct Threads {
    /// Runs system calls only.
    io: Option<Runtime>,
    /// Runs foyer's tasks.
    tasks: Option<Runtime>,
}

impl Threads {
    fn start() -> std::io::Result<Self> {
        let io = Builder::new_current_thread()
            .max_blocking_threads(IO_THREADS)
            .thread_name("larder-store-io")
            .build()?;
        let tasks = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("larder-store")
            .enable_time()
            .build()?;
        Ok(Self { io: Some(io), tasks: Some(tasks) })
    }

    fn spawner(runtime: Option<&Runtime>) -> foyer::Result<Spawner> {
        let gone = || Error::new(ErrorKind::Closed, "the threads have ended");
        runtime.map(|runtime| Spawner::from(runtime.handle().clone())).ok_or_else(gone)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Elsewhere than here one may have to wait, and in a task one must not.
        self.io.take().into_iter().for_each(Runtime::shutdown_background);
        self.tasks.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Life {
    /// Begins a life: finds what the region files hold. `blocks` is given what the reclaimer's
    /// questions need.
    pub(crate) async fn begin(
        blocks: impl FnOnce(Arc<Signs>) -> foyer::Result<Blocks>,
    ) -> foyer::Result<Self> {
        let threads = Threads::start().map_err(Error::io_error)?;
        let (overflows, signs) = (Overflows::default(), Arc::new(Signs::default()));
        let context = EngineBuildContext {
            spawner: Threads::spawner(threads.tasks.as_ref())?,
            recover_mode: RecoverMode::Quiet,
            ..context(Threads::spawner(threads.io.as_ref())?, &overflows).await?
        };
        let blocks = Box::new(blocks(signs.clone())?);
        let inner: Inner = EngineConfig::build(blocks, context).await?;
        let _ = signs.engine.set(Arc::downgrade(&inner));
        Ok(Self { inner, overflows, signs, threads: Mutex::new(Some(threads)) })
    }

    /// Waits for the writes that are out. An error when foyer's tasks are dead.
    pub(crate) fn flushed(&self) -> BoxFuture<'static, Result<(), Dead>> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tasks) = threads.as_ref().and_then(|threads| threads.tasks.as_ref()) else {
            return std::future::ready(Err(Dead)).boxed();
        };
        // In a task of its own, because it panics on poisoned locks.
        let waiting = tasks.spawn({
            let inner = self.inner.clone();
            async move { inner.wait().await }
        });
        async move { waiting.await.map_err(|_| Dead) }.boxed()
    }

    /// Refuses further I/O, and tells when the last that was under way has ended, which may take
    /// for ever on a device that hangs. `None` when this has been called before.
    pub(crate) fn retire(self: Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (tell, told) = oneshot::channel();
        let life = Arc::clone(&self);
        let thread = std::thread::Builder::new().name("larder-store-end".to_owned());
        let started = thread.spawn(move || {
            end(life, threads);
            let _ = tell.send(());
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread to end the store's I/O");
        }
        Some(told)
    }
}

/// foyer's tasks have panicked.
#[derive(Debug)]
pub(crate) struct Dead;

/// Blocks until the last system call of the life has returned, then ends its tasks.
fn end(life: Arc<Life>, mut threads: Threads) {
    // Waits for the calls under way, drops those in the queue, refuses others.
    drop(threads.io.take());
    life.signs.retired.store(true, Ordering::Release);
    if let Some(tasks) = threads.tasks.take() {
        let inner = life.inner.clone();
        // A reclaim must not be dropped half-way: foyer would begin the next one while it holds
        // the lock that both need. Without I/O they all end at once.
        let quiet = tasks.spawn(async move { inner.wait().await });
        let quiet = tasks.block_on(async move { timeout(QUIET, quiet).await });
        if quiet.is_err() {
            tracing::warn!("tasks of the store's engine do not end");
        }
        tasks.shutdown_timeout(QUIET);
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("retired", &self.signs.retired()).finish_non_exhaustive()
    }
}

/// foyer's engine for I/O on the given threads, and metrics.
///
/// Both can be had only by being an engine that is built, so one is built that takes them and
/// fails.
async fn context(io: Spawner, overflows: &Overflows) -> foyer::Result<EngineBuildContext> {
    let taken = Arc::new(Mutex::new(None));
    let _ = HybridCacheBuilder::<EntryKey, Entry>::new()
        .with_metrics_registry(Box::new(overflows.clone()))
        .memory(1)
        .storage()
        .with_spawner(io)
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(Taker(taken.clone()))
        .build()
        .await;
    let taken = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
    taken.ok_or_else(|| Error::new(ErrorKind::Config, "foyer built no engine"))
}

struct Taker(Arc<Mutex<Option<EngineBuildContext>>>);

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Taker")
    }
}

impl EngineConfig<EntryKey, Entry, Properties> for Taker {
    fn build(
        self: Box<Self>,
        context: EngineBuildContext,
    ) -> BoxFuture<'static, foyer::Result<Inner>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context);
        let refused = Error::new(ErrorKind::Unsupported, "only the context was wanted");
        std::future::ready(Err(refused)).boxed()
    }
}

impl From<Taker> for Box<dyn EngineConfig<EntryKey, Entry, Properties>> {
    fn from(taker: Taker) -> Self {
        Box::new(taker)
    }
}
