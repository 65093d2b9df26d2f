//! Time, as a port: tests hold it.

/// Milliseconds since 1970 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Milliseconds since `earlier`, or `None` when that lies in the future: a clock that was set
    /// back must make things look stale, never fresh.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

/// Tells the time. Within one process it never runs backwards.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}
