//! A server process: started with its output in files, found by what it prints, ended with its test.
//!
//! Invariant: only the process that was started here is ever signalled, by its own id, and only
//! while it has not been waited for, so the id cannot have become another's.

use crate::poll;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a server may take until it listens. Debug builds on a busy machine are slow.
const START: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    output: PathBuf,
    complaints: PathBuf,
}

impl Server {
    /// Starts a command with its standard output and error in files beside each other in `dir`.
    pub fn start(name: &str, command: &mut Command, dir: &Path) -> Result<Self> {
        let output = dir.join(format!("{name}.out"));
        let complaints = dir.join(format!("{name}.err"));
        let append = |path: &Path| {
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
            opened.with_context(|| format!("cannot open {}", path.display()))
        };
        // What an earlier run printed must not be taken for this one's.
        std::fs::write(&output, "")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(append(&output)?)
            .stderr(append(&complaints)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, output, complaints })
    }

    /// Waits until `find` finds what it looks for in all that the server has printed so far, on
    /// standard output followed by standard error.
    pub async fn find<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let printed = |server: &Self| -> Result<String> {
            let output = std::fs::read(&server.output)?;
            let complaints = std::fs::read(&server.complaints)?;
            Ok(String::from_utf8_lossy(&[output, complaints].concat()).into_owned())
        };
        poll::until(what, START, async || {
            let ended = self.child.try_wait()?;
            let text = printed(self)?;
            match (find(&text), ended) {
                (Some(found), _) => Ok(Some(found)),
                (None, None) => Ok(None),
                (None, Some(status)) => bail!("{what}: the server ended ({status}):\n{text}"),
            }
        })
        .await
    }

    /// All that it has written to standard error, over restarts in the same folder too.
    pub fn complaints(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.complaints)?).into_owned())
    }

    /// All that it has printed to standard output.
    pub fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.output)?).into_owned())
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal and waits for the end.
    pub async fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        if let Some(id) = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            kill_process(id, signal).context("cannot signal the server")?;
        }
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        Ok(ended.with_context(|| format!("the server did not end within {limit:?}"))??)
    }
}

/// Raises this process's limit on open files to what the system allows, for tests with a thousand
/// connections. Children inherit it.
pub fn raise_file_limit() -> Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(65_536).min(65_536);
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
            .context("cannot raise the limit on open files")?;
    }
    Ok(wanted)
}
