//! The real binary: started with a configuration of the test's own, in a folder of its own, which
//! outlives restarts.

use crate::client::Client;
use crate::metrics::Metrics;
use crate::process::Server;
use crate::tools::{self, Account, Style};
use anyhow::{Context, Result, ensure};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// The access key of every node's first key.
pub const ACCESS_KEY: &str = "LARDERTESTS";
/// Its secret. Of a server that lives for one test on the loopback interface.
pub const SECRET: &str = "a-secret-for-the-tests-alone";
/// The base domain of virtual-hosted-style requests.
pub const DOMAIN: &str = "s3.localhost";

/// A SIGTERM must be through by then; `limits.grace` of the tests is shorter.
const DRAIN: Duration = Duration::from_secs(60);

/// One node, running or between two runs.
pub struct Larder {
    server: Server,
    s3: String,
    admin: String,
    arguments: Vec<String>,
    dir: TempDir,
}

/// The binary: `LARDER_BIN`, or the one beside the test program.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LARDER_BIN") {
        return Ok(path.into());
    }
    let program = std::env::current_exe()?;
    let profile = program.ancestors().nth(2).context("the test program is in no target folder")?;
    let path = profile.join("larder");
    ensure!(
        path.is_file(),
        "{} is not there; run `cargo build --workspace --all-targets`, or `cargo xtask test`",
        path.display()
    );
    Ok(path)
}

/// The section of an S3 origin.
#[must_use]
pub fn s3_origin(name: &str, endpoint: &str) -> String {
    format!(
        "[origin.{name}]\nkind = \"s3\"\nendpoint = \"{endpoint}\"\nregion = \"us-east-1\"\n\
         addressing = \"path\"\naccess_key_id = \"ORIGIN\"\n\
         secret_access_key = \"file:origin-secret\"\n"
    )
}

/// The section of a directory origin.
#[must_use]
pub fn directory_origin(name: &str, path: &Path) -> String {
    format!("[origin.{name}]\nkind = \"directory\"\npath = \"{}\"\n", path.display())
}

/// The section of a dataset over a bucket, read-only, with what else it needs.
#[must_use]
pub fn dataset(name: &str, origin: &str, bucket: &str, rest: &str) -> String {
    format!(
        "[dataset.{name}]\norigin = \"{origin}\"\nbucket = \"{bucket}\"\naccess = \"read\"\n{rest}\n"
    )
}

/// The section of a dataset over a bucket that may also be written.
#[must_use]
pub fn dataset_read_write(name: &str, origin: &str, bucket: &str, rest: &str) -> String {
    dataset(name, origin, bucket, rest).replace("access = \"read\"", "access = \"read-write\"")
}

/// What a key needs to do everything that the datasets of a configuration allow.
fn grants(config: &str) -> String {
    let mut grants: Vec<(&str, &str)> = Vec::new();
    let mut section = None;
    for line in config.lines() {
        if line.starts_with('[') {
            section = line
                .strip_prefix("[dataset.")
                .and_then(|line| line.strip_suffix(']'))
                .filter(|name| !name.contains('.'));
            grants.extend(section.map(|name| (name, "read")));
        } else if line == "access = \"read-write\""
            && section.is_some()
            && let Some((_, access)) = grants.last_mut()
        {
            *access = "read-write";
        }
    }
    let grants = grants.into_iter().map(|(name, access)| format!("\"{name}:{access}\""));
    grants.collect::<Vec<_>>().join(", ")
}

/// The section of the cache.
#[must_use]
pub fn cache(memory: &str, disk: Option<&str>) -> String {
    let disk = disk.map_or_else(String::new, |capacity| {
        format!("disk = {{ path = \"cache\", capacity = \"{capacity}\" }}\n")
    });
    format!("[cache]\nmemory = \"{memory}\"\n{disk}")
}

impl Larder {
    /// Starts a node. `config` has every section but `listen`, `limits.grace` and `key`: listeners
    /// get ports from the kernel, and one key may do everything that a dataset section allows.
    pub async fn start(config: &str) -> Result<Self> {
        Self::start_with(config, &[]).await
    }

