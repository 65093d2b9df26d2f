//! What the engine counts, per dataset. The names are those of DESIGN §8.

use crate::Source;
use larder_model::{Budget, DatasetName};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Why a block had to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Never seen.
    Cold,
    /// It was here and was evicted, or not admitted.
    Evicted,
    /// The object changed.
    Stale,
    /// What was stored failed verification.
    Corrupt,
    /// It was thought to be here and was not.
    Lost,
    /// It is never cached.
    Bypass,
}

const CAUSES: [(Cause, &str); 6] = [
    (Cause::Cold, "cold"),
    (Cause::Evicted, "evicted"),
    (Cause::Stale, "stale"),
    (Cause::Corrupt, "corrupt"),
    (Cause::Lost, "lost"),
    (Cause::Bypass, "bypass"),
];

/// How a cacheable LIST was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paging {
    /// From the cache.
    Hit,
    /// By an ask that was under way.
    Joined,
    /// The origin was asked.
    Miss,
    /// The origin was asked, and the page not kept: a write was under way.
    Around,
}

const PAGINGS: [(Paging, &str); 4] = [
    (Paging::Hit, "hit"),
    (Paging::Joined, "joined"),
    (Paging::Miss, "miss"),
    (Paging::Around, "write_under_way"),
];

/// The families, registered once a node.
pub(crate) struct Meters {
    served: IntCounterVec,
    origin_bytes: IntCounterVec,
    misses: IntCounterVec,
    cached_bytes: IntGaugeVec,
    cached_objects: IntGaugeVec,
    evicted: IntCounterVec,
    policy_calls: IntCounterVec,
    dropped_events: IntCounterVec,
    misses_at_start: IntCounterVec,
    list_cache: IntCounterVec,
}

/// A gauge that reads a budget whenever it is collected.
pub(crate) struct Live {
    gauge: IntGauge,
    budget: Budget,
}

impl Live {
    pub(crate) fn new(gauge: IntGauge, budget: Budget) -> Self {
        Self { gauge, budget }
    }
}

impl Collector for Live {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::try_from(self.budget.used()).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}

impl Meters {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        Ok(Self {
            served: counter(
                "larder_served_bytes_total",
                "Bytes of objects handed to clients, by where they came from",
                &["dataset", "source"],
            )?,
            origin_bytes: counter(
                "larder_origin_bytes_total",
                "Bytes of objects received from the origin",
                &["dataset"],
            )?,
            misses: counter(
                "larder_misses_total",
                "Blocks (for bypass: requests) that had to be fetched, by cause",
                &["dataset", "cause"],
            )?,
            cached_bytes: gauge(
                "larder_cached_bytes",
                "Resident bytes as stored, by tier of record",
                &["dataset", "tier"],
            )?,
            cached_objects: gauge(
                "larder_cached_objects",
                "Objects with at least one resident block",
                &["dataset"],
            )?,
            evicted: counter(
                "larder_evicted_bytes_total",
                "Bytes evicted, as stored",
                &["dataset"],
            )?,
            policy_calls: counter(
                "larder_policy_calls_total",
                "Calls of the policy, by outcome",
                &["dataset", "policy", "outcome"],
            )?,
            dropped_events: counter(
                "larder_policy_events_dropped_total",
                "Access events that the policy was too slow to be told",
                &["dataset"],
            )?,
            misses_at_start: counter(
                "larder_lost_at_start_blocks_total",
                "Blocks of the catalog that the store did not have at the start",
                &["dataset"],
            )?,
            list_cache: counter(
                "larder_list_cache_total",
                "LIST pages asked for in datasets with list_cache, by outcome",
                &["dataset", "outcome"],
            )?,
        })
    }

    /// The handles of one dataset, looked up once.
    pub(crate) fn dataset(
        &self,
        name: &DatasetName,
        policy: &str,
        persistent: bool,
    ) -> DatasetMeters {
        let name = name.as_str();
        let served = |source: Source| self.served.with_label_values(&[name, source.as_str()]);
        let tier = if persistent { "disk" } else { "memory" };
        let call = |outcome| self.policy_calls.with_label_values(&[name, policy, outcome]);
        DatasetMeters {
            served: [served(Source::Memory), served(Source::Disk), served(Source::Origin)],
            origin_bytes: self.origin_bytes.with_label_values(&[name]),
            misses: CAUSES.map(|(_, cause)| self.misses.with_label_values(&[name, cause])),
            cached_bytes: self.cached_bytes.with_label_values(&[name, tier]),
            cached_objects: self.cached_objects.with_label_values(&[name]),
            evicted: self.evicted.with_label_values(&[name]),
            batches: call("ok"),
            refused_victims: call("refused_victim"),
            lost_at_start: self.misses_at_start.with_label_values(&[name]),
            dropped_events: self.dropped_events.with_label_values(&[name]),
            pagings: PAGINGS
                .map(|(_, outcome)| self.list_cache.with_label_values(&[name, outcome])),
        }
    }
}

/// The handles of one dataset.
pub(crate) struct DatasetMeters {
    served: [IntCounter; 3],
    pub(crate) origin_bytes: IntCounter,
    misses: [IntCounter; 6],
    pub(crate) cached_bytes: IntGauge,
    pub(crate) cached_objects: IntGauge,
    pub(crate) evicted: IntCounter,
    pub(crate) batches: IntCounter,
    pub(crate) refused_victims: IntCounter,
    pub(crate) lost_at_start: IntCounter,
    pub(crate) dropped_events: IntCounter,
    pagings: [IntCounter; 4],
}

impl DatasetMeters {
    pub(crate) fn served(&self, source: Source) -> &IntCounter {
        &self.served[match source {
            Source::Memory => 0,
            Source::Disk => 1,
            Source::Origin => 2,
        }]
    }

    pub(crate) fn paging(&self, paging: Paging) {
        if let Some(at) = PAGINGS.iter().position(|(known, _)| *known == paging) {
            self.pagings[at].inc();
        }
    }

    pub(crate) fn miss(&self, cause: Cause) {
        if let Some(at) = CAUSES.iter().position(|(known, _)| *known == cause) {
            self.misses[at].inc();
        }
    }
}
