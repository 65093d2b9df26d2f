//! Fences: writes that go around the cache, and what may be known of their names meanwhile.
//!
//! Invariant: whoever arrives after a write was acknowledged is answered from an ask that began
//! after it was. It holds because
//!
//! - a fence goes up, in every dataset over the bucket, before the origin hears of the write. While
//!   it is up, a reader of its names is answered as in a strict dataset, whatever the dataset says:
//!   by an ask that began after the reader arrived. So no reader sees the old state after another
//!   saw the new one, and it does not matter when in the meantime the write takes effect or is taken
//!   for done;
//! - when the origin's answer is complete, every dataset *lets go*: asks of these names that are
//!   under way are taken off the board and barred (they may answer the readers that they were begun
//!   for, but nobody joins them, and nothing that they learn is kept), pages of listings go, and so
//!   do the objects with their blocks. Blocks need no fence of their own: a fill is of one version,
//!   its keys derive from that version, and without an entry of that version in the table none is
//!   kept;
//! - then the fence comes down.
//!
//! All bookkeeping is of what is under way: a fence lives as long as its write, and the bar sits in
//! the ask itself. Nothing is remembered of writes that are over.
//!
//! A write whose outcome nobody heard (the origin did not answer in time, the caller went away)
//! lets go all the same. Its effect may come later; it then is as a foreign write is: nothing older
//! than the dataset's bound is served, because age counts from when the origin was asked.

use crate::Changes;
use crate::shelf::{Shelf, lock};
use larder_model::{BucketName, ObjectKey, ObjectName};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The names that a write may change, at one origin. Every version of a key counts as changed.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) bucket: BucketName,
    /// `None`: anything in the bucket.
    pub(crate) keys: Option<BTreeSet<ObjectKey>>,
}

impl Reach {
    /// `None` for a request that changes nothing.
    pub(crate) fn of(bucket: &BucketName, changes: Changes) -> Option<Self> {
        let keys = match changes {
            Changes::Nothing => return None,
            Changes::Objects(keys) => Some(keys.into_iter().collect()),
            Changes::Bucket => None,
        };
        Some(Self { bucket: bucket.clone(), keys })
    }

    pub(crate) fn covers(&self, name: &ObjectName) -> bool {
        name.bucket == self.bucket && self.keys.as_ref().is_none_or(|keys| keys.contains(&name.key))
    }

    /// Whether a listing of keys that begin with `prefix` could show the change.
    pub(crate) fn shows(&self, bucket: &BucketName, prefix: &str) -> bool {
        let below = |keys: &BTreeSet<ObjectKey>| {
            let from = (Bound::Included(prefix), Bound::Unbounded);
            keys.range::<str, _>(from).next().is_some_and(|key| key.as_str().starts_with(prefix))
        };
        *bucket == self.bucket && self.keys.as_ref().is_none_or(below)
    }
}

/// The fences that are up in one dataset.
#[derive(Default)]
pub(crate) struct Fences(HashMap<BucketName, Under>);

/// What is under way in one bucket.
#[derive(Default)]
struct Under {
    whole: u32,
    keys: BTreeMap<ObjectKey, Writes>,
}

/// The writes that are under way on one key.
#[derive(Default)]
struct Writes {
    count: u32,
    /// Whether two of them have met since there was none.
    met: bool,
}

impl Fences {
    pub(crate) fn raise(&mut self, reach: &Reach) {
        let under = self.0.entry(reach.bucket.clone()).or_default();
        let Some(keys) = &reach.keys else {
            under.whole += 1;
            under.keys.values_mut().for_each(|writes| writes.met = true);
            return;
        };
        for key in keys {
            let writes = under.keys.entry(key.clone()).or_default();
            writes.met |= writes.count > 0 || under.whole > 0;
            writes.count += 1;
        }
    }

    pub(crate) fn lower(&mut self, reach: &Reach) {
        let Some(under) = self.0.get_mut(&reach.bucket) else { return };
        match &reach.keys {
            None => under.whole = under.whole.saturating_sub(1),
            Some(keys) => {
                for key in keys {
                    if let Some(writes) = under.keys.get_mut(key) {
                        writes.count = writes.count.saturating_sub(1);
                        if writes.count == 0 {
                            under.keys.remove(key);
                        }
                    }
                }
            }
        }
        if under.whole == 0 && under.keys.is_empty() {
            self.0.remove(&reach.bucket);
        }
    }

    /// Whether a write of this object is under way.
    pub(crate) fn over(&self, name: &ObjectName) -> bool {
        let over = |under: &Under| under.whole > 0 || under.keys.contains_key(&name.key);
        !self.0.is_empty() && self.0.get(&name.bucket).is_some_and(over)
    }

    /// Whether a write is under way that a listing of keys that begin with `prefix` could show.
    pub(crate) fn above(&self, bucket: &BucketName, prefix: &str) -> bool {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.0.get(bucket).is_some_and(|under| {
            let mut next = under.keys.range::<str, _>(from);
            under.whole > 0 || next.next().is_some_and(|(key, _)| key.as_str().starts_with(prefix))
        })
    }

    /// Whether the write of this object that is under way has met no other.
    pub(crate) fn alone(&self, name: &ObjectName) -> bool {
        let under = self.0.get(&name.bucket);
        let writes = under.and_then(|under| under.keys.get(&name.key));
        writes.is_some_and(|writes| writes.count == 1 && !writes.met)
    }
}

