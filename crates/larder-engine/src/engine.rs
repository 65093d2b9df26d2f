//! The engine's face: what a node can be asked, given a permit.

use crate::fill::FirstRange;
use crate::ledger::Ledger;
use crate::listing::Pages;
use crate::meters::Meters;
use crate::pin::{Need, Outcome};
use crate::pool::Pool;
use crate::reader::Reader;
use crate::shelf::{Pin, Shelf};
use crate::tasks::Tasks;
use crate::{Answer, Body, Head, ReadError, ReadRequest, Source, bypass, scribe, steward};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_model::{
    Access, BlockStore, BucketEntry, BucketName, BucketRule, Budget, ByteRange, Catalog, Clock,
    Dataset, DatasetName, Freshness, ObjectMeta, ObjectName, Origin, OriginError, OriginName,
    Permit, Policy, PoolName, PoolSpec, RangeSpec, Verdict,
};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Everything that an engine is built from.
pub struct Parts {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Keeps blocks.
    pub store: Arc<dyn BlockStore>,
    /// Keeps object records across restarts; `None` forgets them.
    pub catalog: Option<Arc<dyn Catalog>>,
    /// Every origin that a dataset names.
    pub origins: Vec<Arc<dyn Origin>>,
    /// Every dataset with its policy.
    pub datasets: Vec<(Arc<Dataset>, Box<dyn Policy>)>,
    /// Every pool, as the store was opened with.
    pub pools: Vec<PoolSpec>,
    /// The memory of blocks, in the cache and in flight. Shared with the store.
    pub budget: Budget,
    /// Where the engine's metrics are registered.
    pub registry: prometheus::Registry,
}

/// The parts do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A dataset's origin is missing.
    #[error("dataset {0} names origin {1}, which is not configured")]
    NoOrigin(DatasetName, OriginName),
    /// A dataset's pool is missing.
    #[error("dataset {0} needs pool {1}, which the store does not have")]
    NoPool(DatasetName, PoolName),
    /// The metrics were registered before, or clash.
    #[error("the engine's metrics cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// What `status` shows of one dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetStatus {
    /// The dataset.
    pub dataset: DatasetName,
    /// Its policy.
    pub policy: String,
    /// Objects with at least one resident block.
    pub cached_objects: u64,
    /// Resident bytes, as stored.
    pub cached_bytes: u64,
    /// Bytes that residents may take; shared with others for a dataset without a quota.
    pub capacity_bytes: u64,
    /// Objects in the catalog.
    pub known_objects: u64,
    /// Bytes served since the start.
    pub served_bytes: u64,
    /// Of these, bytes that came from the cache.
    pub hit_bytes: u64,
    /// Bytes fetched from the origin since the start.
    pub origin_bytes: u64,
}

/// The data path of one node.
pub struct Engine {
    pub(crate) shelves: HashMap<DatasetName, Arc<Shelf>>,
    catalog: Option<Arc<dyn Catalog>>,
    budget: Budget,
    tasks: Tasks,
    stop: watch::Sender<bool>,
    stewards: Mutex<Vec<JoinHandle<()>>>,
}

/// Where eviction begins and ends in the shared pool (DESIGN §7 gives them per quota).
const SHARED_WATERMARKS: (f64, f64) = (0.95, 0.80);

/// How long the end waits for fills that are under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The share of the memory for blocks that the object tables may take on top of it.
const TABLE_SHARE: u64 = 8;

/// The share of an object table's memory that cached pages of listings get.
const PAGES_SHARE: u64 = 4;

