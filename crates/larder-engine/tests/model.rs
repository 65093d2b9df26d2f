//! The engine against a reference model: random sequences of reads, writes through the engine and
//! past it, evictions, losses, restarts and time, on a held clock, in two datasets over one bucket.
//!
//! Every byte is checked by the content oracle; every answer must be a state that the object had no
//! longer ago than the dataset's bound, and none older than a write through the engine that was
//! over when its reader came. 256 sequences by default; `LARDER_SEQUENCES=20000` runs more,
//! `LARDER_SEED=n` begins elsewhere. A failure names its seed.

#![expect(clippy::unwrap_used, reason = "a test may end at what it did not expect")]
#![expect(clippy::expect_used, reason = "a test may end at what it did not expect")]

#[path = "model/lists.rs"]
mod lists;
#[path = "double/node.rs"]
mod node;
#[path = "double/oracle.rs"]
mod oracle;
#[path = "double/raw.rs"]
mod raw;
#[path = "model/readers.rs"]
mod readers;
#[path = "model/reads.rs"]
mod reads;
#[path = "double/store.rs"]
mod store;
#[path = "model/witness.rs"]
mod witness;
#[path = "double/world.rs"]
mod world;
#[path = "model/writers.rs"]
mod writers;
#[path = "model/writes.rs"]
mod writes;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use larder_model::{Freshness, RangeSpec};
use node::{Node, builtin, dataset};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use raw::yields;
use readers::{abandon, head, list, read};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use witness::Witness;
use world::{HeldClock, World};
use writers::{job, perform};

pub(crate) const KEYS: [&str; 5] = ["a", "a/b", "c", "d//e", "ключ"];
const PREFIXES: [&str; 4] = ["", "a", "a/", "d"];

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_answer_is_one_version_no_older_than_the_bound_or_than_a_write_that_is_over() {
    let (first, count) = (env("LARDER_SEED", 1), env("LARDER_SEQUENCES", 256));
    println!("seeds {first} to {}", first + count - 1);
    let mut tally = Tally::default();
    for seed in first..first + count {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(sequence(seed)));
        match std::panic::catch_unwind(run) {
            Ok(counts) => tally.add(&counts),
            Err(panic) => {
                eprintln!("failed with LARDER_SEED={seed} LARDER_SEQUENCES=1");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{tally:?}");
    // The test must have tested something.
    let Tally { whole, absent, listed, acknowledged, unheard, given_up, .. } = tally;
    assert!(whole > count * 10 && absent > 0 && tally.served_from_cache > 0, "{tally:?}");
    assert!(acknowledged > count && unheard > count / 4 && given_up > count / 4, "{tally:?}");
    assert!(listed > count, "{tally:?}");
}

/// What a test has seen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    whole: u64,
    absent: u64,
    refused: u64,
    broken: u64,
    outside: u64,
    listed: u64,
    acknowledged: u64,
    unheard: u64,
    given_up: u64,
    served_from_cache: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.whole += other.whole;
        self.absent += other.absent;
        self.refused += other.refused;
        self.broken += other.broken;
        self.outside += other.outside;
        self.listed += other.listed;
        self.acknowledged += other.acknowledged;
        self.unheard += other.unheard;
        self.given_up += other.given_up;
        self.served_from_cache += other.served_from_cache;
    }
}

/// A node, and what the test knows of it.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) witness: Witness,
    pub(crate) tally: RefCell<Tally>,
}

fn freshness(rng: &mut StdRng) -> Freshness {
    match rng.random_range(0..4) {
        0 => Freshness::Strict,
        1 => Freshness::Immutable,
        _ => Freshness::Within(Duration::from_secs(2)),
    }
}

async fn scene(seed: u64, rng: &mut StdRng) -> (Scene, u64) {
    let world = World::new(seed, HeldClock::at(1_000_000));
    let capacity = rng.random_range(200..8_000);
    let mut datasets = Vec::new();
    for name in ["data", "twin"] {
        let policy = if rng.random() { "lru" } else { "keep" };
        let mut dataset = dataset(name, freshness(rng), policy, capacity);
        let ttl = Duration::from_millis(rng.random_range(1..3_000));
        dataset.list_cache = rng.random_bool(0.7).then_some(ttl);
        dataset.admit_writes = rng.random();
        datasets.push(dataset);
    }
    // The second shares a pool that it has to itself.
    datasets[1].quota = None;
    let node = Node::of(world, datasets, capacity, builtin).await;
    let witness = Witness::new(node.datasets.len());
    (Scene { node, witness, tally: RefCell::default() }, capacity)
}