    /// The same with more arguments on the command line.
    pub async fn start_with(config: &str, arguments: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("secret"), SECRET)?;
        std::fs::write(dir.path().join("origin-secret"), "origin-secret")?;
        let grants = grants(config);
        let listen = if config.contains("[listen]") {
            String::new()
        } else {
            format!(
                "[listen]\ns3 = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndomains = [\"{DOMAIN}\"]\n"
            )
        };
        let key = format!("[key.{ACCESS_KEY}]\nsecret = \"file:secret\"\nallow = [{grants}]\n");
        std::fs::write(dir.path().join("larder.toml"), format!("{listen}{config}\n{key}"))?;
        Self::start_in(dir, arguments.iter().map(|word| (*word).to_owned()).collect()).await
    }

    /// Starts a node whose `larder.toml` and secrets are in `dir` already.
    pub async fn start_in(dir: TempDir, arguments: Vec<String>) -> Result<Self> {
        let (server, s3, admin) = launch(dir.path(), &arguments).await?;
        Ok(Self { server, s3, admin, arguments, dir })
    }

    /// The S3 endpoint's URL, by address.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.s3
    }

    /// The admin listener's URL.
    #[must_use]
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The port of the S3 endpoint.
    #[must_use]
    pub fn port(&self) -> &str {
        self.s3.rsplit(':').next().unwrap_or_default()
    }

    /// The node's folder: configuration, secrets, cache, logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The most memory that the process has held at once, in bytes (`VmHWM` of proc(5)).
    pub fn peak_memory(&self) -> Result<u64> {
        let id = self.server.id().context("the node does not run")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line.context("no VmHWM")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }

    /// All that the node has logged, over its restarts too.
    pub fn log(&self) -> Result<String> {
        self.server.complaints()
    }

    /// All that the node has printed since it last started.
    pub fn output(&self) -> Result<String> {
        self.server.output()
    }

    /// A client with the node's key.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.s3, ACCESS_KEY, SECRET)
    }

    /// What a foreign client needs.
    #[must_use]
    pub fn account(&self, style: Style) -> Account {
        let endpoint = match style {
            Style::Path => self.s3.clone(),
            Style::Virtual => format!("http://{DOMAIN}:{}", self.port()),
        };
        Account { endpoint, access_key: ACCESS_KEY.into(), secret: SECRET.into(), style }
    }

    /// GET on the admin listener: status and body.
    pub async fn ask_admin(&self, path: &str) -> Result<(u16, String)> {
        let client: hyper_util::client::legacy::Client<HttpConnector, Empty<bytes::Bytes>> =
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        let request = Request::get(format!("{}{path}", self.admin)).body(Empty::new())?;
        let answer = client.request(request).await.with_context(|| format!("GET {path}"))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The metrics as they stand.
    pub async fn metrics(&self) -> Result<Metrics> {
        let (status, text) = self.ask_admin("/metrics").await?;
        ensure!(status == 200, "/metrics answered {status}: {text}");
        Ok(Metrics::parse(&text))
    }

    /// `GET /v1/status`
    pub async fn status(&self) -> Result<serde_json::Value> {
        let (status, text) = self.ask_admin("/v1/status").await?;
        ensure!(status == 200, "/v1/status answered {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("/v1/status is not JSON: {text}"))
    }

    /// SIGTERM, and waits for the end.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.server.end(Signal::TERM, DRAIN).await
    }

    /// SIGKILL, and waits for the end.
    pub async fn kill(&mut self) -> Result<ExitStatus> {
        self.server.end(Signal::KILL, DRAIN).await
    }

    /// Starts again in the same folder: same configuration, same cache, other ports.
    pub async fn start_again(&mut self) -> Result<()> {
        (self.server, self.s3, self.admin) = launch(self.dir.path(), &self.arguments).await?;
        Ok(())
    }

    /// Runs another command of the binary in the node's folder.
    pub async fn command(&self, arguments: &[&str]) -> Result<String> {
        tools::run(bare(self.dir.path())?.args(arguments)).await
    }
}

/// The binary in a folder, without the variables that are the tests' own: it reads `LARDER_*`.
pub fn bare(dir: &Path) -> Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LARDER_") {
            command.env_remove(name);
        }
    }
    command.current_dir(dir);
    Ok(command)
}

async fn launch(dir: &Path, arguments: &[String]) -> Result<(Server, String, String)> {
    let mut command = bare(dir)?;
    command.args(["serve", "--config", "larder.toml"]).args(arguments);
    let mut server = Server::start("larder", &mut command, dir)?;
    let lines = server.find("larder's endpoints", |text| {
        let after = |label: &str| {
            let (line, _) = text.split_once(label)?.1.split_once('\n')?;
            Some(line.trim().to_owned())
        };
        Some((after("s3 endpoint:")?, after("admin:")?))
    });
    let (s3, admin) = lines.await?;
    Ok((server, s3, admin))
}

#[cfg(test)]
mod tests {
    use super::{dataset, dataset_read_write, grants};

    #[test]
    fn a_key_may_do_what_the_datasets_allow() {
        let config = dataset("a", "o", "a", "") + &dataset_read_write("b", "o", "b", "block = 1");
        let config = config + "[dataset.c.quota]\nmemory = 1\n" + &dataset("d", "o", "d", "");
        assert_eq!(grants(&config), "\"a:read\", \"b:read-write\", \"d:read\"");
    }
}
