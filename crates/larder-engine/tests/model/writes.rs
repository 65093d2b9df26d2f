//! Writing, case by case.

use crate::node::{BLOCK, Node, Outcome, builtin, dataset, object};
use crate::raw::{End, Plan, yields};
use crate::reads::quiet;
use crate::world::World;
use crate::writers::Job;
use futures_util::{FutureExt, StreamExt};
use http::Method;
use larder_engine::{Changes, PassRequest, Passed, ReadError};
use larder_model::{
    Access, Action, BucketName, Dataset, Freshness, Grants, ObjectKey, Permit, Principal, RawBody,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MINUTE: Freshness = Freshness::Within(Duration::from_secs(60));

async fn node(world: &Arc<World>) -> Node {
    Node::start(world.clone(), MINUTE, "lru", 100_000).await
}

/// Two datasets over the bucket.
async fn twins(world: &Arc<World>) -> Node {
    let datasets =
        vec![dataset("data", MINUTE, "lru", 100_000), dataset("twin", MINUTE, "keep", 100_000)];
    Node::of(world.clone(), datasets, 100_000, builtin).await
}

/// A PUT through the engine that is answered.
async fn put(node: &Node, key: &str, size: u64) -> Passed {
    let Job { request, .. } = Job::put(node, 0, key, size);
    pass(node, request).await.unwrap()
}

async fn pass(node: &Node, request: PassRequest) -> Result<Passed, ReadError> {
    node.engine.pass(&node.permit_to(0, Action::Write), request).await
}

/// Reads and tells the version; none when the object is not there.
async fn version(node: &Node, at: usize, key: &str) -> Option<u64> {
    match node.read_from(at, node.request(key, None)).await {
        Outcome::Whole { version, .. } => Some(version),
        Outcome::Absent => None,
        other => panic!("{key}: {other:?}"),
    }
}

/// Runs until everything that can run without time passing has run.
async fn settle() {
    yields(100).await;
}

fn asked(world: &World) -> u64 {
    world.heads.load(Ordering::SeqCst) + world.fetches.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_write_is_seen_at_once_in_every_dataset_and_under_every_version_id() {
    let world = quiet(1);
    world.write("a", Some(500));
    let node = twins(&world).await;
    for at in [0, 1] {
        assert_eq!(version(&node, at, "a").await, Some(1));
    }
    assert!(matches!(node.read(node.null_request("a", None)).await, Outcome::Whole { .. }));
    put(&node, "a", 300).await;
    for at in [0, 1] {
        assert_eq!(version(&node, at, "a").await, Some(2), "dataset {at}");
    }
    let outcome = node.read(node.null_request("a", None)).await;
    assert!(matches!(outcome, Outcome::Whole { version: 2, .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_frees_the_blocks_of_what_it_replaces() {
    let world = quiet(1);
    world.write("a", Some(3_000));
    let node = twins(&world).await;
    for at in [0, 1] {
        version(&node, at, "a").await;
    }
    settle().await;
    assert!(node.engine.status().iter().all(|dataset| dataset.cached_bytes > 3_000));
    put(&node, "a", 0).await;
    assert!(node.engine.status().iter().all(|dataset| dataset.cached_bytes == 0));
    settle().await;
    assert_eq!(node.store.blocks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_origin_refuses_costs_an_ask_and_no_bytes() {
    let world = quiet(1);
    world.write("a", Some(500));
    let node = node(&world).await;
    version(&node, 0, "a").await;
    let refused = Plan::new(Vec::new(), End::Refused { applied: false });
    let changes = Changes::Objects(vec![ObjectKey::new("a").unwrap()]);
    let (_, request) = node.change(refused, Method::DELETE, Some("a"), changes, RawBody::Empty);
    assert_eq!(pass(&node, request).await.unwrap().status, 412);
    let heads = world.heads.load(Ordering::SeqCst);
    assert_eq!(version(&node, 0, "a").await, Some(1));
    assert_eq!(world.heads.load(Ordering::SeqCst), heads + 1);
    assert_eq!(world.fetched.load(Ordering::SeqCst), 500);
}

#[tokio::test(start_paused = true)]
async fn an_ask_from_before_a_write_serves_only_who_waited_for_it() {
    // Version 1 is there before, or nothing is: "not found" is an answer like any other.
    for first in [Some(300), None] {
        let world = quiet(1);
        world.write("a", first);
        let node = node(&world).await;
        world.hold_next();
        let early = version(&node, 0, "a");
        let mut early = std::pin::pin!(early);
        assert!((&mut early).now_or_never().is_none());
        settle().await;
        put(&node, "a", 300).await;
        let written = world.current("a").map(|(version, _)| version);
        // Arrives while the old answer is still on its way, and has nothing to do with it.
        let late = tokio::time::timeout(Duration::from_secs(60), version(&node, 0, "a")).await;
        assert_eq!(late.expect("it waits for the old answer"), written);
        world.release();
        let early = early.await;
        assert!(early == first.map(|_| 1) || early == written, "{early:?}");
        assert_eq!(version(&node, 0, "a").await, written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_during_a_write_has_the_origin_asked_and_nothing_stays() {
    let world = quiet(1);
    world.write("a", Some(300));
    let node = node(&world).await;
    version(&node, 0, "a").await;
    let change = vec![("a".to_owned(), Some((world.new_version(), 200)))];
    let (_, request) = node.put(Plan::new(change, End::DoneInBody), 1_000);
    let mut passed = pass(&node, request).await.unwrap();
    let before = asked(&world);
    assert_eq!(version(&node, 0, "a").await, Some(1));
    assert_eq!(version(&node, 0, "a").await, Some(1));
    assert_eq!(asked(&world), before + 2);
    let mut text = Vec::new();
    while let Some(frame) = passed.body.next().await {
        text.extend_from_slice(&frame.unwrap());
        if text.ends_with(b"</Result>") {
            // The caller knows, whatever may follow.
            assert_eq!(version(&node, 0, "a").await, Some(2));
        }
    }
    assert_eq!(version(&node, 0, "a").await, Some(2));
    let before = asked(&world);
    assert_eq!(version(&node, 0, "a").await, Some(2));
    assert_eq!(asked(&world), before, "the fence is down");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_leaves_no_fence_and_nothing_old() {
    for with_body in [false, true] {
        let world = quiet(1);
        world.write("a", Some(300));
        let node = node(&world).await;
        version(&node, 0, "a").await;
        let change = vec![("a".to_owned(), Some((world.new_version(), 200)))];
        let end = if with_body { End::DoneInBody } else { End::Done };
        let mut plan = Plan::new(change, end);
        plan.after = 50;
        let (_, request) = node.put(plan, 1_000);
        let permit = node.permit_to(0, Action::Write);
        let writing = async {
            let mut passed = node.engine.pass(&permit, request).await.unwrap();
            while passed.body.next().await.is_some() {}
        };
        let turns = if with_body { 280 } else { 20 };
        tokio::select! {
            biased;
            () = writing => panic!("it was to be broken off"),
            () = yields(turns) => {}
        }
        assert_eq!(world.current("a"), Some((2, 200)), "done before the caller left");
        assert_eq!(version(&node, 0, "a").await, Some(2));
        let before = asked(&world);
        assert_eq!(version(&node, 0, "a").await, Some(2));
        assert_eq!(asked(&world), before, "the fence is down");
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_comes_late_is_seen_within_the_bound() {
    let world = quiet(1);
    world.write("a", Some(300));
    let node = node(&world).await;
    let change = vec![("a".to_owned(), Some((world.new_version(), 200)))];
    let mut plan = Plan::new(change, End::Silent { applied: false });
    plan.late = Some(0);
    let (_, request) = node.put(plan, 1_000);
    assert!(matches!(pass(&node, request).await, Err(ReadError::Unreachable { .. })));
    assert_eq!(version(&node, 0, "a").await, Some(1));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(world.current("a"), Some((2, 200)));
    world.clock.advance(60_001);
    assert_eq!(version(&node, 0, "a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_bucket_has_every_object_asked_for_again_and_keeps_what_did_not_change() {
    let world = quiet(1);
    for key in ["a", "b"] {
        world.write(key, Some(300));
    }
    let node = node(&world).await;
    let fetched = || world.fetched.load(Ordering::SeqCst);
    for key in ["a", "b"] {
        version(&node, 0, key).await;
    }
    let change = vec![("a".to_owned(), Some((world.new_version(), 300)))];
    let (_, request) = node.change(
        Plan::new(change, End::Done),
        Method::PUT,
        None,
        Changes::Bucket,
        RawBody::Empty,
    );
    pass(&node, request).await.unwrap();
    assert_eq!(version(&node, 0, "a").await, Some(3));
    assert_eq!(fetched(), 900);
    assert_eq!(version(&node, 0, "b").await, Some(2));
    assert_eq!(fetched(), 900);
}

#[tokio::test(start_paused = true)]
async fn a_kill_right_after_a_write_brings_nothing_old_back() {
    let world = quiet(1);
    world.write("a", Some(300));
    let mut node = node(&world).await;
    version(&node, 0, "a").await;
    // The catalog hears of version 1, and not of its end.
    tokio::time::sleep(Duration::from_secs(1)).await;
    put(&node, "a", 300).await;
    node.restart(false).await;
    assert_eq!(version(&node, 0, "a").await, Some(2));
}

fn permit(grants: &Grants, dataset: &Arc<Dataset>, action: Action) -> Permit {
    grants.authorize(&Principal::verified("K"), dataset, action).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_permit_covers_what_it_names_and_nothing_else() {
    let world = quiet(1);
    let mut part = dataset("part", MINUTE, "lru", 10_000);
    part.prefix = "p/".to_owned();
    let whole = dataset("whole", MINUTE, "lru", 10_000);
    let node = Node::of(world.clone(), vec![part, whole], 10_000, builtin).await;
    let mut grants = Grants::new();
    for dataset in &node.datasets {
        grants.allow("K", dataset.name.clone(), Access::ReadWrite);
    }
    let [part, whole] = [&node.datasets[0], &node.datasets[1]];
    let of = |dataset, action| permit(&grants, dataset, action);
    let keys = |keys: &[&str]| {
        Changes::Objects(keys.iter().map(|key| ObjectKey::new(key).unwrap()).collect())
    };
    let request = |key: Option<&str>, changes: Changes| {
        let plan = Plan::new(Vec::new(), End::Done);
        node.change(plan, Method::POST, key, changes, RawBody::Empty).1
    };
    let from = |permit: Permit, key: &str| PassRequest {
        source: Some((permit, object(key))),
        ..request(Some("p/x"), keys(&["p/x"]))
    };
    let elsewhere = |mut request: PassRequest| {
        request.raw.bucket = BucketName::new("elsewhere").ok();
        request
    };
    let nowhere = |mut request: PassRequest| {
        request.raw.bucket = None;
        request
    };
    let (read, write) = (Action::Read, Action::Write);
    let foreign = {
        let mut foreign = object("p/y");
        foreign.origin = larder_model::OriginName::new("other").unwrap();
        let source = Some((of(part, read), foreign));
        PassRequest { source, ..request(Some("p/x"), keys(&["p/x"])) }
    };
    let cases = [
        (
            "a read of what is not cached",
            of(part, read),
            request(Some("p/x"), Changes::Nothing),
            true,
        ),
        ("beside the prefix", of(part, read), request(Some("q"), Changes::Nothing), false),
        ("a change", of(part, write), request(Some("p/x"), keys(&["p/x"])), true),
        (
            "a change without a permit to write",
            of(part, read),
            request(Some("p/x"), keys(&["p/x"])),
            false,
        ),
        ("changes", of(part, write), request(None, keys(&["p/x", "p/y"])), true),
        ("a change beside the prefix", of(part, write), request(None, keys(&["p/x", "q"])), false),
        (
            "a bucket that is not all covered",
            of(part, write),
            request(None, Changes::Bucket),
            false,
        ),
        ("a bucket", of(whole, write), request(None, Changes::Bucket), true),
        (
            "a bucket without a permit to write",
            of(whole, read),
            request(None, Changes::Bucket),
            false,
        ),
        ("another bucket", of(whole, write), elsewhere(request(None, Changes::Bucket)), false),
        ("no bucket", of(whole, write), nowhere(request(None, Changes::Bucket)), false),
        ("the service", of(whole, read), nowhere(request(None, Changes::Nothing)), false),
        ("a copy", of(part, write), from(of(whole, read), "q"), true),
        (
            "a copy of what its permit does not cover",
            of(part, write),
            from(of(part, read), "q"),
            false,
        ),
        ("a copy with no permit to read", of(part, write), from(of(whole, write), "q"), false),
        ("a copy from another origin", of(part, write), foreign, false),
    ];
    for (what, permit, request, good) in cases {
        let left = world.plans.lock().unwrap().len();
        let result = node.engine.pass(&permit, request).await;
        let refused = matches!(result, Err(ReadError::NotPermitted { .. }));
        assert!(refused != good && result.is_ok() == good, "{what}");
        // The origin hears nothing of what is refused.
        assert_eq!(world.plans.lock().unwrap().len(), left - usize::from(good), "{what}");
    }
}

/// A node that admits on write.
async fn admitting(world: &Arc<World>) -> Node {
    let mut dataset = dataset("data", MINUTE, "lru", 100_000);
    dataset.admit_writes = true;
    Node::of(world.clone(), vec![dataset], 100_000, builtin).await
}

#[tokio::test(start_paused = true)]
async fn a_small_object_is_there_for_its_first_reader_at_the_price_of_a_head() {
    for size in [1, u64::from(BLOCK)] {
        let world = quiet(1);
        let node = admitting(&world).await;
        put(&node, "a", size).await;
        settle().await;
        assert_eq!(world.heads.load(Ordering::SeqCst), 1);
        assert_eq!(node.engine.status()[0].cached_objects, 1);
        assert_eq!(version(&node, 0, "a").await, Some(1));
        assert_eq!((asked(&world), node.engine.status()[0].hit_bytes), (1, size));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_empty_large_or_no_plain_put_is_not_admitted() {
    let world = quiet(1);
    let node = admitting(&world).await;
    put(&node, "a", 0).await;
    put(&node, "a", u64::from(BLOCK) + 1).await;
    let changes = || vec![("a".to_owned(), Some((world.new_version(), 10)))];
    let (_, mut part) = node.put(Plan::new(changes(), End::Done), 100);
    part.raw.query.push(("partNumber".to_owned(), "1".to_owned()));
    let (_, mut secret) = node.put(Plan::new(changes(), End::Done), 100);
    let customer = "x-amz-server-side-encryption-customer-algorithm";
    secret.raw.headers.insert(customer, "AES256".parse().unwrap());
    let (_, mut copy) = node.put(Plan::new(changes(), End::Done), 100);
    copy.source = Some((node.permit(), object("b")));
    let (_, refused) = node.put(Plan::new(changes(), End::Refused { applied: false }), 100);
    for request in [part, secret, copy, refused] {
        pass(&node, request).await.unwrap();
    }
    settle().await;
    assert_eq!(world.heads.load(Ordering::SeqCst), 0);
    assert_eq!((node.engine.block_bytes(), node.engine.status()[0].cached_objects), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_else_wrote_meanwhile_is_not_admitted_as_ours() {
    let world = quiet(1);
    let node = admitting(&world).await;
    put(&node, "a", 10).await;
    world.write("a", Some(10));
    settle().await;
    assert_eq!(node.engine.status()[0].cached_objects, 0);
    assert_eq!(version(&node, 0, "a").await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_meets_another_is_not_admitted() {
    let world = quiet(1);
    let node = admitting(&world).await;
    let plan = |before, after| {
        let changes = vec![("a".to_owned(), Some((world.new_version(), 10)))];
        let mut plan = Plan::new(changes, End::Done);
        (plan.before, plan.after) = (before, after);
        node.put(plan, 100).1
    };
    // What the second made is what stands, and its answer is the last.
    let (first, second) = (plan(0, 1), plan(10, 10));
    let both = futures_util::future::join(pass(&node, first), pass(&node, second)).await;
    assert!(both.0.is_ok() && both.1.is_ok());
    settle().await;
    assert_eq!(node.engine.status()[0].cached_objects, 0);
    // And one that comes while the origin is being asked.
    world.hold_next();
    put(&node, "b", 10).await;
    settle().await;
    put(&node, "b", 10).await;
    world.release();
    settle().await;
    assert_eq!(version(&node, 0, "b").await, world.current("b").map(|(version, _)| version));
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_a_write_is_counted_and_given_back() {
    let world = quiet(1);
    let node = admitting(&world).await;
    let changes = vec![("a".to_owned(), Some((world.new_version(), 60)))];
    let mut plan = Plan::new(changes, End::Silent { applied: true });
    plan.before = 20;
    let (_, request) = node.put(plan, 7);
    let mut writing = std::pin::pin!(pass(&node, request));
    assert!((&mut writing).now_or_never().is_none());
    assert!(node.engine.block_bytes() >= 60);
    assert!(writing.await.is_err());
    assert_eq!(node.engine.block_bytes(), 0);
}
