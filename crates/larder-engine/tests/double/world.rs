//! In-memory doubles of everything that the engine reaches through ports: an origin with a foreign
//! writer, a store that can lose and spoil blocks, a catalog, and a clock that is held.

use super::oracle;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_model::{
    Block, BlockKey, BlockStore, BucketEntry, BucketName, ByteRange, Catalog, CatalogChange,
    CatalogError, Clock, DatasetName, ETag, ErrorReply, FetchRequest, Fetched, HeadRequest,
    ListPage, ListRequest, Load, ObjectMeta, ObjectName, ObjectRecord, Origin, OriginError,
    OriginName, PoolName, Reserve, Stored, Tier, Timestamp,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    name: OriginName,
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
    /// Whether bodies break now and then.
    pub(crate) flaky: AtomicBool,
}

impl World {
    pub(crate) fn new(seed: u64, clock: Arc<HeldClock>) -> Arc<Self> {
        Arc::new(Self {
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
            flaky: AtomicBool::new(false),
        })
    }

    /// The foreign writer: a new version, or a deletion.
    pub(crate) fn write(&self, key: &str, size: Option<u64>) {
        let since = self.clock.now().0;
        let object = size.map(|size| (self.next_version.fetch_add(1, Ordering::SeqCst), size));
        self.history
            .lock()
            .unwrap()
            .entry(key.to_owned())
            .or_default()
            .push(State { since, object });
    }

    pub(crate) fn history(&self, key: &str) -> Vec<State> {
        self.history.lock().unwrap().get(key).cloned().unwrap_or_default()
    }

    fn current(&self, key: &str) -> Option<(u64, u64)> {
        self.history(key).last().and_then(|state| state.object)
    }

    fn roll(&self, sides: u32) -> u32 {
        self.rng.lock().unwrap().random_range(0..sides)
    }

    async fn dawdle(&self) {
        for _ in 0..self.roll(4) {
            tokio::task::yield_now().await;
        }
    }

    fn state(&self, name: &ObjectName) -> Result<(u64, u64), OriginError> {
        if self.down.load(Ordering::SeqCst) {
            let reason = "it is down".to_owned();
            return Err(OriginError::Unreachable { origin: self.name.clone(), reason });
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
    meta.etag.as_ref().unwrap().opaque().trim_start_matches('v').parse().unwrap()
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
        // An answer takes its time to arrive, whatever it says.
        let state = self.state(&request.name);
        self.dawdle().await;
        let (version, size) = state?;
        Ok(meta(version, size))
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Fetched, OriginError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.dawdle().await;
        let state = self.state(&request.name);
        self.dawdle().await;
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
        Ok(Fetched { meta: meta(version, size), range, body })
    }

    async fn list(&self, _request: ListRequest) -> Result<ListPage, OriginError> {
        Ok(ListPage::default())
    }

    async fn list_buckets(&self) -> Result<Vec<BucketEntry>, OriginError> {
        Ok(Vec::new())
    }

    async fn head_bucket(&self, _bucket: &BucketName) -> Result<http::HeaderMap, OriginError> {
        Ok(http::HeaderMap::new())
    }

    async fn raw(
        &self,
        _request: larder_model::RawRequest,
    ) -> Result<larder_model::RawAnswer, OriginError> {
        let reason = "this origin does not pass requests on".to_owned();
        Err(OriginError::Unreachable { origin: self.name().clone(), reason })
    }

    async fn bucket_location(&self, _bucket: &BucketName) -> Result<String, OriginError> {
        Ok(String::new())
    }
}

/// A store: what is "on the SSD" survives a restart, what is in memory is a small part of it.
#[derive(Default)]
pub(crate) struct Shelves {
    disk: Mutex<HashMap<BlockKey, Vec<u8>>>,
    memory: Mutex<Vec<(BlockKey, Block)>>,
}

const MEMORY_BLOCKS: usize = 8;

impl Shelves {
    /// Loses, or spoils, the block at this place of an arbitrary but fixed order.
    pub(crate) fn harm(&self, at: usize, spoil: bool) {
        let mut disk = self.disk.lock().unwrap();
        let mut keys: Vec<_> = disk.keys().copied().collect();
        keys.sort_unstable();
        if keys.is_empty() {
            return;
        }
        let key = keys[at % keys.len()];
        self.memory.lock().unwrap().retain(|(other, _)| *other != key);
        match disk.get_mut(&key) {
            Some(bytes) if spoil => {
                let at = bytes.len() / 2;
                bytes[at] ^= 0x40;
            }
            _ => {
                disk.remove(&key);
            }
        }
    }

