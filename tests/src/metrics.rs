//! The text form of a node's metrics, read back.

use std::collections::BTreeMap;

/// All samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<Sample>);

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Reads the Prometheus text format. Lines that are no samples are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(Sample::parse).collect())
    }

    /// The sum of the samples of `name` whose labels include all of these; 0 when there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = |sample: &&Sample| {
            let has = |(key, value): &(&str, &str)| {
                sample.labels.get(*key).is_some_and(|have| have == value)
            };
            sample.name == name && labels.iter().all(has)
        };
        // `Sum for f64` begins at -0.0, which would be printed so.
        self.0.iter().filter(of).fold(0.0, |sum, sample| sum + sample.value)
    }

    /// Whether there is any sample of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|sample| sample.name == name)
    }

    /// Bytes that a dataset fetched from its origin.
    #[must_use]
    pub fn origin_bytes(&self, dataset: &str) -> u64 {
        self.sum("larder_origin_bytes_total", &[("dataset", dataset)]) as u64
    }

    /// Bytes that a dataset served from a source: memory, disk or origin.
    #[must_use]
    pub fn served_bytes(&self, dataset: &str, source: &str) -> u64 {
        self.sum("larder_served_bytes_total", &[("dataset", dataset), ("source", source)]) as u64
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, labels)) = series.split_once('{') else {
            return Some(Self { name: series.to_owned(), labels: BTreeMap::new(), value });
        };
        let labels = labels.strip_suffix('}')?.split("\",").filter_map(|pair| {
            let (key, value) = pair.split_once("=\"")?;
            Some((key.to_owned(), value.trim_end_matches('"').to_owned()))
        });
        Some(Self { name: name.to_owned(), labels: labels.collect(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn samples_are_summed_over_the_labels_that_are_not_named() {
        let metrics = Metrics::parse(
            "# HELP larder_x Things.\n# TYPE larder_x counter\n\
             larder_x{dataset=\"a\",source=\"disk\"} 3\nlarder_x{dataset=\"a\",source=\"memory\"} 4\n\
             larder_x{dataset=\"b, c\",source=\"disk\"} 5\nlarder_up 1\nlarder_xy{dataset=\"a\"} 9\n",
        );
        assert_eq!(metrics.sum("larder_x", &[("dataset", "a")]), 7.0);
        assert_eq!(metrics.sum("larder_x", &[("source", "disk")]), 8.0);
        assert_eq!(metrics.sum("larder_x", &[("dataset", "b, c")]), 5.0);
        assert_eq!(metrics.sum("larder_up", &[]), 1.0);
        assert_eq!(metrics.sum("larder_none", &[]), 0.0);
        assert!(metrics.has("larder_up") && !metrics.has("larder_none"));
    }
}
