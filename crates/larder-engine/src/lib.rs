//! The data path of Larder on ports alone.
mod api;
pub use api::{Answer, Body, Head, ReadError, ReadRequest, Source};
use larder_model::*;
use std::sync::Arc;

/// stub of the facade, being written; signatures are final
pub struct Engine;
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
    /// Bytes that residents may take.
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
impl Engine {
    /// Opens the catalog, reconciles it with the store and starts the stewards of the datasets.
    /// # Errors: a dataset without its origin or pool
    pub async fn open(_parts: Parts) -> Result<Arc<Self>, OpenError> {
        unimplemented!()
    }
    /// HEAD
    pub async fn head(&self, _permit: &Permit, _request: ReadRequest) -> Result<Head, ReadError> {
        unimplemented!()
    }
    /// GET
    pub async fn get(
        self: &Arc<Self>,
        _permit: &Permit,
        _request: ReadRequest,
    ) -> Result<Answer, ReadError> {
        unimplemented!()
    }
    /// One page of keys at the origin, passed through. `bucket` is the origin's. The permit must be for a dataset of that origin and bucket; what the
    /// caller may show of the page is the gateway's to filter.
    pub async fn list(
        &self,
        _permit: &Permit,
        _request: ListRequest,
    ) -> Result<ListPage, ReadError> {
        unimplemented!()
    }
    /// The buckets of the permit's dataset's origin.
    pub async fn list_buckets(&self, _permit: &Permit) -> Result<Vec<BucketEntry>, ReadError> {
        unimplemented!()
    }
    /// Whether the origin has this bucket (the origin's name); its headers.
    pub async fn head_bucket(
        &self,
        _permit: &Permit,
        _bucket: &BucketName,
    ) -> Result<http::HeaderMap, ReadError> {
        unimplemented!()
    }
    /// The bucket's location constraint.
    pub async fn bucket_location(
        &self,
        _permit: &Permit,
        _bucket: &BucketName,
    ) -> Result<String, ReadError> {
        unimplemented!()
    }
    /// Datasets as they stand.
    pub fn status(&self) -> Vec<DatasetStatus> {
        unimplemented!()
    }
    /// Bytes of blocks in flight or held by readers, beyond what the store's memory tier may hold... (metric larder_in_flight_bytes is registered by the engine)
    pub fn in_flight_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Waits for fills and writes the catalog. Called once, after the last request; the store is closed by the caller afterwards.
    pub async fn close(&self) {
        unimplemented!()
    }
}
/// The parts do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A dataset names an origin that is not there.
    #[error("dataset {0} names origin {1}, which is not configured")]
    NoOrigin(DatasetName, OriginName),
    /// A dataset's pool is not among the store's.
    #[error("dataset {0} needs pool {1}, which the store does not have")]
    NoPool(DatasetName, PoolName),
}
