//! In-memory doubles of what the engine asks: an origin with a foreign writer, and a clock that is
//! held. Writes through the engine are in `raw`.

use super::oracle;
use super::raw::Plan;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_model::{
    BucketEntry, BucketName, ByteRange, Clock, ETag, ErrorReply, FetchRequest, Fetched,
    HeadRequest, ListPage, ListRequest, ListedObject, ObjectKey, ObjectMeta, ObjectName, Origin,
    OriginError, OriginName, RawAnswer, RawRequest, Timestamp,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::watch;

/// A clock that stands still until it is told.
#[derive(Default)]
pub(crate) struct HeldClock(AtomicU64);

impl HeldClock {
    pub(crate) fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis)))
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for HeldClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// One state of an object: since when, and what; `None` when it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) since: u64,
    pub(crate) object: Option<(u64, u64)>,
}

/// An origin whose objects are described by their history.
pub(crate) struct World {
    pub(crate) me: Weak<Self>,
    pub(crate) name: OriginName,
    pub(crate) clock: Arc<HeldClock>,
    history: Mutex<HashMap<String, Vec<State>>>,
    next_version: AtomicU64,
    rng: Mutex<StdRng>,
    pub(crate) down: AtomicBool,
    /// Whether it honours If-Match, as S3 does.
    pub(crate) honours_if_match: bool,
    /// Bytes handed out, and requests by kind.
    pub(crate) fetched: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) lists: AtomicU64,
    /// Whether bodies break now and then.
    pub(crate) flaky: AtomicBool,
    /// Whether its tags are weak, so that nothing can be cached.
    pub(crate) weak: AtomicBool,
    /// The next answer to a read is held, once it is made, until this is open.
    hold: AtomicBool,
    open: watch::Sender<bool>,
    /// What it is to do with requests to come, by number.
    pub(crate) plans: Mutex<HashMap<u64, Arc<Plan>>>,
}

impl World {
    pub(crate) fn new(seed: u64, clock: Arc<HeldClock>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            name: OriginName::new("origin").unwrap(),
            clock,
            history: Mutex::default(),
            next_version: AtomicU64::new(1),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            down: AtomicBool::new(false),
            honours_if_match: (seed / 2).is_multiple_of(2),
            fetched: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            flaky: AtomicBool::new(false),
            weak: AtomicBool::new(false),
            hold: AtomicBool::new(false),
            open: watch::channel(true).0,
            plans: Mutex::default(),
        })
    }

    /// The foreign writer: a new version, or a deletion.
    pub(crate) fn write(&self, key: &str, size: Option<u64>) {
        self.put(key, size.map(|size| (self.new_version(), size)));
    }

    pub(crate) fn new_version(&self) -> u64 {
        self.next_version.fetch_add(1, Ordering::SeqCst)
    }

    /// Puts a state at the end of a history, and tells its place there, from 1 on.
    pub(crate) fn put(&self, key: &str, object: Option<(u64, u64)>) -> usize {
        let since = self.clock.now().0;
        let mut history = self.history.lock().unwrap();
        let states = history.entry(key.to_owned()).or_default();
        states.push(State { since, object });
        states.len()
    }

    pub(crate) fn history(&self, key: &str) -> Vec<State> {
        self.history.lock().unwrap().get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn current(&self, key: &str) -> Option<(u64, u64)> {
        self.history(key).last().and_then(|state| state.object)
    }

    /// Every object whose key begins with `prefix`, as a page.
    fn page(&self, prefix: &str) -> ListPage {
        let history = self.history.lock().unwrap();
        let listed = |(key, states): (&String, &Vec<State>)| {
            let (version, size) = states.last()?.object?;
            Some(ListedObject {
                key: ObjectKey::new(key).unwrap(),
                size,
                etag: Some(etag(version)),
                last_modified: None,
                storage_class: None,
                owner: None,
                checksum_algorithms: Vec::new(),
                checksum_type: None,
            })
        };
        let mut objects: Vec<_> =
            history.iter().filter(|(key, _)| key.starts_with(prefix)).filter_map(listed).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        ListPage { objects, ..ListPage::default() }
    }

    fn roll(&self, sides: u32) -> u32 {
        self.rng.lock().unwrap().random_range(0..sides)
    }

    async fn dawdle(&self) {
        for _ in 0..self.roll(4) {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn unreachable(&self) -> OriginError {
        let reason = "it is down".to_owned();
        OriginError::Unreachable { origin: self.name.clone(), reason }
    }

    /// An answer takes its time to arrive, whatever it says.
    async fn arrive(&self) {
        self.dawdle().await;
        if self.hold.swap(false, Ordering::SeqCst) {
            let mut open = self.open.subscribe();
            drop(open.wait_for(|open| *open).await);
        }
    }

    /// Has the next answer to a read held back, once it is made.
    pub(crate) fn hold_next(&self) {
        self.open.send_replace(false);
        self.hold.store(true, Ordering::SeqCst);
    }

    /// Lets go of the answer that is held back.
    pub(crate) fn release(&self) {
        self.open.send_replace(true);
    }

    fn meta(&self, version: u64, size: u64) -> ObjectMeta {
        let mut meta = meta(version, size);
        if self.weak.load(Ordering::SeqCst) {
            meta.etag = ETag::new(&format!("W/{}", etag(version)));
        }
        meta
    }

    fn state(&self, name: &ObjectName) -> Result<(u64, u64), OriginError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(self.unreachable());
        }
        self.current(name.key.as_str())
            .ok_or_else(|| OriginError::NotFound(reply(404, "NoSuchKey")))
    }
}

