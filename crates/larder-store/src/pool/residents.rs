//! The blocks that the engine wants kept on the SSD, by the 64 bits under which foyer knows them.
//!
//! Whatever is in here is written again when its region is reclaimed ([`super::rewrite`]); the rest
//! is gone then. Without that, the live blocks of a quiet dataset would be destroyed by the churn
//! of its neighbours.

use super::entry::KeyHash;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The resident set of one pool. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Residents(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    set: RwLock<Set>,
    removals: [AtomicU32; STRIPES],
}

const STRIPES: usize = 1024;

impl Default for Residents {
    fn default() -> Self {
        let removals = std::array::from_fn(|_| AtomicU32::new(0));
        Self(Arc::new(Shared { set: RwLock::default(), removals }))
    }
}

#[derive(Debug, Default)]
struct Set {
    /// Bytes on the SSD of each; 0 where unknown, until a reclaim tells.
    sizes: HashMap<u64, u64, KeyHash>,
    bytes: u64,
    /// Whether anybody has said yet what is resident. Until then everything is: foyer may reclaim
    /// a region as soon as it is open.
    declared: bool,
}

impl Residents {
    fn read(&self) -> RwLockReadGuard<'_, Set> {
        self.0.set.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Set> {
        self.0.set.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block that takes `bytes` on the SSD.
    pub(crate) fn add(&self, hash: u64, bytes: u64) {
        let mut set = self.write();
        let before = set.sizes.insert(hash, bytes).unwrap_or(0);
        set.bytes = set.bytes - before + bytes;
        set.declared = true;
    }

    /// Adds blocks of which only the hash is known.
    pub(crate) fn adopt(&self, hashes: impl Iterator<Item = u64>) {
        let mut set = self.write();
        for hash in hashes {
            set.sizes.entry(hash).or_insert(0);
        }
        set.declared = true;
    }

    /// How often a block was taken out, of those that share a stripe with this one.
    pub(crate) fn removals(&self, hash: u64) -> u32 {
        self.0.removals[hash as usize % STRIPES].load(Ordering::Acquire)
    }

    /// Takes a block out; tells whether it was in.
    pub(crate) fn remove(&self, hash: u64) -> bool {
        self.0.removals[hash as usize % STRIPES].fetch_add(1, Ordering::AcqRel);
        let mut set = self.write();
        let before = set.sizes.remove(&hash);
        set.bytes -= before.unwrap_or(0);
        before.is_some()
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.read().sizes.contains_key(&hash)
    }

    /// Whether a block is to survive the reclaiming of its region.
    pub(crate) fn wants(&self, hash: u64) -> bool {
        let set = self.read();
        !set.declared || set.sizes.contains_key(&hash)
    }

    /// Notes the size of an adopted block.
    pub(crate) fn learn(&self, hash: u64, bytes: u64) {
        let mut set = self.write();
        if let Some(size) = set.sizes.get_mut(&hash)
            && *size == 0
        {
            *size = bytes;
            set.bytes += bytes;
        }
    }

    /// Takes out all of which `there` is false; tells how many. Holds no lock meanwhile.
    pub(crate) fn drop_unless(&self, there: impl Fn(u64) -> bool) -> u64 {
        let hashes: Vec<u64> = self.read().sizes.keys().copied().collect();
        let mut dropped = 0;
        for hash in hashes.into_iter().filter(|hash| !there(*hash)) {
            dropped += u64::from(self.remove(hash));
        }
        dropped
    }

    /// Bytes on the SSD of those whose size is known.
    pub(crate) fn bytes(&self) -> u64 {
        self.read().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Residents;

    #[test]
    fn everything_is_wanted_until_somebody_says_what_is() {
        let residents = Residents::default();
        assert!(residents.wants(1) && !residents.contains(1));
        residents.adopt([2].into_iter());
        assert!(!residents.wants(1) && residents.wants(2));
    }

    #[test]
    fn bytes_are_counted_once_and_as_soon_as_they_are_known() {
        let residents = Residents::default();
        residents.add(1, 8192);
        residents.add(1, 8192);
        residents.adopt([1, 2].into_iter());
        assert_eq!(residents.bytes(), 8192);
        residents.learn(2, 4096);
        residents.learn(2, 4096);
        residents.learn(1, 4096);
        residents.learn(3, 4096);
        assert_eq!(residents.bytes(), 12288);
        let removals = residents.removals(2);
        assert!(residents.remove(2));
        assert!(!residents.remove(2));
        assert_eq!(residents.removals(2), removals + 2);
        assert_eq!(residents.bytes(), 8192);
    }

    #[test]
    fn what_is_not_there_any_more_is_dropped() {
        let residents = Residents::default();
        (0..10).for_each(|hash| residents.add(hash, 4096));
        assert_eq!(residents.drop_unless(|hash| hash < 4), 6);
        assert!(residents.contains(3) && !residents.contains(4));
        assert_eq!(residents.bytes(), 4 * 4096);
    }
}
