//! How often foyer's write buffer had no room for an entry.
//!
//! foyer drops such an entry without a word, and one whose write failed just the same. The first
//! may be handed to it again; after the second it must not be given anything any more
//! ([`super::life`]). The one difference that can be seen is a counter among its metrics, so this is
//! a registry of metrics that keeps that counter and no other.

use mixtrics::metrics::{
    BoxedCounter, BoxedCounterVec, BoxedGauge, BoxedGaugeVec, BoxedHistogram, BoxedHistogramVec,
    CounterOps, CounterVecOps, GaugeOps, GaugeVecOps, HistogramOps, HistogramVecOps, RegistryOps,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The label of the counter, of foyer 0.22.6.
const OVERFLOW: &str = "buffer_overflow";

/// Counts the overflows of one engine. Cloning shares it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Overflows(Arc<AtomicU64>);

impl Overflows {
    /// So many, so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct Ignored;

impl CounterOps for Overflows {
    fn increase(&self, by: u64) {
        self.0.fetch_add(by, Ordering::AcqRel);
    }
}

impl CounterOps for Ignored {
    fn increase(&self, _: u64) {}
}

impl GaugeOps for Ignored {
    fn increase(&self, _: u64) {}
    fn decrease(&self, _: u64) {}
    fn absolute(&self, _: u64) {}
}

impl HistogramOps for Ignored {
    fn record(&self, _: f64) {}
}

impl CounterVecOps for Overflows {
    fn counter(&self, labels: &[Cow<'static, str>]) -> BoxedCounter {
        if labels.iter().any(|label| label == OVERFLOW) {
            Box::new(self.clone())
        } else {
            Box::new(Ignored)
        }
    }
}

impl GaugeVecOps for Ignored {
    fn gauge(&self, _: &[Cow<'static, str>]) -> BoxedGauge {
        Box::new(Self)
    }
}

impl HistogramVecOps for Ignored {
    fn histogram(&self, _: &[Cow<'static, str>]) -> BoxedHistogram {
        Box::new(Self)
    }
}

type Text = Cow<'static, str>;
type Labels = &'static [&'static str];

impl RegistryOps for Overflows {
    fn register_counter_vec(&self, _: Text, _: Text, _: Labels) -> BoxedCounterVec {
        Box::new(self.clone())
    }

    fn register_gauge_vec(&self, _: Text, _: Text, _: Labels) -> BoxedGaugeVec {
        Box::new(Ignored)
    }

    fn register_histogram_vec(&self, _: Text, _: Text, _: Labels) -> BoxedHistogramVec {
        Box::new(Ignored)
    }

    fn register_histogram_vec_with_buckets(
        &self,
        _: Text,
        _: Text,
        _: Labels,
        _: Vec<f64>,
    ) -> BoxedHistogramVec {
        Box::new(Ignored)
    }
}