impl Engine {
    /// Opens the catalog, reconciles it with the store and starts the stewards of the datasets.
    pub async fn open(parts: Parts) -> Result<Arc<Self>, OpenError> {
        let meters = Meters::register(&parts.registry)?;
        register_in_flight(&parts)?;
        let tasks = Tasks::default();
        let (stop, stopped) = watch::channel(false);
        let mut pools: HashMap<PoolName, Arc<Pool>> = HashMap::new();
        let mut shelves = HashMap::new();
        let mut policies = Vec::new();
        let table_limit =
            (parts.budget.limit() / TABLE_SHARE / parts.datasets.len().max(1) as u64).max(1 << 20);
        let all: Vec<_> = parts.datasets.iter().map(|(dataset, _)| dataset.clone()).collect();
        for (dataset, policy) in parts.datasets {
            let pool = pool(&mut pools, &parts.pools, &dataset)?;
            let origin = parts.origins.iter().find(|origin| *origin.name() == dataset.origin);
            let Some(origin) = origin.cloned() else {
                return Err(OpenError::NoOrigin(dataset.name.clone(), dataset.origin.clone()));
            };
            let info = policy.describe();
            let persistent = parts.store.persistent(&dataset.pool());
            let stir = Arc::new(Notify::new());
            pool.join(stir.clone());
            let pages_limit = dataset.list_cache.map_or(0, |_| table_limit / PAGES_SHARE);
            let mut ledger =
                Ledger::new(pool.clone(), table_limit - pages_limit, parts.catalog.is_some());
            if written(&dataset, &all) {
                // Restored entries bear tick 0.
                ledger.doubt_all(1);
            }
            let shelf = Arc::new(Shelf {
                pool_name: dataset.pool(),
                meters: meters.dataset(&dataset.name, info.name.as_str(), persistent),
                ledger: Mutex::new(ledger),
                pool,
                policy: info,
                origin,
                store: parts.store.clone(),
                clock: parts.clock.clone(),
                budget: parts.budget.clone(),
                tasks: tasks.clone(),
                stir,
                starved: AtomicU64::new(0),
                flights: Mutex::default(),
                fills: Mutex::default(),
                pages: Mutex::new(Pages::new(pages_limit)),
                ticks: AtomicU64::new(1),
                dataset: dataset.clone(),
            });
            policies.push((shelf.clone(), policy));
            shelves.insert(dataset.name.clone(), shelf);
        }
        let all: Vec<_> = policies.iter().map(|(shelf, _)| shelf.clone()).collect();
        if let Some(catalog) = &parts.catalog {
            scribe::restore(&mut policies, catalog.as_ref()).await;
        }
        let mut stewards: Vec<_> = policies
            .into_iter()
            .map(|(shelf, policy)| tokio::spawn(steward::run(shelf, policy, stopped.clone())))
            .collect();
        if let Some(catalog) = &parts.catalog {
            stewards.push(tokio::spawn(scribe::run(all, catalog.clone(), stopped)));
        }
        Ok(Arc::new(Self {
            shelves,
            catalog: parts.catalog,
            budget: parts.budget,
            tasks,
            stop,
            stewards: Mutex::new(stewards),
        }))
    }

    /// The object's state, as fresh as the dataset demands, conditions evaluated.
    pub async fn head(&self, permit: &Permit, request: ReadRequest) -> Result<Head, ReadError> {
        let shelf = self.shelf(permit, &request.name)?;
        if request.part_number.is_some() {
            return bypass::head(shelf, &request).await;
        }
        let need = Need { checksums: request.checksums && request.range.is_none(), first: None };
        let (meta, source) = match shelf.pin(&request.name, need).await? {
            Outcome::Pinned { pin, asked } => {
                let source = if asked { Source::Origin } else { Source::Memory };
                (pin.pinned.meta.clone(), source)
            }
            Outcome::Uncacheable(meta, _) => (meta, Source::Origin),
        };
        let range = settle(&request, &meta)?;
        Ok(Head { meta, range, source })
    }

