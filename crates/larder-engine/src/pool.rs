//! How full a pool is. Datasets without a quota share one, so this is apart from any of them.

use crate::shelf::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Bytes of residents, as stored, against what the pool may hold.
pub(crate) struct Pool {
    capacity: u64,
    high: u64,
    low: u64,
    used: AtomicU64,
    /// The stewards of the datasets that fill it.
    stewards: Mutex<Vec<Arc<Notify>>>,
}

impl Pool {
    /// `high` and `low` are fractions of the capacity: where eviction begins and ends.
    pub(crate) fn new(capacity: u64, high: f64, low: f64) -> Self {
        let part = |fraction: f64| (capacity as f64 * fraction) as u64;
        Self {
            capacity,
            high: part(high),
            low: part(low),
            used: AtomicU64::new(0),
            stewards: Mutex::default(),
        }
    }

    /// Takes room for `bytes`, if it is there.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.capacity);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Counts residents that are there already, fitting or not.
    pub(crate) fn adopt(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives room back.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Has this steward told whenever room is short.
    pub(crate) fn join(&self, steward: Arc<Notify>) {
        lock(&self.stewards).push(steward);
    }

    /// Tells every steward that room is short: one dataset's growth is another's to make room for.
    pub(crate) fn stir(&self) {
        lock(&self.stewards).iter().for_each(|steward| steward.notify_one());
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// How many bytes must go to get down to the low watermark, once the high one is passed.
    pub(crate) fn excess(&self) -> Option<u64> {
        let used = self.used();
        (used > self.high).then(|| used.saturating_sub(self.low)).filter(|excess| *excess > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn nothing_is_taken_beyond_the_capacity() {
        let pool = Pool::new(100, 0.9, 0.5);
        assert!(pool.take(60));
        assert!(!pool.take(41));
        assert!(pool.take(40));
        pool.give(60);
        assert_eq!(pool.used(), 40);
    }

    #[test]
    fn eviction_begins_above_high_and_aims_at_low() {
        let pool = Pool::new(100, 0.9, 0.5);
        assert!(pool.take(90));
        assert_eq!(pool.excess(), None);
        assert!(pool.take(1));
        assert_eq!(pool.excess(), Some(41));
    }
}
