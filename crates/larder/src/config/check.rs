//! The rules of the configuration: from the shape as written to a [`Config`] that can be run.
//!
//! Not here: layers and syntax. Invariant: a check never stops at the first problem; it goes on with
//! the default in the place of what is wrong, and the result is thrown away at the end.

mod dataset;
mod listen;
mod origin;

use super::pools::{block_budget_bytes, pools};
use super::problem::{Problem, nearest};
use super::secret::{Secret, SecretRef};
use super::shape::{CacheShape, DiskShape, KeyShape, LimitsShape, Shape};
use super::{Cache, Config, Disk, KeyRule, Limits, Listen};
use larder_model::{Access, Dataset, DatasetName, Namespace, PoolName, SPAN_BLOCKS};
use larder_store::device_bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A pool's memory holds at least this many of its blocks.
const MIN_POOL_BLOCKS: u64 = 4;
/// Below this a client's secret could be guessed.
const MIN_SECRET_CHARS: usize = 8;
/// The smallest `limits.memory`, in bytes.
const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// A check in progress.
pub(super) struct Check<'a> {
    base: &'a Path,
    env: &'a BTreeMap<String, String>,
    anonymous: bool,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        base: &'a Path,
        env: &'a BTreeMap<String, String>,
        anonymous: bool,
        problems: Vec<Problem>,
    ) -> Self {
        Self { base, env, anonymous, problems }
    }

    /// The configuration; to be used only if no problem was found.
    pub(super) fn config(&mut self, shape: &Shape) -> Option<Config> {
        if shape.cluster.is_some() {
            self.later(&["cluster"], "leave the section out; a node of this version stands alone");
        }
        let listen = self.listen(&shape.listen);
        let limits = self.limits(&shape.limits);
        let origins = self.origins(&shape.origin);
        let datasets = self.datasets(shape);
        let cache = self.cache(&shape.cache, &limits, &datasets);
        let keys = self.keys(&shape.key, &shape.dataset.keys().collect::<Vec<_>>());
        let reference = shape.admin.token.as_ref();
        let admin_token = reference.and_then(|token| self.secret(&["admin", "token"], token));
        if let Some(listen) = &listen {
            self.exposure(listen, keys.is_empty() && shape.key.is_empty(), reference.is_some());
        }
        let namespace = match Namespace::new(datasets.iter().cloned()) {
            Ok(namespace) => namespace,
            Err(error) => {
                self.problem(&["dataset"], error.to_string());
                Namespace::default()
            }
        };
        let (listen, anonymous) = (listen?, self.anonymous);
        Some(Config {
            listen,
            limits,
            cache,
            origins,
            datasets,
            namespace,
            keys,
            admin_token,
            anonymous,
        })
    }

    fn problem(&mut self, key: &[&str], message: impl Into<String>) {
        self.problems.push(Problem::new(key, message));
    }

    fn later(&mut self, key: &[&str], advice: &str) {
        self.problem(key, format!("not in this version; {advice}"));
    }

    fn missing(&mut self, key: &[&str], example: &str) {
        self.problem(key, format!("missing; write for example {example}"));
    }

    fn path(&self, path: &str) -> PathBuf {
        let joined = self.base.join(path);
        std::path::absolute(&joined).unwrap_or(joined)
    }

    fn secret(&mut self, key: &[&str], reference: &SecretRef) -> Option<Secret> {
        match Secret::find(reference, self.base, self.env) {
            Ok(secret) => Some(secret),
            Err(reason) => {
                self.problem(key, reason);
                None
            }
        }
    }

    fn limits(&mut self, shape: &LimitsShape) -> Limits {
        let limits = Limits {
            memory_bytes: shape.memory.map_or(1 << 30, |size| size.0),
            connections: shape.connections.unwrap_or(4096),
            grace: shape.grace.map_or(Duration::from_secs(30), |span| span.0),
        };
        if limits.memory_bytes < MIN_MEMORY_BYTES {
            self.problem(&["limits", "memory"], "must be at least 64MiB");
        }
        if limits.connections == 0 {
            self.problem(&["limits", "connections"], "must be at least 1");
        }
        limits
    }

    fn cache(&mut self, shape: &CacheShape, limits: &Limits, datasets: &[Arc<Dataset>]) -> Cache {
        let disk = shape.disk.as_ref().and_then(|disk| self.disk(disk));
        let mut cache = Cache { memory_bytes: 0, disk };
        let budget = block_budget_bytes(limits.memory_bytes, &pools(&cache, datasets));
        let block = datasets.iter().map(|dataset| u64::from(dataset.block_bytes)).max();
        let span = block.unwrap_or(1 << 20) * SPAN_BLOCKS;
        let default = (limits.memory_bytes / 2).min(budget.saturating_sub(2 * span));
        cache.memory_bytes = shape.memory.map_or(default, |size| size.0);
        self.memory_fits(&cache, limits, budget, span);
        self.memory_quotas_fit(&cache, datasets);
        self.disk_quotas_fit(&cache, datasets);
        cache
    }

    fn disk(&mut self, shape: &DiskShape) -> Option<Disk> {
        if shape.path.is_none() {
            self.missing(&["cache", "disk", "path"], "path = \"/var/lib/larder\"");
        }
        if shape.capacity.is_none() {
            self.missing(&["cache", "disk", "capacity"], "capacity = \"250GiB\"");
        }
        let path = self.path(shape.path.as_deref()?);
        if path.exists() && !path.is_dir() {
            let message = format!("{} is not a folder", path.display());
            self.problem(&["cache", "disk", "path"], message);
        }
        let reserve = shape.reserve.unwrap_or(false);
        Some(Disk { path, capacity_bytes: shape.capacity?.0, reserve })
    }

    /// What is left of the budget beside the cache must take a span that is being filled.
    fn memory_fits(&mut self, cache: &Cache, limits: &Limits, budget: u64, span: u64) {
        let key = ["cache", "memory"];
        if cache.memory_bytes >= limits.memory_bytes {
            self.problem(&key, "must be less than limits.memory, which covers everything");
        } else if cache.memory_bytes.saturating_add(span) > budget {
            let message = format!(
                "leaves no room for bytes in flight: {} MiB of limits.memory are for blocks (15 % \
                 is set aside, and the write buffers of the SSD), and beside the cache they must \
                 hold a span of {} MiB; at most {}MiB here, or raise limits.memory",
                budget >> 20,
                span >> 20,
                budget.saturating_sub(span) >> 20
            );
            self.problem(&key, message);
        }
    }

    fn memory_quotas_fit(&mut self, cache: &Cache, datasets: &[Arc<Dataset>]) {
        let quotas = datasets.iter().filter_map(|dataset| dataset.quota);
        let memory = quotas.fold(0_u64, |sum, quota| sum.saturating_add(quota.memory));
        let shared = datasets.iter().filter(|dataset| dataset.quota.is_none());
        let block = shared.map(|dataset| dataset.block_bytes).max().unwrap_or(0);
        if memory > cache.memory_bytes {
            let message = format!(
                "the memory quotas of the datasets are {} MiB together, more than this",
                memory >> 20
            );
            self.problem(&["cache", "memory"], message);
        } else if cache.memory_bytes - memory < u64::from(block) * MIN_POOL_BLOCKS {
            let message = "the memory quotas leave less than four blocks to the datasets without a \
                           quota; raise it or lower the quotas";
            self.problem(&["cache", "memory"], message);
        }
    }

    fn disk_quotas_fit(&mut self, cache: &Cache, datasets: &[Arc<Dataset>]) {
        let Some(disk) = &cache.disk else { return };
        let pools = pools(cache, datasets);
        let shared = pools.iter().find(|pool| pool.name == PoolName::shared());
        let own = pools.iter().filter(|pool| pool.name != PoolName::shared());
        let (quotas, files) = own.fold((0_u64, 0_u64), |(quotas, files), pool| {
            (quotas.saturating_add(pool.disk_bytes), files.saturating_add(device_bytes(pool)))
        });
        let key = ["cache", "disk", "capacity"];
        if files > disk.capacity_bytes {
            let message = format!(
                "the disk quotas of the datasets are {} MiB together and their files take {} MiB \
                 (a quarter more, and spare regions), more than this",
                quotas >> 20,
                files >> 20
            );
            self.problem(&key, message);
        } else if shared.is_some_and(|pool| pool.disk_bytes == 0) {
            let message = "leaves nothing to the datasets without a quota, after the files of the \
                           disk quotas and a few spare regions; raise it or lower the quotas";
            self.problem(&key, message);
        }
    }

    fn keys(&mut self, shapes: &BTreeMap<String, KeyShape>, datasets: &[&String]) -> Vec<KeyRule> {
        let mut keys = Vec::new();
        for (id, shape) in shapes {
            let path = ["key", id.as_str()];
            if !valid_key_id(id) {
                self.problem(
                    &path,
                    "an access key id has 1 to 128 of A-Z, a-z, 0-9, '.', '-', '_'",
                );
            }
            let allow = self.allow(id, shape.allow.as_deref().unwrap_or_default(), datasets);
            let Some(reference) = &shape.secret else {
                self.missing(&["key", id, "secret"], "secret = \"file:/run/secrets/trainer\"");
                continue;
            };
            let Some(secret) = self.secret(&["key", id, "secret"], reference) else { continue };
            if secret.text.expose().chars().count() < MIN_SECRET_CHARS {
                self.problem(&["key", id, "secret"], "a secret has at least 8 characters");
            }
            keys.push(KeyRule { id: id.clone(), secret, allow });
        }
        keys
    }

    fn allow(
        &mut self,
        id: &str,
        entries: &[String],
        datasets: &[&String],
    ) -> Vec<(DatasetName, Access)> {
        if entries.is_empty() {
            self.missing(&["key", id, "allow"], "allow = [\"imagenet:read\"]");
        }
        let mut allow = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let index = index.to_string();
            let key = ["key", id, "allow", index.as_str()];
            let (dataset, access) = entry.rsplit_once(':').unwrap_or((entry, ""));
            let Some(access) = access_of(access) else {
                let message =
                    format!("{entry:?} must be \"DATASET:read\" or \"DATASET:read-write\"");
                self.problem(&key, message);
                continue;
            };
            match DatasetName::new(dataset) {
                Ok(name) if datasets.iter().any(|known| *known == dataset) => {
                    allow.push((name, access));
                }
                _ => {
                    let hint = hint(dataset, datasets.iter().map(|name| name.as_str()));
                    self.problem(&key, format!("there is no dataset {dataset:?}{hint}"));
                }
            }
        }
        allow
    }

    /// Who could reach the node without showing anything.
    fn exposure(&mut self, listen: &Listen, no_keys: bool, token: bool) {
        let loopback = listen.s3.ip().is_loopback() && listen.admin.ip().is_loopback();
        if self.anonymous && !loopback {
            let message = "--insecure-anonymous lets anybody in, so listen.s3 and listen.admin must \
                           both be loopback addresses";
            self.problem(&["listen"], message);
        }
        if no_keys && !self.anonymous {
            let message = "no access key: clients could not sign. Add [key.ID] with secret and \
                           allow, or start with --insecure-anonymous on loopback";
            self.problem(&["key"], message);
        }
        if !listen.admin.ip().is_loopback() && !token {
            let message = "needed because listen.admin is not a loopback address; write for \
                           example token = \"file:/run/secrets/admin\"";
            self.problem(&["admin", "token"], message);
        }
    }
}

/// `; did you mean …?`, or what there is.
fn hint<'n>(word: &str, known: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(meant) => format!("; did you mean {meant:?}?"),
        None => {
            let known: Vec<&str> = known.collect();
            if known.is_empty() {
                String::new()
            } else {
                format!("; there are {}", known.join(", "))
            }
        }
    }
}

fn access_of(text: &str) -> Option<Access> {
    match text {
        "read" => Some(Access::Read),
        "read-write" => Some(Access::ReadWrite),
        _ => None,
    }
}

fn valid_key_id(id: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=128).contains(&id.len()) && id.bytes().all(valid)
}

#[cfg(test)]
mod tests;