    /// The answer, if it needs no wait: a version that is fresh without asking, and bytes that lie
    /// in one block in memory. `None` leaves no trace, and [`Engine::get`] finds out the rest.
    #[must_use]
    pub fn get_now(&self, permit: &Permit, request: &ReadRequest) -> Option<Answer> {
        let shelf = self.shelf(permit, &request.name).ok()?;
        let checksums = request.checksums && request.range.is_none();
        if request.part_number.is_some() {
            return None;
        }
        let pin = shelf.known_now(&request.name, checksums)?;
        let meta = pin.pinned.meta.clone();
        let range = settle(request, &meta).ok()?;
        let wanted = range.or(ByteRange::new(0, meta.size))?;
        let layout = pin.pinned.layout();
        let index = layout.index(wanted.start());
        let block = layout.block(index);
        if wanted.end() > block.end() {
            return None;
        }
        let sealed = shelf.peek_for(&pin, index, &request.job)?;
        let at = |offset: u64| (offset - block.start()) as usize;
        let bytes = sealed.data().slice(at(wanted.start())..at(wanted.end()));
        shelf.meters.served(Source::Memory).inc_by(bytes.len() as u64);
        Some(Answer { meta, range, source: Source::Memory, body: Body::Full(bytes) })
    }

    /// The object's bytes. Returns with the first of them at hand, so that whatever fails before
    /// the first byte is an error and not a broken body.
    ///
    /// An object that changes between pin and first byte is pinned again, once.
    pub async fn get(&self, permit: &Permit, request: ReadRequest) -> Result<Answer, ReadError> {
        let shelf = self.shelf(permit, &request.name)?;
        if request.part_number.is_some() {
            return bypass::get(shelf, &request, None, None).await;
        }
        let checksums = request.checksums && request.range.is_none();
        // With conditions the state comes first: a 304 should not cost the body.
        let first = match request.conditions.is_empty() {
            true => FirstRange::new(request.range, checksums, shelf.dataset.block_bytes),
            false => None,
        };
        let need = Need { checksums, first };
        // Nothing of it is here: what the ask brings came from the origin, however soon it is kept.
        let cold = shelf.is_bare(&request.name);
        let mut tries = 2;
        loop {
            tries -= 1;
            match shelf.pin(&request.name, need).await? {
                Outcome::Uncacheable(meta, first) => {
                    return bypass::get(shelf, &request, Some(meta), first).await;
                }
                Outcome::Pinned { pin, asked } => {
                    match read(shelf, pin, &request, cold && asked).await {
                        Err(ReadError::Changed(_)) if tries > 0 => {}
                        answer => return answer,
                    }
                }
            }
        }
    }

    /// The buckets at the origin of the permit's dataset.
    pub async fn list_buckets(&self, permit: &Permit) -> Result<Vec<BucketEntry>, ReadError> {
        let shelf = self.of(permit)?;
        let name = shelf.dataset.name.as_str().to_owned();
        shelf.origin.list_buckets().await.map_err(|error| plain(name, error))
    }

