//! The gateway's metrics (DESIGN §8).

use crate::operation::Operation;
use http::StatusCode;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};
use std::sync::OnceLock;
use std::time::Duration;

/// The dataset label of requests that reached none.
pub(crate) const NO_DATASET: &str = "-";

/// Seconds to the first byte: from a memory hit to an origin in trouble.
const BUCKETS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0, 60.0,
];

/// Handles of everything that the gateway counts.
pub(crate) struct Metrics {
    requests: IntCounterVec,
    /// By operation, at [`Operation::place`]; made when an operation is first answered, so that the
    /// many that nobody uses are not shown.
    durations: [OnceLock<Histogram>; Operation::COUNT],
    all_durations: HistogramVec,
    /// Connections that are open now.
    pub(crate) connections: IntGauge,
}

impl Metrics {
    /// Registers them. Fails where they are registered already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("larder_requests_total", "S3 requests answered"),
            &["dataset", "operation", "status"],
        )?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "larder_request_duration_seconds",
                "From a request's header to its answer's header",
            )
            .buckets(BUCKETS.to_vec()),
            &["operation"],
        )?;
        let connections = IntGauge::new("larder_connections", "Client connections open now")?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(durations.clone()))?;
        registry.register(Box::new(connections.clone()))?;
        let (durations, all_durations) = ([const { OnceLock::new() }; Operation::COUNT], durations);
        Ok(Self { requests, durations, all_durations, connections })
    }

    /// Counts one answer. Labels come from the configuration and from closed sets, so their number
    /// is bounded.
    pub(crate) fn count(
        &self,
        dataset: &str,
        operation: Operation,
        status: StatusCode,
        took: Duration,
    ) {
        let labels = [dataset, operation.as_str(), status.as_str()];
        self.requests.with_label_values(&labels).inc();
        if let Some(histogram) = self.durations.get(operation.place()) {
            let fresh = || self.all_durations.with_label_values(&[operation.as_str()]);
            histogram.get_or_init(fresh).observe(took.as_secs_f64());
        }
    }
}
