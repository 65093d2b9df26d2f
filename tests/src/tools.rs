//! The foreign clients and servers that `cargo xtask tools` installed, and running one of them.
//!
//! Virtual-hosted-style requests need a name for each bucket. Names under `localhost` mean the
//! loopback (RFC 6761 §6.3), but not every resolver knows it; the Python clients are given
//! `clients/sitecustomize.py`, which teaches their interpreter that rule and nothing else.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// The longest that one run of a client may take.
const LIMIT: Duration = Duration::from_secs(900);

/// How a client addresses buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// `http://host/bucket/key`
    Path,
    /// `http://bucket.host/key`
    Virtual,
}

/// What a foreign client needs to know.
#[derive(Clone, Debug)]
pub struct Account {
    /// The endpoint's URL, without the bucket.
    pub endpoint: String,
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
    /// How buckets are addressed.
    pub style: Style,
}

/// The folder of the tools' virtual environment.
pub fn home() -> Result<PathBuf> {
    let home = target()?.join("tools");
    ensure!(
        home.join("installed.txt").is_file(),
        "{} does not hold the tools; run `cargo xtask tools`",
        home.display()
    );
    Ok(home)
}

/// A program of the virtual environment.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(home()?.join("bin").join(name))
}

/// The target folder, found from the running test program: `TARGET/PROFILE/deps/PROGRAM`.
pub fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("the test program is in no target folder")?;
    Ok(target.to_owned())
}

/// A folder of this package.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A client with the account in its environment and nothing of this machine's own configuration.
/// Its configuration files are written into `dir`.
pub fn client(name: &str, account: &Account, dir: &Path) -> Result<Command> {
    let style = match account.style {
        Style::Path => "path",
        Style::Virtual => "virtual",
    };
    let config = dir.join(format!("aws-{style}.ini"));
    std::fs::write(
        &config,
        format!("[default]\nregion = us-east-1\ns3 =\n  addressing_style = {style}\n"),
    )?;
    let mut command = Command::new(program(name)?);
    for variable in ["AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    command
        .env("AWS_ACCESS_KEY_ID", &account.access_key)
        .env("AWS_SECRET_ACCESS_KEY", &account.secret)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", &account.endpoint)
        .env("S3_ENDPOINT_URL", &account.endpoint)
        .env("AWS_CONFIG_FILE", &config)
        .env("AWS_SHARED_CREDENTIALS_FILE", dir.join("no-credentials"))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ADDRESSING_STYLE", style)
        .env("PYTHONPATH", folder("clients"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(dir);
    Ok(command)
}

/// Runs a command to its end and gives what it printed; its complaints are part of the error.
pub async fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{:?}", command.as_std());
    let shown: String = shown.chars().take(2_000).collect();
    let running = command.kill_on_drop(true).stdin(std::process::Stdio::null()).output();
    let ended = tokio::time::timeout(LIMIT, running).await;
    let output = ended.with_context(|| format!("{shown}: still running after {LIMIT:?}"))??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaints: String =
            String::from_utf8_lossy(&output.stderr).chars().take(8_000).collect();
        bail!("{shown}: {}\n{said}\n{complaints}", output.status);
    }
    Ok(said)
}
