//! The port through which the gateway reads. The engine implements it; tests use a double.

use http::HeaderMap;
use larder_engine::{Answer, Engine, Head, PassRequest, Passed, ReadError, ReadRequest};
use larder_model::{BucketEntry, BucketName, ListPage, ListRequest, Permit};
use std::sync::Arc;

/// What the gateway asks of the data path. Every call names its permit.
#[async_trait::async_trait]
pub trait Reads: Send + Sync + 'static {
    /// HEAD of an object.
    async fn head(&self, permit: &Permit, request: ReadRequest) -> Result<Head, ReadError>;

    /// GET of an object, if it can be answered at once; `None` leaves no trace.
    fn get_now(&self, permit: &Permit, request: &ReadRequest) -> Option<Answer>;

    /// GET of an object.
    async fn get(&self, permit: &Permit, request: ReadRequest) -> Result<Answer, ReadError>;

    /// One page of keys at the origin. `request.bucket` is the origin's name.
    async fn list(&self, permit: &Permit, request: ListRequest) -> Result<ListPage, ReadError>;

    /// The buckets of the permit's dataset's origin.
    async fn list_buckets(&self, permit: &Permit) -> Result<Vec<BucketEntry>, ReadError>;

    /// Whether the origin has this bucket; its headers.
    async fn head_bucket(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<HeaderMap, ReadError>;

    /// The bucket's location constraint; empty for the default region.
    async fn bucket_location(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<String, ReadError>;

    /// A request that goes around the cache, in the origin's names.
    async fn pass(&self, permit: &Permit, request: PassRequest) -> Result<Passed, ReadError>;
}

#[async_trait::async_trait]
impl Reads for Arc<Engine> {
    async fn head(&self, permit: &Permit, request: ReadRequest) -> Result<Head, ReadError> {
        Engine::head(self, permit, request).await
    }

    fn get_now(&self, permit: &Permit, request: &ReadRequest) -> Option<Answer> {
        Engine::get_now(self, permit, request)
    }

    async fn get(&self, permit: &Permit, request: ReadRequest) -> Result<Answer, ReadError> {
        Engine::get(self, permit, request).await
    }

    async fn list(&self, permit: &Permit, request: ListRequest) -> Result<ListPage, ReadError> {
        Engine::list(self, permit, request).await
    }

    async fn list_buckets(&self, permit: &Permit) -> Result<Vec<BucketEntry>, ReadError> {
        Engine::list_buckets(self, permit).await
    }

    async fn head_bucket(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<HeaderMap, ReadError> {
        Engine::head_bucket(self, permit, bucket).await
    }

    async fn bucket_location(
        &self,
        permit: &Permit,
        bucket: &BucketName,
    ) -> Result<String, ReadError> {
        Engine::bucket_location(self, permit, bucket).await
    }

    async fn pass(&self, permit: &Permit, request: PassRequest) -> Result<Passed, ReadError> {
        Engine::pass(self, permit, request).await
    }
}
