//! The configuration: read from file, environment and flags, checked as a whole, then immutable.
//!
//! Not here: acting on it. Invariant: a [`Config`] exists only if every rule of `check` holds and
//! every file it names was there; nothing of it shows a secret.

mod check;
mod layers;
mod pools;
mod problem;
mod secret;
mod shape;
mod show;
mod units;

pub(crate) use layers::Layers;
pub(crate) use problem::{Problem, Problems};
pub(crate) use secret::{Secret, SecretRef, SecretText, read_file};
pub(crate) use show::{addressing_text, bucket_text, dialect_text, freshness_text};

use larder_model::{Access, Dataset, DatasetName, Namespace, OriginName};
use larder_origin::{Addressing, Dialect};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a node is to do.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    pub(crate) limits: Limits,
    pub(crate) cache: Cache,
    /// By name.
    pub(crate) origins: Vec<OriginRule>,
    /// By name.
    pub(crate) datasets: Vec<Arc<Dataset>>,
    /// The same datasets, by what clients ask for.
    pub(crate) namespace: Namespace,
    /// By id.
    pub(crate) keys: Vec<KeyRule>,
    /// What callers of the admin API must show; without it, it serves loopback alone.
    pub(crate) admin_token: Option<Secret>,
    /// Whether requests without a signature are served; only ever on loopback.
    pub(crate) anonymous: bool,
}

/// Where the node listens, and as what.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) s3: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Base domains for virtual-hosted-style requests, in lower case.
    pub(crate) domains: Vec<String>,
    /// Signing regions beyond those that are always accepted.
    pub(crate) regions: Vec<String>,
    pub(crate) tls: Option<Tls>,
    /// The same S3 on a Unix socket; absolute.
    pub(crate) socket: Option<PathBuf>,
    /// Whether uploads by browsers' forms are taken.
    pub(crate) post_policy: bool,
}

/// The files of the S3 listener's certificate, absolute.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// What the process may take.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Bytes, everything included.
    pub(crate) memory_bytes: u64,
    pub(crate) connections: u32,
    /// From SIGTERM to exit.
    pub(crate) grace: Duration,
}

/// The size of the cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) memory_bytes: u64,
    pub(crate) disk: Option<Disk>,
}

/// The SSD share of the cache.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) capacity_bytes: u64,
    /// Whether to take all of it from the file system at the start.
    pub(crate) reserve: bool,
}

/// One origin.
#[derive(Debug)]
pub(crate) struct OriginRule {
    pub(crate) name: OriginName,
    pub(crate) kind: OriginKind,
}

/// What kind of origin, with what its kind needs.
#[derive(Debug)]
pub(crate) enum OriginKind {
    /// An S3 endpoint.
    S3(Box<S3Rule>),
    /// A folder whose sub-folders are the buckets; absolute.
    Directory(PathBuf),
}

/// An S3 endpoint and how to ask it.
#[derive(Debug)]
pub(crate) struct S3Rule {
    pub(crate) dialect: Dialect,
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) addressing: Addressing,
    pub(crate) keys: OriginKeys,
    /// Certificates that are trusted in the place of the system's.
    pub(crate) ca: Option<Ca>,
    pub(crate) max_requests_per_second: Option<u32>,
    pub(crate) max_requests_in_flight: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) answer_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) attempts: u32,
}

/// Where the keys for an origin come from.
#[derive(Debug)]
pub(crate) enum OriginKeys {
    /// From the configuration.
    Given(Box<GivenKeys>),
    /// From where the AWS SDKs look for them.
    Default,
}

/// An access key for an origin.
#[derive(Debug)]
pub(crate) struct GivenKeys {
    pub(crate) id: Id,
    pub(crate) secret: Secret,
    /// With temporary keys.
    pub(crate) session_token: Option<Secret>,
}

/// A file of certificates.
#[derive(Clone, Debug)]
pub(crate) struct Ca {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) pem: Vec<u8>,
}

/// An access key id, written out or found at its reference.
#[derive(Clone, Debug)]
pub(crate) enum Id {
    Plain(String),
    Found(Secret),
}

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Plain(id) => id,
            Self::Found(secret) => secret.text.expose(),
        }
    }
}

/// An access key of clients.
#[derive(Debug)]
pub(crate) struct KeyRule {
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) allow: Vec<(DatasetName, Access)>,
}

impl Config {
    /// Reads and checks everything. Relative paths are relative to `base`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, each with its key and place.
    pub(crate) fn read(layers: &Layers, base: &Path, anonymous: bool) -> Result<Self, Problems> {
        let merged = layers.merge();
        let unfit: Vec<_> = merged.problems.iter().map(|problem| problem.key.clone()).collect();
        let mut check = check::Check::new(base, &layers.env, anonymous, merged.problems);
        let config = check.config(&merged.shape);
        let mut problems = check.problems;
        // A value that did not fit was left out: that it is missing is no second problem.
        let mut at = 0..;
        problems.retain(|problem| {
            at.next().is_some_and(|at| at < unfit.len()) || !unfit.contains(&problem.key)
        });
        for problem in &mut problems {
            let place = || merged.places.of(&problem.key).map(str::to_owned);
            problem.place = problem.place.take().or_else(place);
        }
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(Problems(problems)),
        }
    }
}
