//! What the store counts.

use crate::pool::health::State;
use larder_model::PoolName;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Why something that was to be kept or served was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Stored bytes failed a checksum, or belonged to another key.
    Corrupt,
    /// The device answered with an error.
    Io,
    /// A write that the SSD never confirmed.
    Dropped,
    /// A write that did not get its turn, or no confirmation, within the bound.
    Timeout,
    /// A write beyond what the pool's residents may take.
    Full,
    /// A block longer than the pool takes.
    Oversize,
    /// The file system has no room, or takes no writes.
    NoSpace,
    /// A read or write that was not tried, the device being out of use.
    Down,
    /// The pool's folder was removed.
    Gone,
}

impl Cause {
    const ALL: [Self; 9] = [
        Self::Corrupt,
        Self::Io,
        Self::Dropped,
        Self::Timeout,
        Self::Full,
        Self::Oversize,
        Self::NoSpace,
        Self::Down,
        Self::Gone,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Dropped => "dropped",
            Self::Timeout => "timeout",
            Self::Full => "full",
            Self::Oversize => "oversize",
            Self::NoSpace => "no_space",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }
}

/// The store's metrics, all pools.
pub(crate) struct Metrics {
    errors: IntCounterVec,
    states: IntGaugeVec,
    rebuilds: IntCounterVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "larder_store_errors_total",
            "Blocks that the store lost, refused or found damaged, by pool and cause",
        );
        let errors = IntCounterVec::new(opts, &["pool", "cause"])?;
        let opts = Opts::new(
            "larder_disk_state",
            "Whether a pool's SSD is in use: 0 normal, 1 unstable (read only), 2 down",
        );
        let states = IntGaugeVec::new(opts, &["pool"])?;
        let opts = Opts::new(
            "larder_disk_rebuilds_total",
            "How often a pool's SSD engine was begun anew from its files after a fault",
        );
        let rebuilds = IntCounterVec::new(opts, &["pool"])?;
        registry.register(Box::new(errors.clone()))?;
        registry.register(Box::new(states.clone()))?;
        registry.register(Box::new(rebuilds.clone()))?;
        Ok(Self { errors, states, rebuilds })
    }

    /// The counters of one pool, all at zero from the start.
    pub(crate) fn pool(&self, pool: &PoolName) -> PoolMetrics {
        let counter =
            |cause: Cause| self.errors.with_label_values(&[pool.as_str(), cause.as_str()]);
        let state = self.states.with_label_values(&[pool.as_str()]);
        let rebuilds = self.rebuilds.with_label_values(&[pool.as_str()]);
        PoolMetrics { errors: Cause::ALL.map(counter), state, rebuilds }
    }
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    errors: [IntCounter; Cause::ALL.len()],
    state: IntGauge,
    rebuilds: IntCounter,
}

impl PoolMetrics {
    pub(crate) fn state(&self, state: State) {
        self.state.set(state as i64);
    }

    pub(crate) fn rebuilt(&self) {
        self.rebuilds.inc();
    }

    #[cfg(test)]
    pub(crate) fn rebuilds(&self) -> u64 {
        self.rebuilds.get()
    }

    pub(crate) fn count(&self, cause: Cause) {
        self.errors[cause as usize].inc();
    }

    #[cfg(test)]
    pub(crate) fn current_state(&self) -> i64 {
        self.state.get()
    }

    #[cfg(test)]
    pub(crate) fn counted(&self, cause: Cause) -> u64 {
        self.errors[cause as usize].get()
    }
}
