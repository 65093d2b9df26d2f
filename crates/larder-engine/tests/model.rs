//! The engine against a reference model: random sequences of reads, foreign writes, evictions,
//! losses, restarts and time, on a held clock.
//!
//! Every byte is checked by the content oracle; every answer must be a state that the object had
//! no longer ago than the dataset's bound. 256 sequences by default; `LARDER_SEQUENCES=20000` runs
//! more, `LARDER_SEED=n` begins elsewhere. A failure names its seed.

#![expect(clippy::unwrap_used, reason = "a test may end at what it did not expect")]
#![expect(clippy::expect_used, reason = "a test may end at what it did not expect")]

#[path = "double/node.rs"]
mod node;
#[path = "double/oracle.rs"]
mod oracle;
#[path = "double/world.rs"]
mod world;

use larder_engine::ReadError;
use larder_model::{Freshness, RangeSpec};
use node::{Node, Outcome};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::{HeldClock, State, World};

const KEYS: [&str; 5] = ["a", "a/b", "c", "d//e", "ключ"];

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn every_answer_is_one_version_no_older_than_the_bound() {
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
    assert!(
        tally.whole > count * 10 && tally.absent > 0 && tally.served_from_cache > 0,
        "{tally:?}"
    );
}

#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    absent: u64,
    refused: u64,
    broken: u64,
    outside: u64,
    served_from_cache: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.whole += other.whole;
        self.absent += other.absent;
        self.refused += other.refused;
        self.broken += other.broken;
        self.outside += other.outside;
        self.served_from_cache += other.served_from_cache;
    }
}

