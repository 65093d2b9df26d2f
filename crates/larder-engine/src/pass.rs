//! Requests that go around the cache: writes, and reads of what is not cached.
//!
//! Invariant: a write is fenced in every dataset over its bucket from before the origin hears of it
//! until its answer is complete (see `fence`).
//!
//! When that is: most writes are done when the status is there, and an answer without a body goes out
//! when the fence has fallen. CopyObject, UploadPartCopy and CompleteMultipartUpload answer 200 first
//! and tell in the body when they are done, or that they failed (S3 API reference,
//! "CompleteMultipartUpload"); DeleteObjects may delete while it answers. So where a body may follow a
//! success, the fence falls at the body's end. A caller who takes the write for done before that end,
//! at whatever byte, comes to a fence that is up: whoever reads after him is answered by an ask that
//! began later still. So no byte needs to be held back.

use crate::engine::{Engine, plain};
use crate::fence::{Fence, Reach};
use crate::seed::Seed;
use crate::shelf::Shelf;
use crate::{Changes, PassRequest, Passed, ReadError};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::CONTENT_LENGTH;
use larder_model::{
    Action, BucketName, BucketRule, ObjectKey, ObjectName, OriginName, Permit, RawAnswer,
};
use std::sync::Arc;

impl Engine {
    /// Passes a request on around the cache.
    ///
    /// Whoever reads after a change was acknowledged, through this engine and any dataset of it,
    /// gets nothing older. The bookkeeping for that lasts until the answer's body has ended or was
    /// dropped, so a caller should see to either.
    ///
    /// Dropping the call, or the answer's body, breaks the request off; the origin may do it all the
    /// same, then or later. The same holds for an error that is no answer of the origin. Readers may
    /// then find the older version for as long as the dataset's freshness allows, counted from when
    /// the origin was asked, as after a foreign write; those who come after somebody saw the newer
    /// one during the call do not.
    ///
    /// # Errors
    ///
    /// [`ReadError::NotPermitted`] when a permit does not cover what is named: the request's object,
    /// every object that it may change (which needs a permit to write), or a copy's source (which
    /// needs a permit to read, at the same origin). A change of a whole bucket needs a dataset that
    /// covers all of it. Otherwise as [`larder_model::Origin::raw`].
    pub async fn pass(&self, permit: &Permit, request: PassRequest) -> Result<Passed, ReadError> {
        let shelf = self.clear(permit, &request)?;
        let PassRequest { mut raw, changes, source } = request;
        let seed = match source {
            None => Seed::take(shelf, &mut raw, &changes),
            Some(_) => None,
        };
        let reach = raw.bucket.as_ref().and_then(|bucket| Reach::of(bucket, changes));
        let fence = reach.map(|reach| {
            let shelves = self.over(&shelf.dataset.origin, &reach.bucket);
            Fence::raise(shelves, reach)
        });
        let name = shelf.dataset.name.to_string();
        let answer = shelf.origin.raw(raw).await.map_err(|error| plain(name.clone(), error))?;
        let RawAnswer { status, headers, body } = answer;
        let body = body.map(move |frame| frame.map_err(|error| plain(name.clone(), error)));
        let Some(mut fence) = fence else {
            return Ok(Passed { status, headers, body: body.boxed() });
        };
        let empty = status == 204 || headers.get(CONTENT_LENGTH).is_some_and(|len| len == "0");
        let body = match status {
            200..300 if !empty => guard(body.boxed(), fence),
            200..300 => {
                fence.settle();
                match seed {
                    Some(seed) => seed.plant(status, &headers, fence),
                    None => drop(fence),
                }
                body.boxed()
            }
            _ => {
                if (400..500).contains(&status) {
                    fence.refused();
                }
                drop(fence);
                body.boxed()
            }
        };
        Ok(Passed { status, headers, body })
    }

    /// The shelf that the permits open for a request: I3.
    fn clear(&self, permit: &Permit, request: &PassRequest) -> Result<&Arc<Shelf>, ReadError> {
        let shelf = self.of(permit)?;
        let dataset = &shelf.dataset;
        let refuse = |name: String| {
            let dataset = dataset.name.to_string();
            Err(ReadError::NotPermitted { dataset, name })
        };
        let changes = request.changes != Changes::Nothing;
        let Some(bucket) = &request.raw.bucket else {
            let whole = dataset.bucket == BucketRule::Every && dataset.prefix.is_empty();
            return match whole && !changes && request.source.is_none() {
                true => Ok(shelf),
                false => refuse(format!("the whole of origin {}", dataset.origin)),
            };
        };
        self.bucket_shelf(permit, bucket)?;
        let object = |key: &ObjectKey| ObjectName {
            origin: dataset.origin.clone(),
            bucket: bucket.clone(),
            key: key.clone(),
            version_id: None,
        };
        if let Some(key) = &request.raw.key {
            self.shelf(permit, &object(key))?;
        }
        if changes && permit.action() != Action::Write {
            return refuse(format!("a change in bucket {bucket}"));
        }
        match &request.changes {
            Changes::Nothing => {}
            Changes::Objects(keys) => {
                for key in keys {
                    self.shelf(permit, &object(key))?;
                }
            }
            Changes::Bucket if dataset.prefix.is_empty() => {}
            Changes::Bucket => return refuse(format!("the whole of bucket {bucket}")),
        }
        if let Some((read, source)) = &request.source {
            self.shelf(read, source)?;
            if read.action() != Action::Read || source.origin != dataset.origin {
                return refuse(format!("a copy of {source}"));
            }
        }
        Ok(shelf)
    }

    /// The datasets over a bucket, whatever their prefixes: their listings may show all of it.
    fn over(&self, origin: &OriginName, bucket: &BucketName) -> Vec<Arc<Shelf>> {
        let over = |shelf: &&Arc<Shelf>| {
            shelf.dataset.origin == *origin
                && match &shelf.dataset.bucket {
                    BucketRule::One(own) => own == bucket,
                    BucketRule::Every => true,
                }
        };
        self.shelves.values().filter(over).cloned().collect()
    }
}

type Frame = Result<Bytes, ReadError>;

/// Keeps the fence up until the body has ended, has broken off, or is dropped.
fn guard(body: BoxStream<'static, Frame>, fence: Fence) -> BoxStream<'static, Frame> {
    let step = |(mut body, fence): (BoxStream<'static, Frame>, Fence)| async move {
        let frame = body.next().await?;
        Some((frame, (body, fence)))
    };
    stream::unfold((body, fence), step).boxed()
}
