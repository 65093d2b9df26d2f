//! The rules of `[dataset.NAME]`.

use super::{Check, MIN_POOL_BLOCKS, access_of, hint};
use crate::config::shape::{DatasetShape, PolicyShape, QuotaShape, Shape};
use crate::config::units::{Span, parse_span};
use larder_model::{
    Access, BucketName, BucketRule, Dataset, DatasetName, Freshness, OriginName, PolicyName, Quota,
};
use larder_policy::BUILTIN;
use std::sync::Arc;
use std::time::Duration;

/// Policies of DESIGN §4 that are not there yet.
const LATER_POLICIES: [&str; 3] = ["auto", "s3fifo", "sieve"];
const MIN_BLOCK_BYTES: u64 = 64 << 10;
const MAX_BLOCK_BYTES: u64 = 16 << 20;

impl Check<'_> {
    pub(super) fn datasets(&mut self, shape: &Shape) -> Vec<Arc<Dataset>> {
        if shape.dataset.is_empty() {
            let message = "no dataset: nothing would be served. Add [dataset.NAME] with origin and \
                           bucket";
            self.problem(&["dataset"], message);
        }
        let mut datasets = Vec::new();
        for (name, dataset) in &shape.dataset {
            datasets.extend(self.dataset(name, dataset, shape).map(Arc::new));
        }
        datasets
    }

    fn dataset(&mut self, name: &str, rule: &DatasetShape, shape: &Shape) -> Option<Dataset> {
        let origin = self.dataset_origin(name, rule, shape);
        let bucket = self.bucket(name, rule.bucket.as_deref());
        let alias = rule.alias.as_deref().and_then(|alias| self.alias(name, alias, rule));
        let access = self.access(name, rule.access.as_deref());
        let freshness = self.freshness(name, rule.freshness.as_deref());
        if freshness == Freshness::Immutable && access == Access::ReadWrite {
            let message = "\"immutable\" promises that objects never change, so access cannot be \
                           \"read-write\"";
            self.problem(&["dataset", name, "freshness"], message);
        }
        let block_bytes = self.block(name, rule.block.map_or(1 << 20, |size| size.0));
        match rule.replicas {
            None | Some(1) => {}
            Some(0) => self.problem(&["dataset", name, "replicas"], "must be at least 1"),
            Some(_) => {
                let advice = "a node of this version stands alone; write replicas = 1";
                self.later(&["dataset", name, "replicas"], advice);
            }
        }
        let disk = shape.cache.disk.is_some();
        let quota =
            rule.quota.as_ref().and_then(|quota| self.quota(name, quota, block_bytes, disk));
        let policy = self.policy(name, rule.policy.as_ref());
        let list_cache = self.list_cache(name, rule.list_cache);
        let admit_writes = rule.admit_writes.unwrap_or(false);
        if admit_writes && access == Access::Read {
            let message = "nothing is written to a dataset whose access is \"read\"; leave this out, \
                           or set access = \"read-write\"";
            self.problem(&["dataset", name, "admit_writes"], message);
        }
        let name = match DatasetName::new(name) {
            Ok(name) => name,
            Err(error) => {
                self.problem(&["dataset", name], error.to_string());
                return None;
            }
        };
        let prefix = rule.prefix.clone().unwrap_or_default();
        if prefix.len() > 1024 {
            let message = "longer than the 1,024 bytes of any key";
            self.problem(&["dataset", name.as_str(), "prefix"], message);
        }
        let (origin, bucket, policy) = (origin?, bucket?, policy?);
        Some(Dataset {
            name,
            origin,
            bucket,
            prefix,
            alias,
            access,
            freshness,
            block_bytes,
            quota,
            policy,
            list_cache,
            admit_writes,
        })
    }

    fn list_cache(&mut self, name: &str, ttl: Option<Span>) -> Option<Duration> {
        let ttl = ttl?.0;
        if ttl.is_zero() {
            let message = "a listing is kept for no time without this; leave it out";
            self.problem(&["dataset", name, "list_cache"], message);
        }
        Some(ttl)
    }

    fn dataset_origin(
        &mut self,
        name: &str,
        rule: &DatasetShape,
        shape: &Shape,
    ) -> Option<OriginName> {
        let key = ["dataset", name, "origin"];
        let Some(origin) = &rule.origin else {
            self.missing(&key, "origin = \"NAME\", with NAME of a section [origin.NAME]");
            return None;
        };
        if !shape.origin.contains_key(origin) {
            let hint = hint(origin, shape.origin.keys().map(String::as_str));
            self.problem(&key, format!("there is no origin {origin:?}{hint}"));
        }
        OriginName::new(origin).ok()
    }

    fn bucket(&mut self, name: &str, bucket: Option<&str>) -> Option<BucketRule> {
        let key = ["dataset", name, "bucket"];
        match bucket {
            None => {
                self.missing(&key, "bucket = \"train-data\", or \"*\" for every bucket");
                None
            }
            Some("*") => Some(BucketRule::Every),
            Some(bucket) => self.bucket_name(&key, bucket).map(BucketRule::One),
        }
    }

    fn bucket_name(&mut self, key: &[&str], bucket: &str) -> Option<BucketName> {
        match BucketName::new(bucket) {
            Ok(bucket) => Some(bucket),
            Err(error) => {
                self.problem(key, error.to_string());
                None
            }
        }
    }

    fn alias(&mut self, name: &str, alias: &str, rule: &DatasetShape) -> Option<BucketName> {
        let key = ["dataset", name, "as"];
        if rule.bucket.as_deref() == Some("*") {
            self.problem(&key, "needs one bucket to stand for; name it in `bucket`");
        }
        self.bucket_name(&key, alias)
    }

    fn access(&mut self, name: &str, access: Option<&str>) -> Access {
        let Some(text) = access else { return Access::Read };
        access_of(text).unwrap_or_else(|| {
            let message = format!("{text:?} must be \"read\" or \"read-write\"");
            self.problem(&["dataset", name, "access"], message);
            Access::Read
        })
    }

    fn freshness(&mut self, name: &str, freshness: Option<&str>) -> Freshness {
        let wrong = |text| {
            format!("{text:?} must be \"immutable\", \"strict\" or a duration such as \"60s\"")
        };
        match freshness {
            None | Some("strict") => Freshness::Strict,
            Some("immutable") => Freshness::Immutable,
            Some(text) => match parse_span(text) {
                Ok(bound) if !bound.is_zero() => Freshness::Within(bound),
                Ok(_) => {
                    let message = "a bound of zero is \"strict\"";
                    self.problem(&["dataset", name, "freshness"], message);
                    Freshness::Strict
                }
                Err(_) => {
                    self.problem(&["dataset", name, "freshness"], wrong(text));
                    Freshness::Strict
                }
            },
        }
    }

    fn block(&mut self, name: &str, bytes: u64) -> u32 {
        let valid = bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&bytes);
        if !valid {
            let message = "must be a power of two from 64KiB to 16MiB";
            self.problem(&["dataset", name, "block"], message);
        }
        if valid { bytes as u32 } else { 1 << 20 }
    }

    fn quota(&mut self, name: &str, shape: &QuotaShape, block: u32, disk: bool) -> Option<Quota> {
        let key = |last| ["dataset", name, "quota", last];
        let (high, low) = (shape.high.unwrap_or(0.95), shape.low.unwrap_or(0.80));
        if !(0.0 < low && low < high && high <= 1.0) {
            let message = format!("low ({low}) and high ({high}) must satisfy 0 < low < high <= 1");
            self.problem(&["dataset", name, "quota"], message);
        }
        let quota_disk = shape.disk.map_or(0, |size| size.0);
        if quota_disk > 0 && !disk {
            let message = "there is no cache.disk to take it from; add one or leave this out";
            self.problem(&key("disk"), message);
        }
        let Some(memory) = shape.memory else {
            self.missing(&key("memory"), "memory = \"256MiB\"");
            return None;
        };
        if memory.0 < u64::from(block) * MIN_POOL_BLOCKS {
            let least = (u64::from(block) * MIN_POOL_BLOCKS) >> 10;
            let message = format!("must hold at least four blocks of the dataset, {least}KiB");
            self.problem(&key("memory"), message);
        }
        Some(Quota { memory: memory.0, disk: quota_disk, high, low })
    }

    fn policy(&mut self, name: &str, policy: Option<&PolicyShape>) -> Option<PolicyName> {
        let key = ["dataset", name, "policy"];
        let known = BUILTIN.join(", ");
        match policy {
            None => PolicyName::new("lru").ok(),
            Some(PolicyShape::Plugin) => {
                self.later(&key, &format!("plugins come later; the policies are {known}"));
                None
            }
            Some(PolicyShape::Name(policy)) if BUILTIN.contains(&policy.as_str()) => {
                PolicyName::new(policy).ok()
            }
            Some(PolicyShape::Name(policy)) if LATER_POLICIES.contains(&policy.as_str()) => {
                self.later(&key, &format!("{policy:?} comes later; the policies are {known}"));
                None
            }
            Some(PolicyShape::Name(policy)) => {
                let hint = hint(policy, BUILTIN.iter().copied());
                self.problem(&key, format!("there is no policy {policy:?}{hint}"));
                None
            }
        }
    }
}
