//! A node made of doubles: an engine over a world, with one dataset.

use super::oracle;
use super::world::{HeldClock, Records, Shelves, World, version_of};
use futures_util::StreamExt;
use larder_engine::{Answer, Body, Engine, Parts, ReadError, ReadRequest};
use larder_model::{
    Access, Action, BucketName, Budget, Conditions, Dataset, DatasetName, Freshness, Grants,
    ObjectKey, ObjectName, OriginName, Permit, PolicyName, PolicySetup, PoolName, PoolSpec,
    Principal, Quota, RangeSpec,
};
use std::sync::Arc;

/// Small enough that a few hundred bytes are several blocks and a few thousand several spans.
pub(crate) const BLOCK: u32 = 64;

/// What outlives a restart, and the engine that does not.
pub(crate) struct Node {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<Shelves>,
    pub(crate) records: Arc<Records>,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) engine: Arc<Engine>,
    capacity: u64,
    permit: Permit,
}

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

impl Node {
    pub(crate) async fn start(
        world: Arc<World>,
        freshness: Freshness,
        policy: &str,
        capacity: u64,
    ) -> Self {
        let mut dataset = Dataset::example("data", "bucket", "");
        dataset.freshness = freshness;
        dataset.block_bytes = BLOCK;
        dataset.policy = PolicyName::new(policy).unwrap();
        dataset.quota = Some(Quota { memory: 512, disk: capacity, high: 0.95, low: 0.8 });
        let dataset = Arc::new(dataset);
        let (store, records) = (Arc::new(Shelves::default()), Arc::new(Records::default()));
        let engine = open(&world, &store, &records, &dataset, capacity).await;
        let mut grants = Grants::new();
        grants.allow("K", DatasetName::new("data").unwrap(), Access::Read);
        let permit = grants.authorize(&Principal::verified("K"), &dataset, Action::Read).unwrap();
        Self { world, store, records, dataset, engine, capacity, permit }
    }

    /// Ends and begins again. A clean end writes the catalog; a kill does not.
    pub(crate) async fn restart(&mut self, clean: bool) {
        if clean {
            self.engine.close().await;
        }
        self.store.restart();
        let (world, store) = (&self.world, &self.store);
        self.engine = open(world, store, &self.records, &self.dataset, self.capacity).await;
    }

    pub(crate) fn request(&self, key: &str, range: Option<RangeSpec>) -> ReadRequest {
        ReadRequest {
            name: ObjectName {
                origin: OriginName::new("origin").unwrap(),
                bucket: BucketName::new("bucket").unwrap(),
                key: ObjectKey::new(key).unwrap(),
                version_id: None,
            },
            range,
            part_number: None,
            conditions: Conditions::default(),
            checksums: false,
            job: "test".into(),
        }
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Reads, checks every byte against the version that the answer claims, and tells what it was.
    pub(crate) async fn read(&self, request: ReadRequest) -> Outcome {
        let key = request.name.key.as_str().to_owned();
        let now = self.engine.get_now(&self.permit, &request);
        let answer = match now {
            Some(answer) => Ok(answer),
            None => self.engine.get(&self.permit, request).await,
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
}

async fn open(
    world: &Arc<World>,
    store: &Arc<Shelves>,
    records: &Arc<Records>,
    dataset: &Arc<Dataset>,
    capacity: u64,
) -> Arc<Engine> {
    let setup = PolicySetup { capacity_bytes: capacity, seed: 0 };
    let policy = larder_policy::builtin(&dataset.policy, &setup).unwrap();
    let clock: Arc<HeldClock> = world.clock.clone();
    Engine::open(Parts {
        clock,
        store: store.clone(),
        catalog: Some(records.clone()),
        origins: vec![world.clone()],
        datasets: vec![(dataset.clone(), policy)],
        pools: vec![PoolSpec {
            name: PoolName::of(&dataset.name),
            memory_bytes: 512,
            disk_bytes: capacity,
            max_block_bytes: BLOCK,
        }],
        budget: Budget::new(64 << 10),
        registry: prometheus::Registry::new(),
    })
    .await
    .unwrap()
}
