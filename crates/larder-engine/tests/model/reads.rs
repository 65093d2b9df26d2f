//! Reading, case by case.

use crate::node::{Node, Outcome, builtin, dataset};
use crate::world::{HeldClock, World};
use larder_engine::ReadError;
use larder_model::{Decisions, Entry, Event, Freshness, Handle, Policy, PolicyInfo};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) fn quiet(seed: u64) -> Arc<World> {
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
    let answer = node.engine.get(&node.permit(), node.request("a", None)).await.unwrap();
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
        node.engine.head(&node.permit(), node.request("a", None)).await.unwrap();
        world.write("a", Some(500));
        let outcome = node.read(node.request("a", None)).await;
        assert!(matches!(outcome, Outcome::Whole { version: 2, .. }), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_cached_is_one_request_too() {
    let world = quiet(1);
    world.write("a", Some(500));
    world.weak.store(true, Ordering::SeqCst);
    let node = Node::start(world.clone(), Freshness::Strict, "lru", 100_000).await;
    for reads in 1..3 {
        let outcome = node.read(node.request("a", None)).await;
        assert!(matches!(outcome, Outcome::Whole { version: 1, .. }), "{outcome:?}");
        assert_eq!(world.fetches.load(Ordering::SeqCst), reads);
    }
    // Each reader gets an answer of his own.
    let all = (0..10).map(|_| node.read(node.request("a", None)));
    for outcome in futures_util::future::join_all(all).await {
        assert!(matches!(outcome, Outcome::Whole { version: 1, .. }), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_costs_no_room() {
    let world = quiet(1);
    for key in ["a", "b"] {
        world.write(key, Some(64));
    }
    // Room for one block, and a policy that never makes any.
    let node = Node::start(world.clone(), Freshness::Immutable, "keep", 100).await;
    node.store.panics.store(true, Ordering::SeqCst);
    for key in ["a", "b"] {
        let outcome = node.read(node.request(key, None)).await;
        assert!(matches!(outcome, Outcome::Whole { .. }), "{outcome:?}");
        node.engine.close().await;
    }
    assert_eq!(node.engine.status()[0].cached_bytes, 80);
}

/// A policy that notes when it was told.
struct Notes(PolicyInfo);

thread_local! {
    /// Turns that others have had, as the policy was told of each batch.
    static TURNS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static TURN: Cell<u64> = const { Cell::new(0) };
}

impl Policy for Notes {
    fn describe(&self) -> PolicyInfo {
        self.0.clone()
    }

    fn on_batch(&mut self, _now: u64, _entries: &[Entry], _events: &[Event]) -> Decisions {
        TURNS.with_borrow_mut(|turns| turns.push(TURN.get()));
        Decisions::default()
    }

    fn victims(&mut self, _now: u64, _need: u64, _max: usize) -> Vec<Handle> {
        Vec::new()
    }
}

#[tokio::test]
async fn others_run_between_the_batches_that_a_policy_is_told() {
    let world = quiet(1);
    world.write("a", Some(64 * 500));
    let notes = |name: &_, setup: &_| -> Box<dyn Policy> {
        Box::new(Notes(builtin(name, setup).describe()))
    };
    let data = dataset("data", Freshness::Immutable, "lru", 100_000);
    let node = Node::of(world.clone(), vec![data], 100_000, notes).await;
    let others = tokio::spawn(async {
        loop {
            TURN.set(TURN.get() + 1);
            tokio::task::yield_now().await;
        }
    });
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    // Each read is hundreds of events, and they gather for a while: several batches in a row.
    while TURNS.with_borrow(Vec::len) < 50 && std::time::Instant::now() < deadline {
        node.read(node.request("a", None)).await;
    }
    others.abort();
    let turns = TURNS.with_borrow(Clone::clone);
    assert!(turns.len() >= 50, "{turns:?}");
    // Who yields may be woken first and last, so twice in a row is no starvation.
    assert!(turns.windows(3).all(|three| three[0] < three[2]), "{turns:?}");
}