    /// Whether the origin has this bucket (by the origin's name for it), and its headers.
    pub async fn head_bucket(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<http::HeaderMap, ReadError> {
        let shelf = self.bucket_shelf(permit, bucket)?;
        shelf.origin.head_bucket(bucket).await.map_err(|error| on_bucket(shelf, bucket, error))
    }

    /// The bucket's location constraint; empty for the default region.
    pub async fn bucket_location(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<String, ReadError> {
        let shelf = self.bucket_shelf(permit, bucket)?;
        shelf.origin.bucket_location(bucket).await.map_err(|error| on_bucket(shelf, bucket, error))
    }

    /// Datasets as they stand, by name.
    #[must_use]
    pub fn status(&self) -> Vec<DatasetStatus> {
        let mut rows: Vec<_> = self.shelves.values().map(|shelf| status(shelf)).collect();
        rows.sort_by(|a, b| a.dataset.cmp(&b.dataset));
        rows
    }

    /// Bytes of blocks that are alive: cached in memory, in flight, or held by readers.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.budget.used()
    }

    /// Waits a little for fills and writes the catalog. Called once, after the last request; the
    /// store is closed by the caller afterwards. A fill that hangs at its origin is left behind:
    /// what it would have brought is cold next time.
    pub async fn close(&self) {
        if tokio::time::timeout(CLOSE_PATIENCE, self.tasks.idle()).await.is_err() {
            tracing::warn!("fills are still waiting for their origin; ending without them");
        }
        self.stop.send_replace(true);
        let stewards = std::mem::take(&mut *crate::shelf::lock(&self.stewards));
        for steward in stewards {
            if let Err(error) = steward.await {
                tracing::error!(%error, "a steward ended badly");
            }
        }
        if let Some(catalog) = &self.catalog {
            let shelves: Vec<_> = self.shelves.values().cloned().collect();
            for shelf in &shelves {
                shelf.ledger().mark_all_dirty();
            }
            scribe::write(&shelves, catalog.as_ref()).await;
        }
    }

    pub(crate) fn of(&self, permit: &Permit) -> Result<&Arc<Shelf>, ReadError> {
        let dataset = &permit.dataset().name;
        self.shelves.get(dataset).ok_or_else(|| ReadError::NotPermitted {
            dataset: dataset.to_string(),
            name: "a dataset that this node does not serve".to_owned(),
        })
    }

    /// The shelf that a permit opens for this object: I3.
    pub(crate) fn shelf(
        &self,
        permit: &Permit,
        name: &ObjectName,
    ) -> Result<&Arc<Shelf>, ReadError> {
        let shelf = self.bucket_shelf(permit, &name.bucket)?;
        let dataset = &shelf.dataset;
        if dataset.origin == name.origin && name.key.as_str().starts_with(&dataset.prefix) {
            return Ok(shelf);
        }
        let (dataset, name) = (dataset.name.to_string(), name.to_string());
        Err(ReadError::NotPermitted { dataset, name })
    }

    pub(crate) fn bucket_shelf(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<&Arc<Shelf>, ReadError> {
        let shelf = self.of(permit)?;
        match &shelf.dataset.bucket {
            BucketRule::One(own) if own != bucket => Err(ReadError::NotPermitted {
                dataset: shelf.dataset.name.to_string(),
                name: bucket.to_string(),
            }),
            _ => Ok(shelf),
        }
    }
}

/// Whether what the catalog says of a dataset's objects must be asked for again after a restart:
/// somebody may have written them through us, and a kill may have come before the catalog heard. An
/// immutable dataset has a promise instead, and a strict one asks in any case.
fn written(dataset: &Dataset, all: &[Arc<Dataset>]) -> bool {
    matches!(dataset.freshness, Freshness::Within(_))
        && all.iter().any(|other| {
            let bucket = match (&other.bucket, &dataset.bucket) {
                (BucketRule::One(other), BucketRule::One(own)) => other == own,
                _ => true,
            };
            let prefix = other.prefix.starts_with(&dataset.prefix)
                || dataset.prefix.starts_with(&other.prefix);
            other.access == Access::ReadWrite && other.origin == dataset.origin && bucket && prefix
        })
}

fn pool(
    pools: &mut HashMap<PoolName, Arc<Pool>>,
    specs: &[PoolSpec],
    dataset: &Dataset,
) -> Result<Arc<Pool>, OpenError> {
    let name = dataset.pool();
    if let Some(pool) = pools.get(&name) {
        return Ok(pool.clone());
    }
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        return Err(OpenError::NoPool(dataset.name.clone(), name));
    };
    let capacity = if spec.disk_bytes > 0 { spec.disk_bytes } else { spec.memory_bytes };
    let (high, low) = dataset.quota.map_or(SHARED_WATERMARKS, |quota| (quota.high, quota.low));
    let pool = Arc::new(Pool::new(capacity, high, low));
    pools.insert(name, pool.clone());
    Ok(pool)
}

/// `larder_in_flight_bytes`, read when it is asked for.
fn register_in_flight(parts: &Parts) -> Result<(), prometheus::Error> {
    let help = "Bytes of blocks that are alive: cached in memory, in flight, or held by readers";
    let gauge = prometheus::IntGauge::new("larder_in_flight_bytes", help)?;
    parts.registry.register(Box::new(crate::meters::Live::new(gauge, parts.budget.clone())))
}

fn status(shelf: &Shelf) -> DatasetStatus {
    let served = |source: Source| shelf.meters.served(source).get();
    let hit_bytes = served(Source::Memory) + served(Source::Disk);
    let ledger = shelf.ledger();
    DatasetStatus {
        dataset: shelf.dataset.name.clone(),
        policy: shelf.policy.name.to_string(),
        cached_objects: ledger.resident_objects(),
        cached_bytes: ledger.resident_bytes(),
        capacity_bytes: shelf.pool.capacity(),
        known_objects: ledger.known_objects(),
        served_bytes: hit_bytes + served(Source::Origin),
        hit_bytes,
        origin_bytes: shelf.meters.origin_bytes.get(),
    }
}

/// Evaluates the conditions and the range of a request against the object's state.
pub(crate) fn settle(
    request: &ReadRequest,
    meta: &Arc<ObjectMeta>,
) -> Result<Option<ByteRange>, ReadError> {
    match request.conditions.evaluate(meta) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Err(ReadError::NotModified(meta.clone())),
        Verdict::PreconditionFailed => return Err(ReadError::PreconditionFailed(meta.clone())),
    }
    let spec = request.range.filter(|_| request.conditions.range_applies(meta));
    let resolve = |spec: RangeSpec| spec.resolve(meta.size);
    spec.map(resolve)
        .transpose()
        .map_err(|outside| ReadError::RangeNotSatisfiable { size: outside.size })
}

