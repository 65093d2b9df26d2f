//! Readers of the model: each checks that what it saw was allowed.

use crate::node::Outcome;
use crate::world::{version_in, version_of};
use crate::{KEYS, Scene};
use larder_engine::ReadError;
use larder_model::{Action, Freshness, RangeSpec};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) async fn read(
    scene: &Scene,
    at: usize,
    key: &str,
    range: Option<RangeSpec>,
    null: bool,
) {
    let (node, tally) = (&scene.node, &scene.tally);
    let began = scene.witness.begin(node, at, key);
    let down = node.world.down.load(Ordering::SeqCst) || node.world.flaky.load(Ordering::SeqCst);
    let request = match null {
        true => node.null_request(key, range),
        false => node.request(key, range),
    };
    let outcome = node.read_from(at, request).await;
    let freshness = node.datasets[at].freshness;
    let allowed = scene.witness.allowed(node, freshness, key, began);
    let versions: Vec<u64> = allowed.iter().flatten().map(|(version, _)| *version).collect();
    let mut tally = tally.borrow_mut();
    let fits = match &outcome {
        Outcome::Whole { version, size } => {
            tally.whole += 1;
            scene.witness.saw(node, key, *version);
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
        // Of an object that is not cached, the origin itself may say so.
        Outcome::Refused(ReadError::Origin(reply)) if reply.status == 416 => {
            tally.outside += 1;
            let outside = |size| range.is_some_and(|range| range.resolve(size).is_err());
            allowed.iter().flatten().any(|(_, size)| outside(*size))
                || range.is_some_and(|range| matches!(range, RangeSpec::Suffix(_)))
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
    assert!(fits, "{key} {range:?} {freshness:?}: {outcome:?}, allowed {allowed:?}");
}

/// A reader that goes away after the first bytes, or before.
pub(crate) async fn abandon(scene: &Scene, at: usize, key: &str) {
    let reading = scene.node.read_from(at, scene.node.request(key, None));
    drop(tokio::time::timeout(Duration::from_nanos(1), reading).await);
}

pub(crate) async fn head(scene: &Scene, at: usize, key: &str) {
    let node = &scene.node;
    let began = scene.witness.begin(node, at, key);
    let permit = node.permit_to(at, Action::Read);
    let answer = node.engine.head(&permit, node.request(key, None)).await;
    let allowed = scene.witness.allowed(node, node.datasets[at].freshness, key, began);
    match answer {
        Ok(head) => {
            let version = version_of(&head.meta);
            scene.witness.saw(node, key, version);
            let state = Some((version, head.meta.size));
            assert!(allowed.contains(&state), "HEAD {key}: {state:?}, allowed {allowed:?}");
        }
        Err(ReadError::Origin(reply)) if reply.status == 404 => {
            assert!(allowed.contains(&None), "HEAD {key}: absent, allowed {allowed:?}");
        }
        Err(ReadError::Unreachable { .. }) => assert!(node.world.down.load(Ordering::SeqCst)),
        Err(error) => panic!("HEAD {key}: {error}"),
    }
}

pub(crate) async fn list(scene: &Scene, at: usize, prefix: &str) {
    let node = &scene.node;
    let keys: Vec<_> = KEYS.into_iter().filter(|key| key.starts_with(prefix)).collect();
    let began: Vec<_> = keys.iter().map(|key| scene.witness.begin(node, at, key)).collect();
    let permit = node.permit_to(at, Action::Read);
    let page = match node.engine.list(&permit, node.list_request(prefix)).await {
        Ok(page) => page,
        Err(ReadError::Unreachable { .. }) => {
            return assert!(node.world.down.load(Ordering::SeqCst));
        }
        Err(error) => panic!("LIST {prefix:?}: {error}"),
    };
    scene.tally.borrow_mut().listed += 1;
    let freshness = node.datasets[at].list_cache.map_or(Freshness::Strict, Freshness::Within);
    for (key, began) in keys.into_iter().zip(began) {
        let listed = page.objects.iter().find(|object| object.key.as_str() == key);
        let state = listed.map(|o| (version_in(o.etag.as_ref().unwrap()), o.size));
        let allowed = scene.witness.allowed(node, freshness, key, began);
        assert!(allowed.contains(&state), "LIST {prefix:?} {key}: {state:?}, allowed {allowed:?}");
        if let Some((version, _)) = state {
            scene.witness.saw(node, key, version);
        }
    }
}