/// One random sequence.
async fn sequence(seed: u64) -> Tally {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut scene, capacity) = scene(seed, &mut rng).await;
    let world = scene.node.world.clone();
    let flip = |what: &AtomicBool| {
        what.fetch_xor(true, Ordering::SeqCst);
    };
    for _ in 0..rng.random_range(10..80) {
        // Faults pass, or little else would be tried.
        for fault in [&world.down, &world.weak] {
            fault.fetch_and(rng.random_bool(0.8), Ordering::SeqCst);
        }
        let (at, key) = (rng.random_range(0..2), KEYS[rng.random_range(0..KEYS.len())]);
        match rng.random_range(0..100) {
            0..10 => world.write(key, Some(size(&mut rng))),
            10..12 => world.write(key, None),
            12..18 => world.clock.advance(rng.random_range(1..3_000)),
            18..21 => scene.node.store.harm(rng.random_range(0..1000), rng.random()),
            21..23 => restart(&mut scene, rng.random()).await,
            23..25 => flip(&world.down),
            25..27 => flip(&world.flaky),
            27..28 => flip(&world.weak),
            28..38 => {
                let job = job(&mut rng, &scene, key);
                perform(&scene, job).await;
            }
            38..60 => storm(&scene, &mut rng).await,
            60..63 => abandon(&scene, at, key).await,
            63..68 => head(&scene, at, key).await,
            68..73 => list(&scene, at, PREFIXES[rng.random_range(0..PREFIXES.len())]).await,
            73..77 => tokio::time::sleep(Duration::from_millis(rng.random_range(1..400))).await,
            _ => {
                let (range, null) = (range(&mut rng), rng.random_bool(0.2));
                read(&scene, at, key, range, null).await;
            }
        }
    }
    // I9: after the faults stop, every request completes, and nothing is left behind.
    for fault in [&world.down, &world.flaky, &world.weak] {
        fault.store(false, Ordering::SeqCst);
    }
    for (at, key) in [0, 1].into_iter().flat_map(|at| KEYS.map(|key| (at, key))) {
        let reading = read(&scene, at, key, None, false);
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("a read that never ends");
    }
    scene.node.engine.close().await;
    let status = scene.node.engine.status();
    assert!(status.iter().all(|dataset| dataset.cached_bytes <= capacity), "{status:?}");
    let (used, cached) = (scene.node.engine.block_bytes(), scene.node.store.memory_bytes());
    assert!(used <= cached, "{used} bytes are held, of which {cached} are cached");
    let mut tally = scene.tally.into_inner();
    tally.served_from_cache += status.iter().map(|dataset| dataset.hit_bytes).sum::<u64>();
    tally
}

async fn restart(scene: &mut Scene, clean: bool) {
    scene.node.restart(clean).await;
    for at in 0..scene.node.datasets.len() {
        // The catalog may have missed the last writes, and nothing makes an immutable object asked
        // for again.
        if !clean && scene.node.datasets[at].freshness == Freshness::Immutable {
            scene.witness.forget(at);
        }
    }
}

fn size(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..6) {
        0 => 0,
        1 => rng.random_range(1..=64),
        2 => 64 * rng.random_range(1..=4),
        3 => 1_024,
        4 => rng.random_range(1..3_000),
        _ => 500,
    }
}

fn range(rng: &mut StdRng) -> Option<RangeSpec> {
    let a = rng.random_range(0..1_500);
    match rng.random_range(0..6) {
        0 => Some(RangeSpec::From(a)),
        1 => Some(RangeSpec::FromTo(a, a + rng.random_range(0..700))),
        2 => Some(RangeSpec::Suffix(a)),
        _ => None,
    }
}

/// Readers and writers of one key, or two, all at once, in both datasets; some arrive while others
/// are half-way.
async fn storm(scene: &Scene, rng: &mut StdRng) {
    let keys: Vec<_> =
        (0..rng.random_range(1..3)).map(|_| KEYS[rng.random_range(0..KEYS.len())]).collect();
    let mut all: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
    let writers = rng.random_range(0..4);
    for number in 0..writers + rng.random_range(3..12) {
        let key = keys[rng.random_range(0..keys.len())];
        let (at, delay) = (rng.random_range(0..2), rng.random_range(0..60));
        if number < writers {
            let job = job(rng, scene, key);
            all.push(after(delay, perform(scene, job)));
            continue;
        }
        all.push(match rng.random_range(0..20) {
            0 => after(delay, async move { scene.node.world.write(key, Some(100)) }),
            1 => after(delay, async move { scene.node.world.write(key, None) }),
            2 => {
                let millis = rng.random_range(1..2_500);
                after(delay, async move { scene.node.world.clock.advance(millis) })
            }
            3..5 => after(delay, head(scene, at, key)),
            5..10 => {
                let prefix = PREFIXES[rng.random_range(0..PREFIXES.len())];
                after(delay, list(scene, at, prefix))
            }
            _ => {
                let (range, null) = (range(rng), rng.random_bool(0.2));
                after(delay, read(scene, at, key, range, null))
            }
        });
    }
    futures_util::future::join_all(all).await;
}

fn after<'a>(delay: u32, what: impl Future<Output = ()> + 'a) -> LocalBoxFuture<'a, ()> {
    async move {
        yields(delay).await;
        what.await;
    }
    .boxed_local()
}
