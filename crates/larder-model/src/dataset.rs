//! Datasets: rules over (bucket, prefix) that say how a part of an origin is cached, and the
//! namespace that finds the rule for a request.

use crate::{
    BucketName, DatasetName, ObjectKey, ObjectName, OriginName, PolicyName, PoolName, VersionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How old an answer about an object's version may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// Objects never change: a version once known is never asked for again.
    Immutable,
    /// Nothing older than this is served. Age counts from when the origin was *asked*, so the
    /// bound is an upper bound.
    Within(Duration),
    /// Every open asks the origin.
    Strict,
}

/// What a dataset or a grant allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// Which buckets of the origin a dataset covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BucketRule {
    /// This one.
    One(BucketName),
    /// All of them (`bucket = "*"`).
    Every,
}

/// What a dataset may hold in the cache of one node. Bytes are counted as stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quota {
    /// Bytes of memory for hot blocks.
    pub memory: u64,
    /// Bytes of SSD; 0 for a node without one.
    pub disk: u64,
    /// The fraction of the quota at which an evicting policy begins to evict.
    pub high: f64,
    /// The fraction down to which it evicts.
    pub low: f64,
}

/// One rule: a part of an origin and how it is cached.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name in the configuration, the metrics and the status.
    pub name: DatasetName,
    /// The origin that holds it.
    pub origin: OriginName,
    /// The buckets it covers, by their names at the origin.
    pub bucket: BucketRule,
    /// The prefix of the keys it covers; may be empty.
    pub prefix: String,
    /// A bucket name of its own that clients use, with `prefix` hidden (`as`).
    pub alias: Option<BucketName>,
    /// Whether it can be written to at all.
    pub access: Access,
    /// How old a served version may be.
    pub freshness: Freshness,
    /// The length of a block in bytes, a power of two from 64 KiB to 16 MiB.
    pub block_bytes: u32,
    /// Its own share of the cache, or `None` for the shared pool.
    pub quota: Option<Quota>,
    /// The policy that decides what is kept.
    pub policy: PolicyName,
    /// How long a page of a listing is served again, counted from when the origin was asked;
    /// `None` asks each time. Writes through us drop the pages that could show them.
    pub list_cache: Option<Duration>,
    /// Whether an object of one block that is written through us is kept. Costs one HEAD a write.
    pub admit_writes: bool,
}

impl Dataset {
    /// The pool of the store that holds its blocks.
    #[must_use]
    pub fn pool(&self) -> PoolName {
        match self.quota {
            Some(_) => PoolName::of(&self.name),
            None => PoolName::shared(),
        }
    }

    /// A dataset with the defaults, for tests and examples.
    ///
    /// # Panics
    ///
    /// When a name is not valid.
    #[expect(clippy::unwrap_used, reason = "test fixture; the names are literals of the caller")]
    #[must_use]
    pub fn example(name: &str, bucket: &str, prefix: &str) -> Self {
        Self {
            name: DatasetName::new(name).unwrap(),
            origin: OriginName::new("origin").unwrap(),
            bucket: BucketRule::One(BucketName::new(bucket).unwrap()),
            prefix: prefix.to_owned(),
            alias: None,
            access: Access::Read,
            freshness: Freshness::Strict,
            block_bytes: 1 << 20,
            quota: None,
            policy: PolicyName::new("lru").unwrap(),
            list_cache: None,
            admit_writes: false,
        }
    }
}

/// Two datasets that claim the same requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// Same bucket, same prefix.
    #[error(
        "datasets {0} and {1} cover the same bucket and prefix; give one a longer prefix or another bucket"
    )]
    Overlap(DatasetName, DatasetName),
    /// A client's bucket name would mean two things.
    #[error("datasets {0} and {1} both answer to bucket {2}; give one another name with `as`")]
    Ambiguous(DatasetName, DatasetName, BucketName),
    /// Two origins behind `bucket = "*"`.
    #[error(
        "datasets {0} and {1} both cover every bucket, of different origins; name the buckets of one"
    )]
    TwoWildcards(DatasetName, DatasetName),
}

/// What a client's (bucket, key) means.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The rule that covers it.
    pub dataset: Arc<Dataset>,
    /// The object at the origin.
    pub name: ObjectName,
}

/// All datasets of a node, and the way from a client's bucket and key to the origin's.
///
/// The longest matching prefix wins. A bucket that is named outright hides a wildcard.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    /// By client-side bucket; longest prefix first.
    named: BTreeMap<BucketName, Vec<Arc<Dataset>>>,
    /// Datasets over every bucket of an origin; longest prefix first.
    wildcard: Vec<Arc<Dataset>>,
}

impl Namespace {
    /// Refuses datasets between which a request could not choose.
    pub fn new(datasets: impl IntoIterator<Item = Arc<Dataset>>) -> Result<Self, NamespaceError> {
        let mut namespace = Self::default();
        for dataset in datasets {
            let rules = match (&dataset.alias, &dataset.bucket) {
                (Some(bucket), _) | (None, BucketRule::One(bucket)) => {
                    namespace.named.entry(bucket.clone()).or_default()
                }
                (None, BucketRule::Every) => &mut namespace.wildcard,
            };
            if let Some(other) = rules.iter().find(|other| conflict(other, &dataset)) {
                let (a, b) = (other.name.clone(), dataset.name.clone());
                return Err(match (&dataset.alias, &dataset.bucket) {
                    (None, BucketRule::Every) if other.origin != dataset.origin => {
                        NamespaceError::TwoWildcards(a, b)
                    }
                    (Some(bucket), _) => NamespaceError::Ambiguous(a, b, bucket.clone()),
                    (None, BucketRule::One(bucket))
                        if other.alias.is_some() || other.origin != dataset.origin =>
                    {
                        NamespaceError::Ambiguous(a, b, bucket.clone())
                    }
                    _ => NamespaceError::Overlap(a, b),
                });
            }
            rules.push(dataset);
            rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        }
        Ok(namespace)
    }

