//! Writers of the model: requests through the engine that succeed, fail, time out with and without
//! effect, or lose their caller.

use crate::node::{Node, object};
use crate::raw::{End, Plan, yields};
use crate::{KEYS, Scene, size};
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt};
use http::Method;
use larder_engine::{Changes, PassRequest, ReadError};
use larder_model::{Action, ObjectKey, RawBody};
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One write, made up.
pub(crate) struct Job {
    pub(crate) at: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) request: PassRequest,
    /// After how many turns the caller goes away.
    pub(crate) gone: Option<u32>,
}

impl Job {
    /// A PUT that succeeds.
    pub(crate) fn put(node: &Node, at: usize, key: &str, size: u64) -> Self {
        let changes = vec![(key.to_owned(), Some((node.world.new_version(), size)))];
        let (plan, request) = node.put(Plan::new(changes, End::Done), 50);
        Self { at, plan, request, gone: None }
    }
}

fn end(rng: &mut StdRng) -> End {
    let applied = rng.random();
    match rng.random_range(0..20) {
        0..10 => End::Done,
        10..13 => End::DoneInBody,
        13 => End::FailedInBody,
        14..16 => End::Refused { applied: rng.random_bool(0.3) },
        16 => End::Failed { applied },
        _ => End::Silent { applied },
    }
}

/// A write of `key`, at random, perhaps of others too.
pub(crate) fn job(rng: &mut StdRng, scene: &Scene, key: &str) -> Job {
    let node = &scene.node;
    let keys = |keys: &[String]| {
        Changes::Objects(keys.iter().map(|key| ObjectKey::new(key).unwrap()).collect())
    };
    let new = |size| Some((node.world.new_version(), size));
    let mut touched = vec![key.to_owned()];
    let kind = rng.random_range(0..12);
    if kind >= 9 {
        touched.extend(KEYS.iter().filter(|_| rng.random_bool(0.3)).map(ToString::to_string));
        touched.sort();
        touched.dedup();
    }
    let (from, piece) = (KEYS[rng.random_range(0..KEYS.len())], rng.random_range(1..400));
    let changes = match kind {
        0..6 => vec![(key.to_owned(), new(size(rng)))],
        6..8 | 9 => touched.iter().map(|key| (key.clone(), None)).collect(),
        8 => vec![(key.to_owned(), new(node.world.current(from).map_or(10, |(_, size)| size)))],
        _ => touched.iter().map(|key| (key.clone(), new(size(rng)))).collect(),
    };
    let mut plan = Plan::new(changes, end(rng));
    (plan.before, plan.after) = (rng.random_range(0..20), rng.random_range(0..20));
    plan.detached = rng.random_bool(0.3);
    if matches!(plan.end, End::Failed { .. } | End::Silent { .. }) && rng.random() {
        plan.late = Some(rng.random_range(0..60));
    }
    let key = Some(key);
    let empty = RawBody::Empty;
    let (plan, mut request) = match kind {
        0..6 => node.put(plan, piece),
        6..8 => node.change(plan, Method::DELETE, key, keys(&touched), empty),
        8 => node.change(plan, Method::PUT, key, keys(&touched), empty),
        9 => node.change(plan, Method::POST, None, keys(&touched), empty),
        _ => node.change(plan, Method::PUT, None, Changes::Bucket, empty),
    };
    let at = rng.random_range(0..2);
    if kind == 8 {
        let from_dataset = rng.random_range(0..2);
        request.source = Some((node.permit_to(from_dataset, Action::Read), object(from)));
    }
    let gone = rng.random_bool(0.25).then(|| rng.random_range(0..50));
    Job { at, plan, request, gone }
}

/// Has a write done, and tells the witness what came of it.
pub(crate) async fn perform(scene: &Scene, job: Job) {
    let Job { at, plan, request, gone } = job;
    scene.witness.rise(&plan);
    let writing = Box::pin(write(scene, at, &plan, request));
    let leaving = async {
        match gone {
            Some(turns) => yields(turns).await,
            None => std::future::pending().await,
        }
    };
    // Whoever loses is dropped with this, before anything else runs.
    let left = match select(writing, leaving.boxed_local()).await {
        Either::Left(((), _)) => false,
        Either::Right(((), writing)) => {
            drop(writing);
            true
        }
    };
    scene.witness.fall(&plan);
    scene.tally.borrow_mut().given_up += u64::from(left);
}

async fn write(scene: &Scene, at: usize, plan: &Plan, request: PassRequest) {
    let permit = scene.node.permit_to(at, Action::Write);
    let mut passed = match scene.node.engine.pass(&permit, request).await {
        Ok(passed) => passed,
        Err(ReadError::Unreachable { .. }) => {
            let silent = matches!(plan.end, End::Silent { .. });
            assert!(silent || scene.node.world.down.load(Ordering::SeqCst), "{plan:?}");
            scene.tally.borrow_mut().unheard += 1;
            return;
        }
        Err(error) => panic!("{plan:?}: {error}"),
    };
    // The status may be taken for an acknowledgement, and so may any byte behind it.
    scene.witness.told(plan);
    let status = match plan.end {
        End::Refused { .. } => 412,
        End::Failed { .. } => 500,
        _ => 200,
    };
    assert_eq!(passed.status, status, "{plan:?}");
    let mut text = Vec::new();
    while let Some(frame) = passed.body.next().await {
        text.extend_from_slice(&frame.unwrap());
        scene.witness.told(plan);
    }
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.contains("</Result>"), plan.end == End::DoneInBody, "{text:?}");
    scene.tally.borrow_mut().acknowledged += u64::from(status == 200);
}