pub(crate) fn etag(version: u64) -> ETag {
    ETag::new(&format!("\"v{version}\"")).unwrap()
}

/// The version that an answer claims to be.
pub(crate) fn version_of(meta: &ObjectMeta) -> u64 {
    version_in(meta.etag.as_ref().unwrap())
}

pub(crate) fn version_in(etag: &ETag) -> u64 {
    etag.opaque().trim_start_matches('v').parse().unwrap()
}

fn meta(version: u64, size: u64) -> ObjectMeta {
    let mut headers = http::HeaderMap::new();
    headers.insert("etag", etag(version).as_str().parse().unwrap());
    ObjectMeta { size, etag: Some(etag(version)), version_id: None, headers }
}

fn reply(status: u16, code: &str) -> ErrorReply {
    ErrorReply {
        status,
        code: code.to_owned(),
        message: String::new(),
        headers: http::HeaderMap::new(),
        body: Bytes::new(),
    }
}

#[async_trait::async_trait]
impl Origin for World {
    fn name(&self) -> &OriginName {
        &self.name
    }

    async fn head(&self, request: HeadRequest) -> Result<ObjectMeta, OriginError> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        self.dawdle().await;
        let state = self.state(&request.name);
        self.arrive().await;
        let (version, size) = state?;
        Ok(self.meta(version, size))
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Fetched, OriginError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.dawdle().await;
        let state = self.state(&request.name);
        self.arrive().await;
        let (version, size) = state?;
        // Without If-Match the body is of the new version, and says so: the engine must notice.
        let other = request.if_match.as_ref().is_some_and(|wanted| *wanted != etag(version));
        if other && self.honours_if_match {
            return Err(OriginError::VersionChanged);
        }
        let range = match request.range {
            None => ByteRange::new(0, size),
            Some(range) => match range.clip(size) {
                Some(range) => Some(range),
                None => {
                    let size = Some(size);
                    let reply = reply(416, "InvalidRange");
                    return Err(OriginError::RangeNotSatisfiable { size, reply });
                }
            },
        };
        self.dawdle().await;
        let key = request.name.key.as_str().to_owned();
        let bytes =
            range.map_or_else(Vec::new, |r| oracle::bytes(&key, version, r.start(), r.end()));
        self.fetched.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        let breaks = self.flaky.load(Ordering::SeqCst) && self.roll(4) == 0;
        let keep = if breaks { self.roll(bytes.len() as u32 + 1) as usize } else { bytes.len() };
        let frame = 1 + self.roll(200) as usize;
        let mut frames: Vec<Result<Bytes, OriginError>> =
            bytes[..keep].chunks(frame).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        if breaks {
            let reason = "the body broke".to_owned();
            frames.push(Err(OriginError::Unreachable { origin: self.name.clone(), reason }));
        }
        let body = stream::iter(frames)
            .then(|frame| async {
                tokio::task::yield_now().await;
                frame
            })
            .boxed();
        Ok(Fetched { meta: self.meta(version, size), range, body })
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, OriginError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.dawdle().await;
        let down = self.down.load(Ordering::SeqCst);
        let page = self.page(&request.prefix);
        self.arrive().await;
        if down { Err(self.unreachable()) } else { Ok(page) }
    }

    async fn list_buckets(&self) -> Result<Vec<BucketEntry>, OriginError> {
        Ok(Vec::new())
    }

    async fn head_bucket(&self, _bucket: &BucketName) -> Result<http::HeaderMap, OriginError> {
        Ok(http::HeaderMap::new())
    }

    async fn raw(&self, request: RawRequest) -> Result<RawAnswer, OriginError> {
        self.carry_out(request).await
    }

    async fn bucket_location(&self, _bucket: &BucketName) -> Result<String, OriginError> {
        Ok(String::new())
    }
}