    /// The datasets behind a client's bucket, longest prefix first; empty when there is none.
    #[must_use]
    pub fn bucket(&self, bucket: &BucketName) -> &[Arc<Dataset>] {
        self.named.get(bucket).map_or(&self.wildcard, Vec::as_slice)
    }

    /// The rule for a key, and the object it means.
    #[must_use]
    pub fn resolve(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        version_id: Option<VersionId>,
    ) -> Option<Resolved> {
        let covers = |rule: &&Arc<Dataset>| {
            rule.alias.is_some() || key.as_str().starts_with(rule.prefix.as_str())
        };
        let dataset = self.bucket(bucket).iter().find(covers)?.clone();
        let key = match dataset.alias {
            Some(_) => ObjectKey::new(format!("{}{key}", dataset.prefix)).ok()?,
            None => key.clone(),
        };
        let bucket = dataset.origin_bucket(bucket);
        let name = ObjectName { origin: dataset.origin.clone(), bucket, key, version_id };
        Some(Resolved { dataset, name })
    }

    /// The client-side buckets that are named outright.
    pub fn named_buckets(&self) -> impl Iterator<Item = (&BucketName, &[Arc<Dataset>])> {
        self.named.iter().map(|(bucket, rules)| (bucket, rules.as_slice()))
    }

    /// The datasets over every bucket of an origin.
    #[must_use]
    pub fn wildcards(&self) -> &[Arc<Dataset>] {
        &self.wildcard
    }

    /// Every dataset, by client-side bucket, wildcards last.
    pub fn datasets(&self) -> impl Iterator<Item = &Arc<Dataset>> {
        self.named.values().flatten().chain(&self.wildcard)
    }
}

impl Dataset {
    /// The origin's name for a bucket that a client named.
    #[must_use]
    pub fn origin_bucket(&self, client_bucket: &BucketName) -> BucketName {
        match &self.bucket {
            BucketRule::One(bucket) => bucket.clone(),
            BucketRule::Every => client_bucket.clone(),
        }
    }
}

/// Whether a request could mean either of two rules of one client-side bucket.
fn conflict(a: &Dataset, b: &Dataset) -> bool {
    a.prefix == b.prefix || a.alias.is_some() || b.alias.is_some() || a.origin != b.origin
}

#[cfg(test)]
mod tests {
    use super::{BucketRule, Dataset, Namespace, NamespaceError};
    use crate::{BucketName, ObjectKey, OriginName};
    use std::sync::Arc;

    fn namespace(datasets: &[Dataset]) -> Result<Namespace, NamespaceError> {
        Namespace::new(datasets.iter().cloned().map(Arc::new))
    }

    fn check(namespace: &Namespace, bucket: &str, key: &str, expected: Option<(&str, &str)>) {
        let bucket = BucketName::new(bucket).unwrap();
        let found = namespace.resolve(&bucket, &ObjectKey::new(key).unwrap(), None);
        let got = found.as_ref().map(|r| (r.dataset.name.as_str(), r.name.key.as_str()));
        assert_eq!(got, expected, "{bucket}/{key}");
    }

    #[test]
    fn the_longest_prefix_wins() {
        let datasets = [
            Dataset::example("all", "data", ""),
            Dataset::example("images", "data", "images/"),
            Dataset::example("val", "data", "images/val/"),
        ];
        let namespace = namespace(&datasets).unwrap();
        check(&namespace, "data", "x", Some(("all", "x")));
        check(&namespace, "data", "images/a", Some(("images", "images/a")));
        check(&namespace, "data", "images/val/a", Some(("val", "images/val/a")));
        check(&namespace, "other", "x", None);
    }

    #[test]
    fn an_alias_hides_the_prefix_and_the_bucket() {
        let mut dataset = Dataset::example("images", "data", "images/");
        dataset.alias = BucketName::new("pictures").ok();
        let namespace = namespace(&[dataset]).unwrap();
        check(&namespace, "pictures", "a", Some(("images", "images/a")));
        check(&namespace, "data", "images/a", None);
    }

    #[test]
    fn a_named_bucket_hides_the_wildcard() {
        let mut every = Dataset::example("every", "data", "");
        every.bucket = BucketRule::Every;
        let namespace = namespace(&[every, Dataset::example("images", "data", "images/")]).unwrap();
        check(&namespace, "data", "images/a", Some(("images", "images/a")));
        check(&namespace, "data", "x", None);
        check(&namespace, "more", "x", Some(("every", "x")));
    }

    #[test]
    fn datasets_that_cannot_be_told_apart_are_refused() {
        let a = Dataset::example("a", "data", "x/");
        let b = Dataset::example("b", "data", "x/");
        assert!(matches!(namespace(&[a.clone(), b.clone()]), Err(NamespaceError::Overlap(..))));
        let mut aliased = Dataset::example("c", "elsewhere", "");
        aliased.alias = BucketName::new("data").ok();
        assert!(matches!(namespace(&[a.clone(), aliased]), Err(NamespaceError::Ambiguous(..))));
        let mut foreign = Dataset::example("d", "data", "y/");
        foreign.origin = OriginName::new("second").unwrap();
        assert!(matches!(namespace(&[a, foreign]), Err(NamespaceError::Ambiguous(..))));
    }
}
