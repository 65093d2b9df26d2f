//! The shape of the configuration as it is written: every key that DESIGN §7 names, all optional.
//!
//! Not here: defaults and rules; `check` turns this into a [`super::Config`]. Keys of later versions
//! are here too, so that they are recognised and refused by name rather than ignored.

use super::secret::{IdRef, SecretRef};
use super::units::{Size, Span};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shape {
    pub(crate) listen: ListenShape,
    pub(crate) limits: LimitsShape,
    pub(crate) cache: CacheShape,
    pub(crate) admin: AdminShape,
    pub(crate) origin: BTreeMap<String, OriginShape>,
    pub(crate) dataset: BTreeMap<String, DatasetShape>,
    pub(crate) key: BTreeMap<String, KeyShape>,
    #[serde(skip_serializing)]
    pub(crate) cluster: Option<Later>,
}

/// `[listen]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListenShape {
    pub(crate) s3: Option<String>,
    pub(crate) admin: Option<String>,
    pub(crate) domains: Option<Vec<String>>,
    pub(crate) regions: Option<Vec<String>>,
    pub(crate) tls: Option<TlsShape>,
    pub(crate) socket: Option<String>,
    pub(crate) post_policy: Option<bool>,
}

/// `listen.tls`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TlsShape {
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
}

/// `[limits]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsShape {
    pub(crate) memory: Option<Size>,
    pub(crate) connections: Option<u32>,
    pub(crate) grace: Option<Span>,
}

/// `[cache]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheShape {
    pub(crate) memory: Option<Size>,
    pub(crate) disk: Option<DiskShape>,
}

/// `cache.disk`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DiskShape {
    pub(crate) path: Option<String>,
    pub(crate) capacity: Option<Size>,
    pub(crate) reserve: Option<bool>,
}

/// `[origin.NAME]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OriginShape {
    pub(crate) kind: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) addressing: Option<String>,
    pub(crate) access_key_id: Option<IdRef>,
    pub(crate) secret_access_key: Option<SecretRef>,
    pub(crate) session_token: Option<SecretRef>,
    pub(crate) max_requests_per_second: Option<u32>,
    pub(crate) max_requests_in_flight: Option<u32>,
    pub(crate) connect_timeout: Option<Span>,
    pub(crate) answer_timeout: Option<Span>,
    pub(crate) idle_timeout: Option<Span>,
    pub(crate) attempts: Option<u32>,
    pub(crate) credentials: Option<String>,
    pub(crate) ca: Option<String>,
}

/// `[dataset.NAME]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DatasetShape {
    pub(crate) origin: Option<String>,
    pub(crate) bucket: Option<String>,
    pub(crate) prefix: Option<String>,
    #[serde(rename = "as")]
    pub(crate) alias: Option<String>,
    pub(crate) access: Option<String>,
    pub(crate) freshness: Option<String>,
    pub(crate) block: Option<Size>,
    pub(crate) replicas: Option<u32>,
    pub(crate) quota: Option<QuotaShape>,
    pub(crate) policy: Option<PolicyShape>,
    pub(crate) list_cache: Option<Span>,
    pub(crate) admit_writes: Option<bool>,
}

/// `dataset.NAME.quota`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QuotaShape {
    pub(crate) memory: Option<Size>,
    pub(crate) disk: Option<Size>,
    pub(crate) high: Option<f64>,
    pub(crate) low: Option<f64>,
}

/// `[key.ID]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeyShape {
    pub(crate) secret: Option<SecretRef>,
    pub(crate) allow: Option<Vec<String>>,
}

/// `[admin]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminShape {
    pub(crate) token: Option<SecretRef>,
}

/// The value of a key that this version knows of and does not have yet: anything.
#[derive(Clone, Debug)]
pub(crate) struct Later;

impl<'de> Deserialize<'de> for Later {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// `dataset.NAME.policy`: a name, or a table that names a plugin.
#[derive(Clone, Debug)]
pub(crate) enum PolicyShape {
    /// A built-in policy.
    Name(String),
    /// `{ plugin = … }`, of a later version.
    Plugin,
}

impl Serialize for PolicyShape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => serializer.serialize_str(name),
            Self::Plugin => serializer.serialize_str("plugin"),
        }
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = PolicyShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a policy")
    }

    fn visit_str<E>(self, name: &str) -> Result<PolicyShape, E> {
        Ok(PolicyShape::Name(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PolicyShape, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(PolicyShape::Plugin)
    }
}

impl<'de> Deserialize<'de> for PolicyShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}
