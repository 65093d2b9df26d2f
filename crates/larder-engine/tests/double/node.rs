//! A node made of doubles: an engine over a world, with one dataset or several over its one bucket.

use super::oracle;
use super::raw::Plan;
use super::store::{Records, Shelves};
use super::world::{HeldClock, World, version_of};
use bytes::Bytes;
use futures_util::StreamExt;
use larder_engine::{Answer, Body, Changes, Engine, Parts, PassRequest, ReadError, ReadRequest};
use larder_model::{
    Access, Action, BucketName, Budget, Conditions, Dataset, Freshness, Grants, ListDialect,
    ListRequest, ObjectKey, ObjectName, OriginName, Permit, Policy, PolicyName, PolicySetup,
    PoolSpec, Principal, Quota, RangeSpec, RawBody, RawRequest, VersionId,
};
use std::sync::Arc;

/// Small enough that a few hundred bytes are several blocks and a few thousand several spans.
pub(crate) const BLOCK: u32 = 64;

/// What outlives a restart, and the engine that does not.
pub(crate) struct Node {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<Shelves>,
    pub(crate) records: Arc<Records>,
    pub(crate) datasets: Vec<Arc<Dataset>>,
    pub(crate) engine: Arc<Engine>,
    /// The engine's metrics.
    pub(crate) registry: prometheus::Registry,
    capacity: u64,
    grants: Grants,
    policies: Policies,
}

/// Makes a dataset's policy.
pub(crate) type Policies = fn(&PolicyName, &PolicySetup) -> Box<dyn Policy>;

/// What a whole read amounted to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All bytes, of this version.
    Whole { version: u64, size: u64 },
    /// The object is not there.
    Absent,
    /// An error before the first byte.
    Refused(ReadError),
    /// Some bytes of this version, then a broken body.
    Broken { version: u64 },
}

/// A dataset over the one bucket, with a quota of its own.
pub(crate) fn dataset(name: &str, freshness: Freshness, policy: &str, capacity: u64) -> Dataset {
    let mut dataset = Dataset::example(name, "bucket", "");
    dataset.access = Access::ReadWrite;
    dataset.freshness = freshness;
    dataset.block_bytes = BLOCK;
    dataset.policy = PolicyName::new(policy).unwrap();
    dataset.quota = Some(Quota { memory: 512, disk: capacity, high: 0.95, low: 0.8 });
    dataset
}

impl Node {
    pub(crate) async fn start(
        world: Arc<World>,
        freshness: Freshness,
        policy: &str,
        capacity: u64,
    ) -> Self {
        let one = dataset("data", freshness, policy, capacity);
        Self::of(world, vec![one], capacity, builtin).await
    }

    pub(crate) async fn of(
        world: Arc<World>,
        datasets: Vec<Dataset>,
        capacity: u64,
        policies: Policies,
    ) -> Self {
        let datasets: Vec<_> = datasets.into_iter().map(Arc::new).collect();
        let (store, records) = (Arc::new(Shelves::default()), Arc::new(Records::default()));
        let (engine, registry) =
            open(&world, &store, &records, &datasets, capacity, policies).await;
        let mut grants = Grants::new();
        for dataset in &datasets {
            grants.allow("K", dataset.name.clone(), Access::ReadWrite);
        }
        Self { world, store, records, datasets, engine, registry, capacity, grants, policies }
    }

    /// Ends and begins again. A clean end writes the catalog; a kill does not.
    pub(crate) async fn restart(&mut self, clean: bool) {
        if clean {
            self.engine.close().await;
        }
        self.store.restart();
        let (world, store, records) = (&self.world, &self.store, &self.records);
        (self.engine, self.registry) =
            open(world, store, records, &self.datasets, self.capacity, self.policies).await;
    }

    pub(crate) fn request(&self, key: &str, range: Option<RangeSpec>) -> ReadRequest {
        ReadRequest {
            name: object(key),
            range,
            part_number: None,
            conditions: Conditions::default(),
            checksums: false,
            job: "test".into(),
        }
    }

    /// A request for the version `null`, which is the current one in a bucket without versions.
    pub(crate) fn null_request(&self, key: &str, range: Option<RangeSpec>) -> ReadRequest {
        let mut request = self.request(key, range);
        request.name.version_id = VersionId::new("null").ok();
        request
    }

    pub(crate) fn list_request(&self, prefix: &str) -> ListRequest {
        ListRequest {
            bucket: BucketName::new("bucket").unwrap(),
            dialect: ListDialect::V2,
            prefix: prefix.to_owned(),
            delimiter: None,
            max_keys: 1000,
            marker: None,
            token: None,
            start_after: None,
            fetch_owner: false,
        }
    }

    /// To read the first dataset.
    pub(crate) fn permit(&self) -> Permit {
        self.permit_to(0, Action::Read)
    }

    pub(crate) fn permit_to(&self, at: usize, action: Action) -> Permit {
        self.grants.authorize(&Principal::verified("K"), &self.datasets[at], action).unwrap()
    }

