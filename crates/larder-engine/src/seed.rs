//! Admission on write: the body of a small write, kept until the origin has said what became of it.
//!
//! Invariant: a block is made only of bytes that the origin acknowledged under an ETag, and only
//! after the origin, asked again, told the same ETag and length for the object, while no other write
//! through us met this one. The answer to a PUT does not tell what a reader must be told
//! (Last-Modified, and whatever the origin makes of the headers), so it is never used for that.

use crate::Changes;
use crate::fence::Fence;
use crate::fill::keep;
use crate::pin::Landing;
use crate::shelf::{Shelf, lock};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{ETAG, HeaderMap};
use http::{HeaderValue, Method};
use larder_model::{Block, HeadRequest, ObjectMeta, ObjectName, RawBody, RawRequest, Reserve};
use std::sync::{Arc, Mutex};

/// What a client says when it keeps the key to itself: such objects are never cached.
const CUSTOMER_KEY: &str = "x-amz-server-side-encryption-customer-";

/// The bytes of one write.
pub(crate) struct Seed {
    shelf: Arc<Shelf>,
    name: ObjectName,
    len: u64,
    bytes: Arc<Mutex<BytesMut>>,
    reserve: Reserve,
}

/// What the origin said of the write.
struct Receipt {
    etag: HeaderValue,
    version_id: Option<HeaderValue>,
}

impl Seed {
    /// Begins to copy the body on its way, if it is a plain PUT of one block at most, the dataset
    /// wants such objects, and there is memory for it now.
    pub(crate) fn take(
        shelf: &Arc<Shelf>,
        raw: &mut RawRequest,
        changes: &Changes,
    ) -> Option<Self> {
        let (Some(bucket), Some(key)) = (&raw.bucket, &raw.key) else { return None };
        let plain = shelf.dataset.admit_writes
            && raw.method == Method::PUT
            && raw.query.iter().all(|(name, _)| name == "x-id")
            && *changes == Changes::Objects(vec![key.clone()])
            && !raw.headers.keys().any(|name| name.as_str().starts_with(CUSTOMER_KEY));
        let len = match &raw.body {
            RawBody::Empty => 0,
            RawBody::Whole(bytes) => bytes.len() as u64,
            RawBody::Stream { len, .. } => *len,
        };
        if !plain || len == 0 || len > u64::from(shelf.dataset.block_bytes) || !shelf.plenty() {
            return None;
        }
        let reserve = shelf.budget.try_reserve(Block::sealed_bytes(len as usize) as u64)?;
        let name = ObjectName {
            origin: shelf.dataset.origin.clone(),
            bucket: bucket.clone(),
            key: key.clone(),
            version_id: None,
        };
        let bytes = tee(&mut raw.body, len as usize);
        Some(Self { shelf: shelf.clone(), name, len, bytes, reserve })
    }

    /// Has the object taken in, in the background, after the origin acknowledged it. The settled
    /// fence stays up until then, in this dataset only: so another write that comes in between is
    /// noticed.
    pub(crate) fn plant(self, status: u16, headers: &HeaderMap, mut fence: Fence) {
        let whole = lock(&self.bytes).len() as u64 == self.len;
        let Some(etag) = headers.get(ETAG).filter(|_| whole && status == 200) else { return };
        // A reader who came first brings it by himself.
        let Some(landing) = self.shelf.begin(&self.name) else { return };
        let version_id = headers.get("x-amz-version-id").cloned();
        let receipt = Receipt { etag: etag.clone(), version_id };
        fence.narrow(&self.shelf);
        self.shelf.tasks.clone().spawn(self.grow(receipt, landing, fence));
    }

    async fn grow(self, receipt: Receipt, landing: Landing, fence: Fence) {
        let Self { shelf, name, len, bytes, reserve } = self;
        let request = HeadRequest { name: name.clone(), part_number: None, checksums: false };
        let meta = match shelf.origin.head(request).await {
            Ok(meta) => Arc::new(meta),
            Err(error) => return landing.refused(&name, error),
        };
        let flying = if meta.size == len && receipt.names(&meta) {
            let Some((pin, flying)) = shelf.observe_and_claim(&name, &meta, landing.flight())
            else {
                return landing.uncacheable(meta, None);
            };
            landing.known(pin, false);
            flying
        } else {
            match shelf.observe(&name, &meta, landing.flight(), false) {
                Some(pin) => landing.known(pin, false),
                None => landing.uncacheable(meta, None),
            }
            None
        };
        drop(fence);
        if let Some(flying) = flying {
            let bytes = std::mem::take(&mut *lock(&bytes)).freeze();
            flying.arriving().push(bytes);
            let block = flying.arriving().seal(reserve);
            keep(flying, block).await;
        }
    }
}

impl Receipt {
    /// Whether this is the version that was written.
    fn names(&self, meta: &ObjectMeta) -> bool {
        let etag = meta.etag.as_ref().is_some_and(|etag| self.etag == etag.as_str());
        let id = |id: &HeaderValue| meta.version_id.as_ref().is_some_and(|own| id == own.as_str());
        etag && self.version_id.as_ref().is_none_or(id)
    }
}

/// Has the body copied on its way, up to `len` bytes.
fn tee(body: &mut RawBody, len: usize) -> Arc<Mutex<BytesMut>> {
    let copy = Arc::new(Mutex::new(BytesMut::with_capacity(len)));
    let add = move |copy: &Mutex<BytesMut>, frame: &Bytes| {
        let mut copy = lock(copy);
        // One byte too many tells a body that is longer than it said.
        let room = (len + 1).saturating_sub(copy.len()).min(frame.len());
        copy.extend_from_slice(&frame[..room]);
    };
    match body {
        RawBody::Empty => {}
        RawBody::Whole(bytes) => add(&copy, bytes),
        RawBody::Stream { bytes, .. } => {
            let from = std::mem::replace(bytes, futures_util::stream::empty().boxed());
            let to = copy.clone();
            let passing = from.inspect(move |frame| {
                if let Ok(frame) = frame {
                    add(&to, frame);
                }
            });
            *bytes = passing.boxed();
        }
    }
    copy
}