/// One random sequence.
async fn sequence(seed: u64) -> Tally {
    let mut rng = StdRng::seed_from_u64(seed);
    let freshness = match seed % 3 {
        0 => Freshness::Strict,
        1 => Freshness::Within(Duration::from_secs(2)),
        _ => Freshness::Immutable,
    };
    let policy = if seed.is_multiple_of(2) { "lru" } else { "keep" };
    let world = World::new(seed, HeldClock::at(1_000_000));
    let capacity = rng.random_range(200..8_000);
    let mut node = Node::start(world.clone(), freshness, policy, capacity).await;
    let mut tally = Tally::default();
    for _ in 0..rng.random_range(10..80) {
        let key = KEYS[rng.random_range(0..KEYS.len())];
        match rng.random_range(0..100) {
            0..20 => world.write(key, Some(size(&mut rng))),
            20..24 => world.write(key, None),
            24..34 => world.clock.advance(rng.random_range(1..3_000)),
            34..38 => node.store.harm(rng.random_range(0..1000), rng.random()),
            38..40 => node.restart(rng.random()).await,
            40..43 => drop(world.down.fetch_xor(true, Ordering::SeqCst)),
            43..46 => drop(world.flaky.fetch_xor(true, Ordering::SeqCst)),
            46..60 => crowd(&node, &mut rng, &mut tally).await,
            60..64 => abandon(&node, key).await,
            64..70 => head(&node, key).await,
            70..75 => tokio::time::sleep(Duration::from_millis(rng.random_range(1..400))).await,
            _ => {
                let range = range(&mut rng);
                read(&node, key, range, &mut tally).await;
            }
        }
    }
    // I9: after the faults stop, every request completes, and nothing is left behind.
    world.down.store(false, Ordering::SeqCst);
    world.flaky.store(false, Ordering::SeqCst);
    for key in KEYS {
        let reading = read(&node, key, None, &mut tally);
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("a read that never ends");
    }
    node.engine.close().await;
    let status = node.engine.status();
    assert!(status[0].cached_bytes <= capacity, "{status:?}");
    tally.served_from_cache += status[0].hit_bytes;
    tally
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

/// The states that a read which began in `before` may see, by the dataset's bound.
fn allowed(node: &Node, key: &str, before: &[State], began: u64) -> Vec<Option<(u64, u64)>> {
    let states = node.world.history(key);
    let absent = State { since: 0, object: None };
    let all: Vec<_> = std::iter::once(absent).chain(states).collect();
    let first = match node.dataset.freshness {
        Freshness::Immutable => 0,
        // The state at the beginning, and whatever came while it was reading.
        Freshness::Strict => before.len(),
        Freshness::Within(bound) => {
            let oldest = began.saturating_sub(bound.as_millis() as u64);
            // A state counts until the moment in which the next one replaced it.
            let replaced = |at: usize| all.get(at + 1).is_some_and(|next| next.since < oldest);
            (0..all.len()).find(|at| !replaced(*at)).unwrap_or(0)
        }
    };
    all[first.min(all.len() - 1)..].iter().map(|state| state.object).collect()
}

async fn read(node: &Node, key: &str, range: Option<RangeSpec>, tally: &mut Tally) {
    let before = node.world.history(key);
    let began = larder_model::Clock::now(node.world.clock.as_ref()).0;
    let down = node.world.down.load(Ordering::SeqCst) || node.world.flaky.load(Ordering::SeqCst);
    let outcome = node.read(node.request(key, range)).await;
    let allowed = allowed(node, key, &before, began);
    let versions: Vec<u64> = allowed.iter().flatten().map(|(version, _)| *version).collect();
    let fits = match &outcome {
        Outcome::Whole { version, size } => {
            tally.whole += 1;
            allowed.contains(&Some((*version, *size)))
        }
        Outcome::Broken { version } => {
            tally.broken += 1;
            versions.contains(version)
        }
        Outcome::Absent => {
            tally.absent += 1;
            allowed.contains(&None)
        }
        Outcome::Refused(ReadError::RangeNotSatisfiable { size }) => {
            tally.outside += 1;
            allowed.iter().flatten().any(|(_, other)| other == size)
        }
        Outcome::Refused(ReadError::Unreachable { .. }) => {
            tally.refused += 1;
            down
        }
        Outcome::Refused(ReadError::Changed(_)) => {
            tally.refused += 1;
            true
        }
        Outcome::Refused(_) => false,
    };
    assert!(fits, "{key} {range:?} {:?}: {outcome:?}, allowed {allowed:?}", node.dataset.freshness);
}

/// Several readers of one key at once, with a foreign write in the middle.
async fn crowd(node: &Node, rng: &mut StdRng, tally: &mut Tally) {
    let key = KEYS[rng.random_range(0..KEYS.len())];
    let readers = rng.random_range(2..8);
    let ranges: Vec<_> = (0..readers).map(|_| range(rng)).collect();
    let (write, pause) = (rng.random_bool(0.5).then(|| size(rng)), rng.random_range(0..30));
    let mut tallies: Vec<Tally> = (0..readers).map(|_| Tally::default()).collect();
    // Some arrive while others are half-way, and after the write.
    let delays: Vec<_> = (0..readers).map(|_| rng.random_range(0..40)).collect();
    let reads =
        ranges.iter().zip(&mut tallies).zip(delays).map(|((range, tally), delay)| async move {
            for _ in 0..delay {
                tokio::task::yield_now().await;
            }
            read(node, key, *range, tally).await;
        });
    let writer = async {
        for _ in 0..pause {
            tokio::task::yield_now().await;
        }
        match write {
            Some(0) => node.world.write(key, None),
            Some(size) => node.world.write(key, Some(size)),
            None => {}
        }
    };
    futures_util::future::join(futures_util::future::join_all(reads), writer).await;
    tallies.iter().for_each(|other| tally.add(other));
}

/// A reader that goes away after the first bytes, or before.
async fn abandon(node: &Node, key: &str) {
    let reading = node.read(node.request(key, None));
    drop(tokio::time::timeout(Duration::from_nanos(1), reading).await);
}

async fn head(node: &Node, key: &str) {
    let before = node.world.history(key);
    let began = larder_model::Clock::now(node.world.clock.as_ref()).0;
    let answer = node.engine.head(node.permit(), node.request(key, None)).await;
    let allowed = allowed(node, key, &before, began);
    match answer {
        Ok(head) => {
            let state = Some((world::version_of(&head.meta), head.meta.size));
            assert!(allowed.contains(&state), "HEAD {key}: {state:?}, allowed {allowed:?}");
        }
        Err(ReadError::Origin(reply)) if reply.status == 404 => assert!(allowed.contains(&None)),
        Err(ReadError::Unreachable { .. }) => assert!(node.world.down.load(Ordering::SeqCst)),
        Err(error) => panic!("HEAD {key}: {error}"),
    }
}

fn quiet(seed: u64) -> Arc<World> {
    World::new(seed, HeldClock::at(1_000_000))
}

#[tokio::test(start_paused = true)]
async fn a_cold_small_object_is_one_request() {
    let world = quiet(1);
    world.write("a", Some(500));
    let node = Node::start(world.clone(), Freshness::Strict, "lru", 100_000).await;
    assert!(matches!(node.read(node.request("a", None)).await, Outcome::Whole { .. }));
    assert_eq!(world.fetches.load(Ordering::SeqCst), 1);
    assert_eq!(world.heads.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_fetch_every_byte_once() {
    for policy in ["lru", "keep"] {
        let world = quiet(1);
        world.write("a", Some(20_000));
        // The SSD holds the object, the memory a fraction of it.
        let node = Node::start(world.clone(), Freshness::Immutable, policy, 40_000).await;
        let reads = (0..1000).map(|_| node.read(node.request("a", None)));
        for outcome in futures_util::future::join_all(reads).await {
            assert!(matches!(outcome, Outcome::Whole { .. }), "{outcome:?}");
        }
        assert_eq!(world.fetched.load(Ordering::SeqCst), 20_000, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_object_survives_a_clean_restart_and_the_origin_going_away() {
    let world = quiet(1);
    world.write("a", Some(3_000));
    let mut node = Node::start(world.clone(), Freshness::Immutable, "keep", 100_000).await;
    node.read(node.request("a", None)).await;
    node.restart(true).await;
    world.down.store(true, Ordering::SeqCst);
    assert!(matches!(node.read(node.request("a", None)).await, Outcome::Whole { .. }));
    assert_eq!(world.fetched.load(Ordering::SeqCst), 3_000);
    assert!(node.store.blocks() > 40);
}

#[tokio::test(start_paused = true)]
async fn a_strict_dataset_without_its_origin_refuses() {
    let world = quiet(1);
    world.write("a", Some(300));
    let node = Node::start(world.clone(), Freshness::Strict, "lru", 100_000).await;
    node.read(node.request("a", None)).await;
    world.down.store(true, Ordering::SeqCst);
    let outcome = node.read(node.request("a", None)).await;
    assert!(matches!(outcome, Outcome::Refused(ReadError::Unreachable { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_does_not_stop_the_fill() {
    let world = quiet(1);
    world.write("a", Some(5_000));
    let node = Node::start(world.clone(), Freshness::Immutable, "lru", 100_000).await;
    let answer = node.engine.get(node.permit(), node.request("a", None)).await.unwrap();
    drop(answer);
    node.engine.close().await;
    // The first span was under way, and is here now.
    assert!(node.engine.status()[0].cached_bytes >= 1_024);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changes_before_the_first_byte_is_pinned_again() {
    for seed in 1..5 {
        let world = quiet(seed);
        world.write("a", Some(500));
        let node = Node::start(world.clone(), Freshness::Immutable, "lru", 100_000).await;
        node.engine.head(node.permit(), node.request("a", None)).await.unwrap();
        world.write("a", Some(500));
        let outcome = node.read(node.request("a", None)).await;
        assert!(matches!(outcome, Outcome::Whole { version: 2, .. }), "{outcome:?}");
    }
}