/// Reads a pinned object.
///
/// `brought`: the first block came with this reader's ask.
async fn read(
    shelf: &Arc<Shelf>,
    pin: Pin,
    request: &ReadRequest,
    brought: bool,
) -> Result<Answer, ReadError> {
    let meta = pin.pinned.meta.clone();
    let range = settle(request, &meta)?;
    let Some(wanted) = range.or(ByteRange::new(0, meta.size)) else {
        let body = Body::Full(Bytes::new());
        return Ok(Answer { meta, range: None, source: Source::Memory, body });
    };
    let job = shelf.ledger().journal.job(&request.job);
    let mut reader = Reader::new(shelf.clone(), pin, wanted, job);
    let (piece, source) = reader.next().await?;
    let source = if brought && source == Source::Memory { Source::Origin } else { source };
    shelf.meters.served(source).inc_by(piece.len() as u64);
    if reader.done() {
        return Ok(Answer { meta, range, source, body: Body::Full(piece) });
    }
    let shelf = shelf.clone();
    let rest = stream::unfold(Some(reader), move |reader| {
        let shelf = shelf.clone();
        async move {
            let mut reader = reader.filter(|reader| !reader.done())?;
            match reader.next().await {
                Ok((piece, source)) => {
                    shelf.meters.served(source).inc_by(piece.len() as u64);
                    Some((Ok(piece), Some(reader)))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    let body = Body::Stream(stream::once(async { Ok(piece) }).chain(rest).boxed());
    Ok(Answer { meta, range, source, body })
}

pub(crate) fn on_bucket(shelf: &Shelf, bucket: &BucketName, error: OriginError) -> ReadError {
    plain(format!("{}:{bucket}", shelf.dataset.origin), error)
}

/// The origin's refusal of something that is not an object.
pub(crate) fn plain(name: String, error: OriginError) -> ReadError {
    match error {
        OriginError::NotFound(reply)
        | OriginError::Refused(reply)
        | OriginError::RangeNotSatisfiable { reply, .. } => ReadError::Origin(reply),
        OriginError::VersionChanged => ReadError::Busy {
            reason: format!("{name} changed while it was being read"),
            retry_after: Duration::from_secs(1),
        },
        OriginError::Busy { origin, reason, retry_after } => {
            ReadError::Busy { reason: format!("origin {origin}: {reason}"), retry_after }
        }
        OriginError::Unreachable { origin, reason } => ReadError::Unreachable { origin, reason },
        OriginError::BodyBroken => ReadError::BodyBroken,
    }
}
