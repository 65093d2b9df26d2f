//! The system's clock, behind the port.
//!
//! Invariant: within the process it never runs backwards, and it never lags the wall clock for long:
//! a suspended machine or a clock that is set forward makes things look older, never fresher.

use larder_model::{Clock, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How far the wall clock must be ahead before it is followed, in milliseconds: enough for rounding
/// and for the two clocks being read one after the other.
const FOLLOW_MS: u64 = 50;

/// Wall time at the start plus monotonic time since; moved forward when the wall clock jumps ahead
/// (the monotonic clock stands still while a machine is suspended). A wall clock that is set back is
/// followed only by a restart. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct SystemClock {
    anchor: Instant,
    /// Wall time at the anchor, in milliseconds; only ever grows.
    base_ms: Arc<AtomicU64>,
}

impl SystemClock {
    /// Reads the wall clock.
    pub(crate) fn start() -> Self {
        Self { anchor: Instant::now(), base_ms: Arc::new(AtomicU64::new(wall_ms())) }
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.anchor.elapsed()
    }

    fn read(&self, wall_ms: u64) -> Timestamp {
        let since_ms = self.uptime().as_millis() as u64;
        let base_ms = self.base_ms.load(Ordering::Acquire);
        let ahead = wall_ms.saturating_sub(since_ms);
        if ahead <= base_ms + FOLLOW_MS {
            return Timestamp(base_ms + since_ms);
        }
        let before = self.base_ms.fetch_max(ahead, Ordering::AcqRel);
        Timestamp(before.max(ahead) + since_ms)
    }
}

/// The wall clock as it is, set back or not: what signatures are held against. A clock that was
/// wrong for a while must not make every client's time look wrong ever after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp(wall_ms())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.read(wall_ms())
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the adapter that the rule points to")]
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::{SystemClock, wall_ms};
    use larder_model::Clock;

    #[test]
    fn the_clock_tells_the_wall_time_and_does_not_run_backwards() {
        let clock = SystemClock::start();
        let first = clock.now();
        assert!(first.0.abs_diff(wall_ms()) < 60_000, "{first:?}");
        assert!(clock.now() >= first);
    }

    #[test]
    fn a_wall_clock_set_back_does_not_make_anything_fresher() {
        let clock = SystemClock::start();
        let before = clock.now();
        assert!(clock.read(before.0 - 3_600_000) >= before);
    }

    #[test]
    fn a_wall_clock_that_jumps_ahead_is_followed_for_good() {
        let clock = SystemClock::start();
        let before = clock.now();
        let ahead = clock.read(before.0 + 3_600_000);
        assert!(ahead.0 >= before.0 + 3_600_000 - 100, "{ahead:?}");
        assert!(clock.now() >= ahead);
    }
}
