//! Memory as a budget: every block's bytes are counted from before they are fetched until the last
//! slice of them is dropped, so memory that a slow reader still holds is not lost sight of.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// A bound on bytes that are alive at once. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
    /// Told whenever bytes come back; waiters look again, in no promised order.
    released: Notify,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let shared = Shared { limit, used: AtomicU64::new(0), released: Notify::new() };
        Self(Arc::new(shared))
    }

    /// Takes `bytes`, or `None` when they would not fit now.
    #[must_use]
    pub fn try_reserve(&self, bytes: u64) -> Option<Reserve> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.0.limit);
        self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Reserve { budget: Some(self.clone()), bytes })
    }

    /// Takes `bytes` as soon as they fit. A wish larger than the whole budget waits until nothing
    /// else is out, then is granted: it could not ever be otherwise.
    ///
    /// Cancel safe: a dropped future has taken nothing.
    pub async fn reserve(&self, bytes: u64) -> Reserve {
        loop {
            let released = self.0.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if let Some(reserve) = self.try_reserve(bytes) {
                return reserve;
            }
            if bytes > self.0.limit && self.used() == 0 {
                return self.charge(bytes);
            }
            released.await;
        }
    }

    /// Takes `bytes` whether they fit or not: for memory that is already there and must be counted.
    pub fn charge(&self, bytes: u64) -> Reserve {
        self.0.used.fetch_add(bytes, Ordering::AcqRel);
        Reserve { budget: Some(self.clone()), bytes }
    }

    /// Bytes that are out now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Acquire)
    }

    /// The bound.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }
}

/// Bytes taken from a [`Budget`]; dropping gives them back.
#[must_use]
pub struct Reserve {
    budget: Option<Budget>,
    bytes: u64,
}

impl Reserve {
    /// A reserve of nothing from nowhere, for tests and for bytes that something else counts.
    pub fn none() -> Self {
        Self { budget: None, bytes: 0 }
    }

    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits off up to `bytes` into a reserve of its own.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take()
            && self.bytes > 0
        {
            budget.0.used.fetch_sub(self.bytes, Ordering::AcqRel);
            budget.0.released.notify_waiters();
        }
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reserve({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn a_full_budget_refuses_until_something_comes_back() {
        let budget = Budget::new(10);
        let first = budget.try_reserve(8).unwrap();
        assert!(budget.try_reserve(3).is_none());
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.try_reserve(10).is_some());
    }

    #[test]
    fn splitting_keeps_the_sum() {
        let budget = Budget::new(10);
        let mut whole = budget.try_reserve(10).unwrap();
        let part = whole.split(4);
        assert_eq!((whole.bytes(), part.bytes(), budget.used()), (6, 4, 10));
        drop(part);
        assert_eq!(budget.used(), 6);
        assert_eq!(whole.split(99).bytes(), 6);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_may_exceed_the_limit_and_is_counted() {
        let budget = Budget::new(10);
        let charge = budget.charge(25);
        assert!(budget.try_reserve(1).is_none());
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_waiter_is_served_when_bytes_come_back() {
        use std::future::Future;
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};
        let budget = Budget::new(10);
        let held = budget.try_reserve(10).unwrap();
        let mut waiting = pin!(budget.reserve(5));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert!(matches!(waiting.as_mut().poll(&mut cx), Poll::Ready(r) if r.bytes() == 5));
    }
}