/// What becomes of what is known of a write's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It goes, and its blocks with it.
    Gone,
    /// The origin refused the write: the next reader asks again, and what turns out to be the same
    /// stays. It may be another all the same: an adapter that had to ask twice hears "exists
    /// already" of its own success.
    Doubted,
}

/// The fence of one write. Dropping it lets go of what is known and lowers it, whatever the reason.
pub(crate) struct Fence {
    shelves: Vec<Arc<Shelf>>,
    reach: Reach,
    fate: Fate,
    /// The write's end was heard, and everything learned before it has been let go.
    settled: bool,
}

impl Fence {
    /// Raises a fence in each of these datasets.
    pub(crate) fn raise(shelves: Vec<Arc<Shelf>>, reach: Reach) -> Self {
        shelves.iter().for_each(|shelf| shelf.ledger().fences.raise(&reach));
        Self { shelves, reach, fate: Fate::Gone, settled: false }
    }

    /// The origin refused to do it.
    pub(crate) fn refused(&mut self) {
        self.fate = Fate::Doubted;
    }

    /// Lets go of what is known. The fence stays up.
    pub(crate) fn let_go(&self) {
        self.shelves.iter().for_each(|shelf| shelf.let_go(&self.reach, self.fate));
    }

    /// The origin has told the write's end, all of it: lets go. What is learned from here on may
    /// stay, also when the fence comes down later.
    pub(crate) fn settle(&mut self) {
        self.let_go();
        self.settled = true;
    }

    /// Lowers the settled fence everywhere but in one dataset.
    pub(crate) fn narrow(&mut self, to: &Arc<Shelf>) {
        for shelf in self.shelves.extract_if(.., |shelf| !Arc::ptr_eq(shelf, to)) {
            shelf.ledger().fences.lower(&self.reach);
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if !self.settled {
            self.let_go();
        }
        self.shelves.iter().for_each(|shelf| shelf.ledger().fences.lower(&self.reach));
    }
}

impl Shelf {
    /// Lets go of what is known of a write's names: asks first, so that none that is under way can
    /// bring back what is taken from the table.
    fn let_go(&self, reach: &Reach, fate: Fate) {
        lock(&self.flights).retain(|name, flight| {
            let stays = !reach.covers(name);
            if !stays {
                flight.bar();
            }
            stays
        });
        lock(&self.pages).let_go(reach);
        let tick = self.tick();
        let freed = self.ledger().let_go(&self.dataset.origin, reach, fate, tick);
        self.discard(&freed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Fences, Reach};
    use larder_model::{BucketName, ObjectKey, ObjectName, OriginName, VersionId};

    fn reach(keys: &[&str]) -> Reach {
        let bucket = BucketName::new("bucket").unwrap();
        let keys = keys.iter().map(|key| ObjectKey::new(key).unwrap()).collect();
        Reach { bucket, keys: Some(keys) }
    }

    fn whole() -> Reach {
        Reach { keys: None, ..reach(&[]) }
    }

    fn name(bucket: &str, key: &str, version_id: Option<&str>) -> ObjectName {
        ObjectName {
            origin: OriginName::new("origin").unwrap(),
            bucket: BucketName::new(bucket).unwrap(),
            key: ObjectKey::new(key).unwrap(),
            version_id: version_id.map(|id| VersionId::new(id).unwrap()),
        }
    }

    #[test]
    fn a_write_reaches_every_version_of_its_keys_and_nothing_else() {
        let reach = reach(&["a", "b"]);
        assert!(reach.covers(&name("bucket", "a", None)));
        assert!(reach.covers(&name("bucket", "b", Some("null"))));
        assert!(!reach.covers(&name("bucket", "a/b", None)));
        assert!(!reach.covers(&name("other", "a", None)));
        assert!(whole().covers(&name("bucket", "anything", None)));
    }

    #[test]
    fn a_listing_shows_what_begins_with_its_prefix() {
        let reach = reach(&["a/x", "c"]);
        let bucket = BucketName::new("bucket").unwrap();
        for (prefix, shows) in
            [("", true), ("a/", true), ("a/x", true), ("a/xy", false), ("b", false), ("c", true)]
        {
            assert_eq!(reach.shows(&bucket, prefix), shows, "{prefix:?}");
            let mut fences = Fences::default();
            fences.raise(&reach);
            assert_eq!(fences.above(&bucket, prefix), shows, "{prefix:?}");
        }
        assert!(!reach.shows(&BucketName::new("other").unwrap(), ""));
        assert!(whole().shows(&bucket, "zzz"));
    }

    #[test]
    fn a_fence_stands_until_the_last_of_several_writes_is_over_and_leaves_nothing() {
        let mut fences = Fences::default();
        let a = name("bucket", "a", None);
        fences.raise(&reach(&["a"]));
        assert!(fences.alone(&a));
        fences.raise(&reach(&["a", "b"]));
        fences.lower(&reach(&["a"]));
        assert!(fences.over(&a) && !fences.alone(&a));
        fences.raise(&whole());
        fences.lower(&reach(&["a", "b"]));
        assert!(fences.over(&a) && fences.over(&name("bucket", "other", None)));
        fences.lower(&whole());
        assert!(!fences.over(&a) && fences.0.is_empty());
    }

    #[test]
    fn a_write_under_a_change_of_the_whole_bucket_is_not_alone() {
        let a = name("bucket", "a", None);
        for (first, second) in [(whole(), reach(&["a"])), (reach(&["a"]), whole())] {
            let mut fences = Fences::default();
            fences.raise(&first);
            fences.raise(&second);
            assert!(!fences.alone(&a));
        }
    }
}