    pub(crate) async fn read(&self, request: ReadRequest) -> Outcome {
        self.read_from(0, request).await
    }

    /// Reads, checks every byte against the version that the answer claims, and tells what it was.
    pub(crate) async fn read_from(&self, at: usize, request: ReadRequest) -> Outcome {
        let key = request.name.key.as_str().to_owned();
        let permit = self.permit_to(at, Action::Read);
        let now = self.engine.get_now(&permit, &request);
        let answer = match now {
            Some(answer) => Ok(answer),
            None => self.engine.get(&permit, request).await,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(ReadError::Origin(reply)) if reply.status == 404 => return Outcome::Absent,
            Err(error) => return Outcome::Refused(error),
        };
        let Answer { meta, range, body, .. } = answer;
        let version = version_of(&meta);
        let (start, end) = range.map_or((0, meta.size), |r| (r.start(), r.end()));
        let mut at = start;
        let mut broken = false;
        let mut pieces = match body {
            Body::Full(bytes) => futures_util::stream::iter([Ok(bytes)]).boxed(),
            Body::Stream(stream) => stream,
        };
        while let Some(piece) = pieces.next().await {
            let Ok(piece) = piece else {
                broken = true;
                break;
            };
            let expected = oracle::bytes(&key, version, at, at + piece.len() as u64);
            assert!(piece == expected, "{key} version {version}: wrong bytes at {at}");
            at += piece.len() as u64;
        }
        match broken {
            true => Outcome::Broken { version },
            false => {
                assert_eq!(
                    at, end,
                    "{key} version {version}: a body that ends early without an error"
                );
                Outcome::Whole { version, size: meta.size }
            }
        }
    }

    /// The PUT of the one object that a plan makes, in pieces.
    pub(crate) fn put(&self, plan: Plan, piece: usize) -> (Arc<Plan>, PassRequest) {
        let (key, (version, size)) = match plan.changes.lock().unwrap().first() {
            Some((key, Some(object))) => (key.clone(), *object),
            _ => panic!("a PUT makes an object"),
        };
        let bytes = Bytes::from(oracle::bytes(&key, version, 0, size));
        let frames: Vec<_> =
            bytes.chunks(piece.max(1)).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let body = match frames.len() {
            0 => RawBody::Empty,
            1 => RawBody::Whole(bytes),
            _ => RawBody::Stream {
                len: size,
                sha256: None,
                trailer: None,
                bytes: futures_util::stream::iter(frames).boxed(),
            },
        };
        let changes = Changes::Objects(vec![ObjectKey::new(&key).unwrap()]);
        self.change(plan, http::Method::PUT, Some(&key), changes, body)
    }

    /// A request that changes what a plan says.
    pub(crate) fn change(
        &self,
        plan: Plan,
        method: http::Method,
        key: Option<&str>,
        changes: Changes,
        body: RawBody,
    ) -> (Arc<Plan>, PassRequest) {
        let (plan, number) = self.world.plan(plan);
        let mut headers = http::HeaderMap::new();
        headers.insert(super::raw::PLAN, number.parse().unwrap());
        let raw = RawRequest {
            method,
            bucket: BucketName::new("bucket").ok(),
            key: key.map(|key| ObjectKey::new(key).unwrap()),
            query: Vec::new(),
            headers,
            body,
        };
        (plan, PassRequest { raw, changes, source: None })
    }
}

pub(crate) fn object(key: &str) -> ObjectName {
    ObjectName {
        origin: OriginName::new("origin").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(key).unwrap(),
        version_id: None,
    }
}

pub(crate) fn builtin(name: &PolicyName, setup: &PolicySetup) -> Box<dyn Policy> {
    larder_policy::builtin(name, setup).unwrap()
}

async fn open(
    world: &Arc<World>,
    store: &Arc<Shelves>,
    records: &Arc<Records>,
    datasets: &[Arc<Dataset>],
    capacity: u64,
    policies: Policies,
) -> (Arc<Engine>, prometheus::Registry) {
    let setup = PolicySetup { capacity_bytes: capacity, seed: 0 };
    let clock: Arc<HeldClock> = world.clock.clone();
    let mut pools: Vec<PoolSpec> = Vec::new();
    for dataset in datasets {
        let name = dataset.pool();
        let (memory_bytes, max_block_bytes) = (512, BLOCK);
        if pools.iter().all(|pool| pool.name != name) {
            pools.push(PoolSpec { name, memory_bytes, disk_bytes: capacity, max_block_bytes });
        }
    }
    let policy = |dataset: &Arc<Dataset>| policies(&dataset.policy, &setup);
    let registry = prometheus::Registry::new();
    let engine = Engine::open(Parts {
        clock,
        store: store.clone(),
        catalog: Some(records.clone()),
        origins: vec![world.clone()],
        datasets: datasets.iter().map(|dataset| (dataset.clone(), policy(dataset))).collect(),
        pools,
        budget: Budget::new(64 << 10),
        registry: registry.clone(),
    });
    (engine.await.unwrap(), registry)
}
