//! Listing, case by case.

use crate::node::{Node, builtin, dataset};
use crate::raw::{End, Plan, yields};
use crate::reads::quiet;
use crate::world::World;
use crate::writers::Job;
use futures_util::{FutureExt, StreamExt};
use larder_engine::ReadError;
use larder_model::{Action, Freshness, ListPage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A node whose first dataset keeps pages for two seconds.
async fn node(world: &Arc<World>) -> Node {
    let mut data = dataset("data", Freshness::Strict, "lru", 10_000);
    data.list_cache = Some(Duration::from_secs(2));
    let twin = dataset("twin", Freshness::Strict, "lru", 10_000);
    Node::of(world.clone(), vec![data, twin], 10_000, builtin).await
}

async fn list(node: &Node, at: usize, prefix: &str) -> Result<ListPage, ReadError> {
    node.engine.list(&node.permit_to(at, Action::Read), node.list_request(prefix)).await
}

async fn keys(node: &Node, prefix: &str) -> Vec<String> {
    let page = list(node, 0, prefix).await.unwrap();
    page.objects.iter().map(|object| object.key.to_string()).collect()
}

async fn put(node: &Node, at: usize, key: &str) {
    let Job { request, .. } = Job::put(node, at, key, 10);
    node.engine.pass(&node.permit_to(at, Action::Write), request).await.unwrap();
}

fn asked(world: &World) -> u64 {
    world.lists.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_page_is_served_again_until_it_is_as_old_as_allowed() {
    let world = quiet(1);
    world.write("a", Some(10));
    let node = node(&world).await;
    assert_eq!(keys(&node, "").await, ["a"]);
    world.write("b", Some(10));
    world.clock.advance(2_000);
    assert_eq!((keys(&node, "").await, asked(&world)), (vec!["a".to_owned()], 1));
    world.clock.advance(1);
    assert_eq!((keys(&node, "").await.len(), asked(&world)), (2, 2));
    // Another request is another page, and the other dataset keeps none.
    assert_eq!((keys(&node, "b").await.len(), asked(&world)), (1, 3));
    for _ in 0..2 {
        list(&node, 1, "").await.unwrap();
    }
    assert_eq!(asked(&world), 5);
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_page_counts_from_when_the_origin_was_asked() {
    let world = quiet(1);
    let node = node(&world).await;
    world.hold_next();
    let mut first = std::pin::pin!(keys(&node, ""));
    assert!((&mut first).now_or_never().is_none());
    yields(50).await;
    world.write("a", Some(10));
    world.clock.advance(2_001);
    // Joins what is under way, and must not be content with it.
    let mut second = std::pin::pin!(keys(&node, ""));
    assert!((&mut second).now_or_never().is_none());
    world.release();
    assert!(first.await.is_empty());
    assert_eq!(second.await, ["a"]);
    assert_eq!(asked(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_asks_once() {
    let world = quiet(1);
    let node = node(&world).await;
    let all = (0..100).map(|_| keys(&node, ""));
    futures_util::future::join_all(all).await;
    assert_eq!(asked(&world), 1);
    keys(&node, "").await;
    let counted = |outcome| counted(&node, "data", outcome);
    let outcomes = ["miss", "hit", "joined", "write_under_way"].map(counted);
    assert_eq!(outcomes, [1, 1, 99, 0]);
}

/// The counter of cacheable pages.
fn counted(node: &Node, dataset: &str, outcome: &str) -> u64 {
    let families = node.registry.gather();
    let family = families.iter().find(|family| family.name() == "larder_list_cache_total").unwrap();
    let has = |metric: &prometheus::proto::Metric, name: &str, value: &str| {
        metric.get_label().iter().any(|label| label.name() == name && label.value() == value)
    };
    let mine =
        |m: &&prometheus::proto::Metric| has(m, "dataset", dataset) && has(m, "outcome", outcome);
    family.get_metric().iter().find(mine).unwrap().get_counter().get_value() as u64
}

#[tokio::test(start_paused = true)]
async fn a_write_shows_at_once_from_whichever_dataset_and_leaves_other_pages_alone() {
    let world = quiet(1);
    let node = node(&world).await;
    for prefix in ["", "x/", "y/"] {
        assert!(keys(&node, prefix).await.is_empty());
    }
    put(&node, 1, "x/new").await;
    assert_eq!(keys(&node, "").await, ["x/new"]);
    assert_eq!(keys(&node, "x/").await, ["x/new"]);
    assert_eq!(asked(&world), 5);
    assert!(keys(&node, "y/").await.is_empty());
    assert_eq!(asked(&world), 5);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_asked_for_before_a_write_is_neither_joined_nor_kept() {
    let world = quiet(1);
    let node = node(&world).await;
    world.hold_next();
    let mut early = std::pin::pin!(keys(&node, ""));
    assert!((&mut early).now_or_never().is_none());
    yields(50).await;
    put(&node, 0, "new").await;
    // Has nothing to do with the one that is still on its way.
    let late = tokio::time::timeout(Duration::from_secs(60), keys(&node, "")).await;
    assert_eq!(late.expect("it waits for the old page"), ["new"]);
    world.release();
    assert!(early.await.is_empty());
    assert_eq!(keys(&node, "").await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn while_a_write_is_under_way_the_origin_is_asked_each_time() {
    let world = quiet(1);
    let node = node(&world).await;
    keys(&node, "").await;
    let change = vec![("new".to_owned(), Some((world.new_version(), 10)))];
    let (_, request) = node.put(Plan::new(change, End::DoneInBody), 100);
    let mut passed = node.engine.pass(&node.permit_to(0, Action::Write), request).await.unwrap();
    for _ in 0..2 {
        keys(&node, "").await;
    }
    assert_eq!(asked(&world), 3);
    while passed.body.next().await.is_some() {}
    assert_eq!(keys(&node, "").await, ["new"]);
    keys(&node, "").await;
    assert_eq!(asked(&world), 4);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_kept() {
    let world = quiet(1);
    let node = node(&world).await;
    world.down.store(true, Ordering::SeqCst);
    assert!(matches!(list(&node, 0, "").await, Err(ReadError::Unreachable { .. })));
    world.down.store(false, Ordering::SeqCst);
    assert!(keys(&node, "").await.is_empty());
}
