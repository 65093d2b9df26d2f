//! The effective configuration as TOML, every key with its value, secrets by their reference.
//!
//! Invariant: what is shown, read again, is the same configuration.

use super::secret::IdRef;
use super::shape::{
    AdminShape, CacheShape, DatasetShape, DiskShape, KeyShape, LimitsShape, ListenShape,
    OriginShape, PolicyShape, QuotaShape, Shape, TlsShape,
};
use super::units::{Size, Span};
use super::{Config, Id, OriginKeys, OriginKind, OriginRule, S3Rule};
use larder_model::{Access, BucketRule, Dataset, Freshness};
use larder_origin::{Addressing, Dialect};
use std::path::Path;

impl Config {
    /// The configuration as TOML.
    pub(crate) fn show(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.shape())
    }

    fn shape(&self) -> Shape {
        let named = |dataset: &std::sync::Arc<Dataset>| (dataset.name.to_string(), of(dataset));
        let keys = self.keys.iter().map(|key| {
            let allow =
                key.allow.iter().map(|(name, access)| format!("{name}:{}", access_text(*access)));
            let allow = Some(allow.collect());
            (key.id.clone(), KeyShape { secret: Some(key.secret.reference.clone()), allow })
        });
        Shape {
            listen: ListenShape {
                s3: Some(self.listen.s3.to_string()),
                admin: Some(self.listen.admin.to_string()),
                domains: Some(self.listen.domains.clone()),
                regions: Some(self.listen.regions.clone()),
                tls: self
                    .listen
                    .tls
                    .as_ref()
                    .map(|tls| TlsShape { cert: path_text(&tls.cert), key: path_text(&tls.key) }),
                socket: self.listen.socket.as_deref().and_then(path_text),
                post_policy: Some(self.listen.post_policy),
            },
            limits: LimitsShape {
                memory: Some(Size(self.limits.memory_bytes)),
                connections: Some(self.limits.connections),
                grace: Some(Span(self.limits.grace)),
            },
            cache: CacheShape {
                memory: Some(Size(self.cache.memory_bytes)),
                disk: self.cache.disk.as_ref().map(|disk| DiskShape {
                    path: path_text(&disk.path),
                    capacity: Some(Size(disk.capacity_bytes)),
                    reserve: Some(disk.reserve),
                }),
            },
            admin: AdminShape {
                token: self.admin_token.as_ref().map(|token| token.reference.clone()),
            },
            origin: self.origins.iter().map(|rule| (rule.name.to_string(), origin(rule))).collect(),
            dataset: self.datasets.iter().map(named).collect(),
            key: keys.collect(),
            cluster: None,
        }
    }
}

fn path_text(path: &Path) -> Option<String> {
    Some(path.display().to_string())
}

/// As the configuration writes it.
pub(super) fn access_text(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::ReadWrite => "read-write",
    }
}

/// As the configuration writes it; the status shows it too.
pub(crate) fn freshness_text(freshness: Freshness) -> String {
    match freshness {
        Freshness::Immutable => "immutable".to_owned(),
        Freshness::Strict => "strict".to_owned(),
        Freshness::Within(bound) => Span(bound).to_string(),
    }
}

/// As the configuration writes it; the status shows it too.
pub(crate) fn bucket_text(bucket: &BucketRule) -> &str {
    match bucket {
        BucketRule::One(bucket) => bucket.as_str(),
        BucketRule::Every => "*",
    }
}

fn of(dataset: &Dataset) -> DatasetShape {
    DatasetShape {
        origin: Some(dataset.origin.to_string()),
        bucket: Some(bucket_text(&dataset.bucket).to_owned()),
        prefix: Some(dataset.prefix.clone()),
        alias: dataset.alias.as_ref().map(ToString::to_string),
        access: Some(access_text(dataset.access).to_owned()),
        freshness: Some(freshness_text(dataset.freshness)),
        block: Some(Size(u64::from(dataset.block_bytes))),
        replicas: Some(1),
        quota: dataset.quota.map(|quota| QuotaShape {
            memory: Some(Size(quota.memory)),
            disk: Some(Size(quota.disk)),
            high: Some(quota.high),
            low: Some(quota.low),
        }),
        policy: Some(PolicyShape::Name(dataset.policy.to_string())),
        list_cache: dataset.list_cache.map(Span),
        admit_writes: Some(dataset.admit_writes),
    }
}

fn origin(rule: &OriginRule) -> OriginShape {
    match &rule.kind {
        OriginKind::Directory(path) => OriginShape {
            kind: Some("directory".to_owned()),
            path: path_text(path),
            ..OriginShape::default()
        },
        OriginKind::S3(rule) => s3(rule),
    }
}

fn s3(rule: &S3Rule) -> OriginShape {
    let mut shape = OriginShape {
        kind: Some(dialect_text(rule.dialect).to_owned()),
        path: None,
        endpoint: Some(rule.endpoint.clone()),
        region: Some(rule.region.clone()),
        addressing: Some(addressing_text(rule.addressing).to_owned()),
        ca: rule.ca.as_ref().and_then(|ca| path_text(&ca.path)),
        max_requests_per_second: rule.max_requests_per_second,
        max_requests_in_flight: Some(rule.max_requests_in_flight),
        connect_timeout: Some(Span(rule.connect_timeout)),
        answer_timeout: Some(Span(rule.answer_timeout)),
        idle_timeout: Some(Span(rule.idle_timeout)),
        attempts: Some(rule.attempts),
        ..OriginShape::default()
    };
    match &rule.keys {
        OriginKeys::Default => shape.credentials = Some("default".to_owned()),
        OriginKeys::Given(keys) => {
            shape.access_key_id = Some(match &keys.id {
                Id::Plain(id) => IdRef::Plain(id.clone()),
                Id::Found(secret) => IdRef::Ref(secret.reference.clone()),
            });
            shape.secret_access_key = Some(keys.secret.reference.clone());
            shape.session_token = keys.session_token.as_ref().map(|token| token.reference.clone());
        }
    }
    shape
}

/// As the configuration writes it.
pub(crate) fn dialect_text(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::S3 => "s3",
        Dialect::Oss => "oss",
        Dialect::Bos => "bos",
    }
}

/// As the configuration writes it.
pub(crate) fn addressing_text(addressing: Addressing) -> &'static str {
    match addressing {
        Addressing::Path => "path",
        Addressing::Virtual => "virtual",
    }
}
