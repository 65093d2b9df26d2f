//! What the store counts.

use larder_model::PoolName;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

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
}

impl Cause {
    const ALL: [Self; 6] =
        [Self::Corrupt, Self::Io, Self::Dropped, Self::Timeout, Self::Full, Self::Oversize];

    fn as_str(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Dropped => "dropped",
            Self::Timeout => "timeout",
            Self::Full => "full",
            Self::Oversize => "oversize",
        }
    }
}

/// The store's metrics, all pools.
pub(crate) struct Metrics {
    errors: IntCounterVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "larder_store_errors_total",
            "Blocks that the store lost, refused or found damaged, by pool and cause",
        );
        let errors = IntCounterVec::new(opts, &["pool", "cause"])?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Self { errors })
    }

    /// The counters of one pool, all at zero from the start.
    pub(crate) fn pool(&self, pool: &PoolName) -> PoolMetrics {
        let counter =
            |cause: Cause| self.errors.with_label_values(&[pool.as_str(), cause.as_str()]);
        PoolMetrics { errors: Cause::ALL.map(counter) }
    }
}

/// The metrics of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    errors: [IntCounter; Cause::ALL.len()],
}

impl PoolMetrics {
    pub(crate) fn count(&self, cause: Cause) {
        self.errors[cause as usize].inc();
    }

    #[cfg(test)]
    pub(crate) fn counted(&self, cause: Cause) -> u64 {
        self.errors[cause as usize].get()
    }
}