    /// What a restart leaves.
    pub(crate) fn restart(&self) {
        self.memory.lock().unwrap().clear();
    }

    pub(crate) fn blocks(&self) -> usize {
        self.disk.lock().unwrap().len()
    }
}

#[async_trait::async_trait]
impl BlockStore for Shelves {
    fn peek(&self, _pool: &PoolName, key: BlockKey) -> Option<Block> {
        let memory = self.memory.lock().unwrap();
        memory.iter().find(|(other, _)| *other == key).map(|(_, block)| block.clone())
    }

    async fn load(&self, pool: &PoolName, key: BlockKey) -> Load {
        tokio::task::yield_now().await;
        if let Some(block) = self.peek(pool, key) {
            return Load::Hit(block, Tier::Memory);
        }
        let Some(bytes) = self.disk.lock().unwrap().get(&key).cloned() else { return Load::Miss };
        match Block::open(key, bytes, Reserve::none()) {
            Ok(block) => Load::Hit(block, Tier::Disk),
            Err(_) => {
                self.disk.lock().unwrap().remove(&key);
                Load::Corrupt
            }
        }
    }

    async fn store(&self, _pool: &PoolName, block: Block) -> Stored {
        {
            let mut memory = self.memory.lock().unwrap();
            memory.push((block.key(), block.clone()));
            if memory.len() > MEMORY_BLOCKS {
                drop(memory.remove(0));
            }
        }
        tokio::task::yield_now().await;
        self.disk.lock().unwrap().insert(block.key(), block.sealed().to_vec());
        Stored::Kept
    }

    fn remove(&self, _pool: &PoolName, key: BlockKey) {
        self.memory.lock().unwrap().retain(|(other, _)| *other != key);
        self.disk.lock().unwrap().remove(&key);
    }

    fn contains(&self, _pool: &PoolName, key: BlockKey) -> bool {
        self.disk.lock().unwrap().contains_key(&key)
    }

    async fn adopt(&self, _pool: &PoolName, keys: Vec<BlockKey>) -> Vec<bool> {
        let disk = self.disk.lock().unwrap();
        keys.iter().map(|key| disk.contains_key(key)).collect()
    }

    fn stored_bytes(&self, _pool: &PoolName, len: u32) -> u64 {
        u64::from(len) + 16
    }

    fn persistent(&self, _pool: &PoolName) -> bool {
        true
    }

    async fn close(&self) {}
}

/// A catalog.
#[derive(Default)]
pub(crate) struct Records(Mutex<HashMap<(DatasetName, ObjectName), ObjectRecord>>);

#[async_trait::async_trait]
impl Catalog for Records {
    async fn load(&self) -> Result<Vec<ObjectRecord>, CatalogError> {
        Ok(self.0.lock().unwrap().values().cloned().collect())
    }

    async fn apply(&self, changes: Vec<CatalogChange>) -> Result<(), CatalogError> {
        tokio::task::yield_now().await;
        let mut records = self.0.lock().unwrap();
        for change in changes {
            match change {
                CatalogChange::Put(record) => {
                    records.insert((record.dataset.clone(), record.name.clone()), record);
                }
                CatalogChange::Remove(dataset, name) => {
                    records.remove(&(dataset, name));
                }
            }
        }
        Ok(())
    }
}
