//! What the test knows of writes through the engine: which are under way, and below which state of
//! an object no later reader may fall.

use crate::node::Node;
use crate::raw::Plan;
use larder_model::{Clock, Freshness};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// By place in an object's history: 0 is "not there yet", n its n-th state.
pub(crate) struct Witness {
    /// For each dataset, the oldest state of a key that a reader who comes now may see.
    floors: RefCell<Vec<HashMap<String, usize>>>,
    /// Writes whose caller has not heard the end.
    up: RefCell<Vec<Arc<Plan>>>,
}

/// What held when a reader came.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    places: usize,
    floor: usize,
    time: u64,
}

impl Witness {
    pub(crate) fn new(datasets: usize) -> Self {
        Self { floors: RefCell::new(vec![HashMap::new(); datasets]), up: RefCell::default() }
    }

    pub(crate) fn begin(&self, node: &Node, at: usize, key: &str) -> Began {
        Began {
            places: node.world.history(key).len(),
            floor: self.floors.borrow()[at].get(key).copied().unwrap_or(0),
            time: node.world.clock.now().0,
        }
    }

    /// The states that a reader may have seen who came then and is done now.
    pub(crate) fn allowed(
        &self,
        node: &Node,
        freshness: Freshness,
        key: &str,
        began: Began,
    ) -> Vec<Option<(u64, u64)>> {
        let states = node.world.history(key);
        let first = match freshness {
            Freshness::Immutable => 0,
            // The state at the beginning, and whatever came while it was reading.
            Freshness::Strict => began.places,
            Freshness::Within(bound) => {
                let oldest = began.time.saturating_sub(bound.as_millis() as u64);
                // A state counts until the moment in which the next one replaced it.
                let young = |next: Option<&crate::world::State>| {
                    next.is_none_or(|next| next.since >= oldest)
                };
                (0..=states.len()).find(|place| young(states.get(*place))).unwrap_or(0)
            }
        };
        let all: Vec<_> =
            std::iter::once(None).chain(states.iter().map(|state| state.object)).collect();
        all[first.max(began.floor)..].to_vec()
    }

    /// A write has begun.
    pub(crate) fn rise(&self, plan: &Arc<Plan>) {
        self.up.borrow_mut().push(plan.clone());
    }

    /// What a write has changed so far, everybody who comes from now on must see.
    pub(crate) fn told(&self, plan: &Plan) {
        for (key, place) in plan.applied() {
            self.raise(&key, place);
        }
    }

    /// The caller of a write has heard the end, or gone away.
    pub(crate) fn fall(&self, plan: &Arc<Plan>) {
        self.told(plan);
        self.up.borrow_mut().retain(|other| !Arc::ptr_eq(other, plan));
    }

    /// A reader saw this version. If its write is under way, nobody sees anything older any more.
    pub(crate) fn saw(&self, node: &Node, key: &str, version: u64) {
        let is = |state: &crate::world::State| state.object.is_some_and(|(own, _)| own == version);
        let Some(place) = node.world.history(key).iter().position(is) else { return };
        let applied = (key.to_owned(), place + 1);
        if self.up.borrow().iter().any(|plan| plan.applied().contains(&applied)) {
            self.raise(key, place + 1);
        }
    }

    /// Nothing is promised of this dataset any more.
    pub(crate) fn forget(&self, at: usize) {
        self.floors.borrow_mut()[at].clear();
    }

    fn raise(&self, key: &str, place: usize) {
        for floors in self.floors.borrow_mut().iter_mut() {
            let floor = floors.entry(key.to_owned()).or_default();
            *floor = place.max(*floor);
        }
    }
}
