//! Requests that go around the cache: writes, and reads of what is not cached.
//!
//! Invariant: a write is fenced in every dataset over its bucket before the origin hears of it, and
//! what was known of its names is let go before its caller can take it for done (see `fence`).
//!
//! When that is: most writes are done when the status is there. CopyObject, UploadPartCopy and
//! CompleteMultipartUpload answer 200 first and tell failure, or when they are done, in the body (S3
//! API reference, "CompleteMultipartUpload"); DeleteObjects may delete while it answers. So what was
//! known is let go once the status is there, before the caller sees it; and where a body may follow a
//! success, the fence stays up, the last of the body is held back until the origin has ended it, and
//! all is let go once more before it is handed out. White space that comes before the result goes out
//! at once: it keeps connections alive.

use crate::engine::{Engine, plain};
use crate::fence::{Fence, Reach};
use crate::seed::Seed;
use crate::shelf::Shelf;
use crate::{Changes, PassRequest, Passed, ReadError};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_LENGTH;
use larder_model::{
    Action, BucketName, BucketRule, ObjectKey, ObjectName, OriginName, Permit, RawAnswer,
};
use std::sync::Arc;

impl Engine {
    /// Passes a request on around the cache.
    ///
    /// Whoever reads after a change was acknowledged, through this engine and any dataset of it,
    /// gets nothing older. A change is acknowledged when [`Passed`] is returned with an empty body,
    /// or when the last of its body was handed out.
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
            200..300 if !empty => {
                fence.let_go();
                hold(body.boxed(), fence)
            }
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

/// A body whose last frame waits until its fence has fallen.
struct Held<S> {
    body: S,
    fence: Fence,
    last: Option<Bytes>,
}

/// Hands a body out one frame late, and its last frame when the fence has fallen. The fence falls as
/// well when the body breaks off, or is dropped.
fn hold(body: BoxStream<'static, Frame>, fence: Fence) -> BoxStream<'static, Frame> {
    let held = Held { body, fence, last: None };
    stream::unfold(Some(held), |held| async { held?.step().await }).boxed()
}

impl<S: Stream<Item = Frame> + Unpin> Held<S> {
    async fn step(mut self) -> Option<(Frame, Option<Self>)> {
        loop {
            match self.body.next().await {
                Some(Ok(frame)) => {
                    if self.last.is_none() && frame.iter().all(u8::is_ascii_whitespace) {
                        return Some((Ok(frame), Some(self)));
                    }
                    if let Some(before) = self.last.replace(frame) {
                        return Some((Ok(before), Some(self)));
                    }
                }
                Some(Err(error)) => {
                    drop(self.fence);
                    return Some((Err(error), None));
                }
                None => {
                    drop(self.fence);
                    return self.last.map(|last| (Ok(last), None));
                }
            }
        }
    }
}
