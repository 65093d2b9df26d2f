//! What a node says of itself: the JSON of `GET /v1/status`, which `larder status` reads back.
//!
//! Not here: how it is asked for or shown. Fields are only ever added.

use crate::config::{bucket_text, freshness_text};
use larder_engine::DatasetStatus;
use larder_model::Dataset;
use serde::{Deserialize, Serialize};

/// A node and its datasets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The node's name.
    pub(crate) node: String,
    /// The version of the program.
    pub(crate) version: String,
    /// `starting`, `ready` or `draining`.
    pub(crate) phase: String,
    /// Seconds since the start.
    pub(crate) uptime_seconds: u64,
    /// By name.
    pub(crate) datasets: Vec<DatasetReport>,
}

/// One dataset on one node. Byte counts of the cache are as stored; the others are of bodies, since
/// the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DatasetReport {
    pub(crate) name: String,
    pub(crate) origin: String,
    /// The bucket at the origin, or `*`.
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) policy: String,
    pub(crate) freshness: String,
    /// Bytes that are in the cache.
    pub(crate) cached_bytes: u64,
    /// Bytes that may be. Datasets without a quota share theirs.
    pub(crate) capacity_bytes: u64,
    /// `cached_bytes` of `capacity_bytes`, in per cent; 0 without capacity.
    pub(crate) cached_percent: f64,
    /// Objects of which at least one block is in the cache.
    pub(crate) cached_objects: u64,
    /// Objects whose version is known.
    pub(crate) known_objects: u64,
    /// Bytes that clients got.
    pub(crate) served_bytes: u64,
    /// Of these, bytes that came from the cache.
    pub(crate) hit_bytes: u64,
    /// Bytes fetched from the origin.
    pub(crate) origin_bytes: u64,
    /// `hit_bytes` of `served_bytes`, 0 to 1; `null` before the first byte.
    pub(crate) hit_ratio: Option<f64>,
}

impl DatasetReport {
    /// The rule together with what the engine counted for it.
    pub(crate) fn new(dataset: &Dataset, status: &DatasetStatus) -> Self {
        Self {
            name: dataset.name.to_string(),
            origin: dataset.origin.to_string(),
            bucket: bucket_text(&dataset.bucket).to_owned(),
            prefix: dataset.prefix.clone(),
            policy: status.policy.clone(),
            freshness: freshness_text(dataset.freshness),
            cached_bytes: status.cached_bytes,
            capacity_bytes: status.capacity_bytes,
            cached_percent: 100.0
                * share(status.cached_bytes, status.capacity_bytes).unwrap_or(0.0),
            cached_objects: status.cached_objects,
            known_objects: status.known_objects,
            served_bytes: status.served_bytes,
            hit_bytes: status.hit_bytes,
            origin_bytes: status.origin_bytes,
            hit_ratio: share(status.hit_bytes, status.served_bytes),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!(share(1, 4), Some(0.25));
        assert_eq!(share(0, 0), None);
    }
}
