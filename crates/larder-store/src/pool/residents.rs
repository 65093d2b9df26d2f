//! The blocks that the engine wants kept on the SSD, by the 64 bits under which foyer knows them.
//!
//! foyer asks here, entry by entry, when it reclaims a region: what is resident is written again,
//! the rest is gone. Without that, the live blocks of a quiet dataset would be destroyed by the
//! churn of its neighbours.

use super::entry::KeyHash;
use foyer::{Statistics, StorageFilterCondition, StorageFilterResult};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The resident set of one pool. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residents(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    set: RwLock<Set>,
    /// Bytes that foyer was told to write again, since the start.
    rewritten: AtomicU64,
}

#[derive(Debug, Default)]
struct Set {
    /// Bytes on the SSD of each; 0 where unknown, until the first reclaim tells.
    sizes: HashMap<u64, u64, KeyHash>,
    bytes: u64,
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
    }

    /// Adds blocks of which only the hash is known.
    pub(crate) fn adopt(&self, hashes: impl Iterator<Item = u64>) {
        let mut set = self.write();
        for hash in hashes {
            set.sizes.entry(hash).or_insert(0);
        }
    }

    /// Takes a block out; tells whether it was in.
    pub(crate) fn remove(&self, hash: u64) -> bool {
        let mut set = self.write();
        let before = set.sizes.remove(&hash);
        set.bytes -= before.unwrap_or(0);
        before.is_some()
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.read().sizes.contains_key(&hash)
    }

    /// Bytes on the SSD of those whose size is known.
    pub(crate) fn bytes(&self) -> u64 {
        self.read().bytes
    }

    /// Bytes that foyer was told to write again, since the start.
    pub(crate) fn rewritten_bytes(&self) -> u64 {
        self.0.rewritten.load(Ordering::Acquire)
    }
}

impl StorageFilterCondition for Residents {
    fn filter(&self, _: &Arc<Statistics>, hash: u64, entry_bytes: usize) -> StorageFilterResult {
        let bytes = (entry_bytes as u64).next_multiple_of(4096);
        let size = self.read().sizes.get(&hash).copied();
        match size {
            None => return StorageFilterResult::Reject,
            Some(0) => {
                let mut set = self.write();
                // It may have been removed between the two locks.
                match set.sizes.get_mut(&hash) {
                    Some(size) if *size == 0 => {
                        *size = bytes;
                        set.bytes += bytes;
                    }
                    Some(_) => {}
                    None => return StorageFilterResult::Reject,
                }
            }
            Some(_) => {}
        }
        self.0.rewritten.fetch_add(bytes, Ordering::AcqRel);
        StorageFilterResult::Admit
    }
}

#[cfg(test)]
mod tests {
    use super::Residents;
    use foyer::{Statistics, StorageFilterCondition, StorageFilterResult, Throttle};
    use std::sync::Arc;

    #[test]
    fn only_residents_are_written_again() {
        let residents = Residents::default();
        let filter = |hash| {
            let stats = Arc::new(Statistics::new(Throttle::default()));
            residents.filter(&stats, hash, 5000)
        };
        residents.add(1, 8192);
        residents.adopt([2].into_iter());
        assert_eq!(residents.bytes(), 8192);
        assert_eq!(filter(1), StorageFilterResult::Admit);
        assert_eq!(filter(2), StorageFilterResult::Admit);
        assert_eq!(filter(3), StorageFilterResult::Reject);
        // The reclaim told the size of the adopted one.
        assert_eq!(residents.bytes(), 16384);
        assert_eq!(residents.rewritten_bytes(), 16384);
        assert!(residents.remove(2));
        assert!(!residents.remove(2));
        assert_eq!(filter(2), StorageFilterResult::Reject);
        assert_eq!(residents.bytes(), 8192);
    }

    #[test]
    fn adding_a_block_twice_counts_it_once() {
        let residents = Residents::default();
        residents.add(1, 4096);
        residents.add(1, 4096);
        residents.adopt([1].into_iter());
        assert_eq!(residents.bytes(), 4096);
    }
}
