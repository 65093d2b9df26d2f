//! The task that watches over one pool's device: probes it whenever there is reason to, and begins
//! foyer's engine anew when that is called for and the device works again.

use super::guard::Guard;
use super::health::{Health, Probe, State};
use super::probe::Prober;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How often a device that is not normal is probed, and at most how often after a suspicion.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often one that is normal is looked after: its folder may have been removed.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long after one beginning of the engine the next may come: the first bound doubles up to the
/// second one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// An engine that worked for so long makes up for those before it.
const LONG: Duration = Duration::from_secs(600);

/// Ends when it is aborted.
pub(super) async fn watch(health: Arc<Health>, guard: Arc<Guard>, region: u64) {
    let mut prober = Prober::new(&health.folder, region);
    let mut pauses = Pauses::default();
    loop {
        let normal = health.state() == State::Normal;
        let quiet = normal && timeout(LOOK_EVERY, health.suspicion.notified()).await.is_err();
        // When nothing is suspicious, there is no need to write.
        let mut found = if quiet { prober.look().await } else { prober.probe().await };
        if found == Probe::Fine && health.broken() && pauses.over() {
            pauses.begun();
            match guard.mend().await {
                Ok(()) => {
                    health.metrics.rebuilt();
                    health.mended();
                }
                Err(error) => {
                    tracing::warn!(pool = %health.pool, %error, "cannot begin the SSD's engine anew");
                    found = Probe::Failed;
                }
            }
        }
        health.probed(found);
        if !quiet {
            sleep(PROBE_EVERY).await;
        }
    }
}

/// Spaces out the beginnings, so that a device that comes and goes costs little.
#[derive(Default)]
struct Pauses {
    /// When the last one was, and how long the pause after it is.
    last: Option<(Instant, Duration)>,
}

impl Pauses {
    fn over(&self) -> bool {
        self.last.is_none_or(|(at, pause)| at.elapsed() >= pause)
    }

    fn begun(&mut self) {
        let (shortest, longest) = PAUSES;
        let pause = match self.last {
            Some((at, pause)) if at.elapsed() < LONG => (pause * 2).min(longest),
            _ => shortest,
        };
        self.last = Some((Instant::now(), pause));
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG, PAUSES, Pauses};

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_bound_until_an_engine_worked_for_long() {
        let mut pauses = Pauses::default();
        let mut expected = PAUSES.0;
        assert!(pauses.over());
        for _ in 0..10 {
            pauses.begun();
            tokio::time::advance(expected / 2).await;
            assert!(!pauses.over());
            tokio::time::advance(expected / 2).await;
            assert!(pauses.over());
            expected = (expected * 2).min(PAUSES.1);
        }
        tokio::time::advance(LONG).await;
        pauses.begun();
        tokio::time::advance(PAUSES.0).await;
        assert!(pauses.over());
    }
}
