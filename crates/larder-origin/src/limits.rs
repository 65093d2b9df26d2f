//! The limits towards an origin: requests per second, requests in flight, time-outs and retries.
//!
//! Invariant: every wait in this crate is bounded by one of these numbers.

use crate::ConfigError;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use larder_model::{OriginError, OriginName};
use rand::Rng as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// How much an origin is asked, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginLimits {
    /// Requests per second, retries and resumes included; no limit without.
    pub requests_per_second: Option<u32>,
    /// Requests in flight. A GET counts until its body has ended or was dropped.
    pub in_flight: usize,
    /// How long a request may wait for the two limits above, each. Beyond it, the answer is
    /// [`OriginError::Busy`].
    pub queue_timeout: Duration,
    /// Until a connection stands, TLS included.
    pub connect_timeout: Duration,
    /// From sending a request to the head of the answer; for everything but GET, to its end.
    pub answer_timeout: Duration,
    /// Between two pieces of a body, while somebody waits for the next one.
    pub idle_timeout: Duration,
    /// How often one request is sent at most, the first time included.
    pub attempts: u32,
    /// No further attempt starts after this long.
    pub retry_time: Duration,
    /// The ceiling of the first pause; it doubles with each attempt (full jitter: the pause is
    /// drawn evenly from zero to the ceiling).
    pub backoff: Duration,
    /// The ceiling never grows beyond this.
    pub backoff_max: Duration,
    /// How often in a row a broken body is resumed without a MiB of progress in between.
    pub resumes: u32,
}

impl Default for OriginLimits {
    fn default() -> Self {
        Self {
            requests_per_second: None,
            in_flight: 512,
            queue_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(20),
            attempts: 5,
            retry_time: Duration::from_secs(30),
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            resumes: 3,
        }
    }
}

impl OriginLimits {
    /// The pause before attempt number `next` (2 is the first retry).
    pub(crate) fn pause(&self, next: u32) -> Duration {
        let doublings = next.saturating_sub(2).min(16);
        let ceiling = self.backoff.saturating_mul(1 << doublings).min(self.backoff_max);
        ceiling.mul_f64(rand::rng().random::<f64>())
    }
}

/// The gate that each request to an origin passes.
#[derive(Debug)]
pub(crate) struct Gate {
    origin: OriginName,
    rate: Option<DefaultDirectRateLimiter>,
    clock: DefaultClock,
    in_flight: Arc<Semaphore>,
    queue_timeout: Duration,
}

/// The right to have one request in flight. Held as long as its body lives.
#[derive(Debug)]
pub(crate) struct Ticket {
    _permit: OwnedSemaphorePermit,
}

impl Gate {
    pub(crate) fn new(origin: &OriginName, limits: &OriginLimits) -> Result<Self, ConfigError> {
        let too_low = |limit| ConfigError::Limit { origin: origin.clone(), limit };
        let rate = match limits.requests_per_second {
            None => None,
            Some(rate) => {
                let rate = NonZeroU32::new(rate).ok_or_else(|| too_low("requests_per_second"))?;
                Some(RateLimiter::direct(Quota::per_second(rate)))
            }
        };
        if limits.in_flight == 0 {
            return Err(too_low("in_flight"));
        }
        if limits.attempts == 0 {
            return Err(too_low("attempts"));
        }
        Ok(Self {
            origin: origin.clone(),
            rate,
            clock: DefaultClock::default(),
            in_flight: Arc::new(Semaphore::new(limits.in_flight.min(Semaphore::MAX_PERMITS))),
            queue_timeout: limits.queue_timeout,
        })
    }

    /// Waits for a place in flight.
    pub(crate) async fn enter(&self) -> Result<Ticket, OriginError> {
        let place = Arc::clone(&self.in_flight).acquire_owned();
        match timeout(self.queue_timeout, place).await {
            Ok(Ok(permit)) => Ok(Ticket { _permit: permit }),
            // The semaphore is never closed; were it, the origin would take no more requests.
            Ok(Err(_)) | Err(_) => {
                Err(self.busy("its limit of requests in flight is reached", Duration::from_secs(1)))
            }
        }
    }

    /// Waits for a token of the rate limit. Called once for each attempt.
    pub(crate) async fn pass(&self) -> Result<(), OriginError> {
        let Some(rate) = &self.rate else { return Ok(()) };
        let deadline = Instant::now() + self.queue_timeout;
        while let Err(not_until) = rate.check() {
            let wait = not_until.wait_time_from(self.clock.now());
            if Instant::now() + wait > deadline {
                let retry_after = wait.max(Duration::from_secs(1));
                return Err(self.busy("its limit of requests per second is reached", retry_after));
            }
            sleep(wait.max(Duration::from_millis(1))).await;
        }
        Ok(())
    }

    fn busy(&self, reason: &str, retry_after: Duration) -> OriginError {
        OriginError::Busy { origin: self.origin.clone(), reason: reason.to_owned(), retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, OriginLimits};
    use larder_model::{OriginError, OriginName};
    use std::time::Duration;

    fn gate(limits: &OriginLimits) -> Gate {
        Gate::new(&OriginName::new("o").unwrap(), limits).unwrap()
    }

    #[test]
    fn the_pause_stays_below_its_doubling_ceiling() {
        let limits = OriginLimits::default();
        for next in 2..60 {
            let ceiling = Duration::from_millis(100) * 2_u32.pow((next - 2).min(6));
            let pause = limits.pause(next);
            assert!(pause <= ceiling.min(limits.backoff_max), "attempt {next}: {pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_gate_is_busy_after_the_queue_timeout() {
        let limits = OriginLimits { in_flight: 1, ..OriginLimits::default() };
        let gate = gate(&limits);
        let held = gate.enter().await.unwrap();
        assert!(matches!(gate.enter().await, Err(OriginError::Busy { .. })));
        drop(held);
        assert!(gate.enter().await.is_ok());
    }

    #[tokio::test]
    async fn a_spent_rate_is_busy_when_the_wait_is_too_long() {
        let limits = OriginLimits {
            requests_per_second: Some(1),
            queue_timeout: Duration::from_millis(5),
            ..OriginLimits::default()
        };
        let gate = gate(&limits);
        assert!(gate.pass().await.is_ok());
        assert!(matches!(gate.pass().await, Err(OriginError::Busy { .. })));
    }

    #[test]
    fn limits_that_let_nothing_through_are_refused() {
        let name = OriginName::new("o").unwrap();
        let zero_flight = OriginLimits { in_flight: 0, ..OriginLimits::default() };
        let zero_rate = OriginLimits { requests_per_second: Some(0), ..OriginLimits::default() };
        assert!(Gate::new(&name, &zero_flight).is_err());
        assert!(Gate::new(&name, &zero_rate).is_err());
    }
}
