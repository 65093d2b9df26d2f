//! A Larder under measurement: the real binary, with a configuration of its own, before the bench's origin.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::load::BUCKET;
use crate::process::{Server, sibling};
use crate::signer::Signer;

const ACCESS_KEY: &str = "LARDERBENCH";
const REGION: &str = "us-east-1";
/// Not a secret: the key pair of a server that lives for a minute on the loopback interface.
const SECRET: &str = "a-secret-for-the-benches-alone";

/// What varies between the benches.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// `immutable`, `strict` or a duration.
    pub freshness: &'a str,
    /// `limits.memory`.
    pub limit: &'a str,
    /// `cache.memory`.
    pub memory: &'a str,
    /// `cache.disk.capacity`; the cache then lives in the bench's own directory.
    pub disk: Option<&'a str>,
}

/// A running Larder.
#[derive(Debug)]
pub struct Larder {
    /// Its process.
    pub server: Server,
    /// Where it speaks S3.
    pub address: SocketAddr,
}

impl Larder {
    /// Starts `larder serve` before the origin at `origin`, with its files in `dir`, which must exist.
    pub async fn start(origin: SocketAddr, setting: &Setting<'_>, dir: &Path) -> Result<Self> {
        let config = dir.join("larder.toml");
        std::fs::write(dir.join("secret"), SECRET).context("writing the key's secret")?;
        std::fs::write(&config, configuration(origin, setting)).context("writing larder.toml")?;
        let log = dir.join("larder.log");
        let mut command = Command::new(sibling("larder")?);
        command.arg("serve").arg("--config").arg(&config);
        let mut server = Server::start(command, &log)?;
        let [address] = server.addresses(["s3 endpoint: "], &log).await?;
        Ok(Self { server, address })
    }
}

/// The signer whose requests a Larder of the benches accepts.
#[must_use]
pub fn signer() -> Signer {
    Signer::new(ACCESS_KEY, SECRET, REGION)
}

/// The key pair that the compared S3 server is given too.
#[must_use]
pub fn key_pair() -> (&'static str, &'static str) {
    (ACCESS_KEY, SECRET)
}

fn configuration(origin: SocketAddr, setting: &Setting<'_>) -> String {
    let Setting { freshness, limit, memory, disk } = setting;
    let mut text = format!(
        r#"[listen]
s3 = "127.0.0.1:0"
admin = "127.0.0.1:0"

[limits]
memory = "{limit}"

[cache]
memory = "{memory}"
"#
    );
    if let Some(capacity) = disk {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "disk = {{ path = \"cache\", capacity = \"{capacity}\" }}");
    }
    text + &format!(
        r#"
[origin.bench]
kind = "s3"
endpoint = "http://{origin}"
region = "{REGION}"
addressing = "path"
access_key_id = "file:secret"
secret_access_key = "file:secret"

[dataset.bench]
origin = "bench"
bucket = "{BUCKET}"
access = "read"
freshness = "{freshness}"
policy = "lru"

[key.{ACCESS_KEY}]
secret = "file:secret"
allow = ["bench:read"]
"#
    )
}
