//! Servers in processes of their own: started, waited for until they listen, and ended by their own handle.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::report::Verdicts;

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// `/proc/PID/stat` counts in hundredths of a second on every architecture (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// A server's process. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pid: u32,
    /// Keeps the pipe empty, so that a server which prints never waits for us.
    drained: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts `command`, whose standard error goes to `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let name = format!("{:?}", command.as_std().get_program());
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log).with_context(|| format!("creating {}", log.display()))?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let pid = child.id().with_context(|| format!("{name} ended at once"))?;
        Ok(Self { child, pid, drained: None })
    }

    /// Waits until the server has printed `prefix` followed by an address, and returns each address, in the order of `prefixes`.
    pub async fn addresses<const N: usize>(
        &mut self,
        prefixes: [&str; N],
        log: &Path,
    ) -> Result<[SocketAddr; N]> {
        let out = self.child.stdout.take().context("the server's output was already read")?;
        let mut lines = BufReader::new(out).lines();
        let read = tokio::time::timeout(START_LIMIT, find(&mut lines, prefixes)).await;
        match read {
            Ok(Ok(found)) => {
                self.drained = Some(tokio::spawn(async move {
                    while let Ok(Some(_)) = lines.next_line().await {}
                }));
                Ok(found)
            }
            Ok(Err(problem)) => Err(problem.context(tail(log))),
            Err(_) => {
                bail!("the server did not print {prefixes:?} in {START_LIMIT:?}\n{}", tail(log))
            }
        }
    }

    /// Processor time used so far by the process and its children that still live, in seconds, to a hundredth.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let mut total = ticks(self.pid)?;
        let children = format!("/proc/{0}/task/{0}/children", self.pid);
        for child in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            total += ticks(child.parse()?)?;
        }
        Ok(total / TICKS_PER_SECOND)
    }

    /// Waits, without the runtime, until the process has ended; false if it runs for longer than `limit`.
    pub fn ended_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        true
    }

    /// The process id, to tell a person whom to profile.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.drained.take() {
            task.abort();
        }
        // Waited for, so that its files can be removed and no zombie stays behind. It may have ended by itself.
        drop(self.child.start_kill());
        if !self.ended_within(END_LIMIT) {
            eprintln!("process {} was killed and still runs", self.pid);
        }
    }
}

/// The program `name` that was built beside this one.
pub fn sibling(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} is not built; run `cargo build --release -p larder -p larder-benches`",
            path.display()
        );
    }
    Ok(path)
}

/// Prints a bench's verdicts, or why it failed. The exit code is 0 if every bar was met, else 1.
#[must_use]
pub fn conclude(verdicts: Result<Verdicts>) -> ExitCode {
    match verdicts {
        Ok(verdicts) => {
            print!("{verdicts}");
            ExitCode::from(u8::from(!verdicts.all_met()))
        }
        Err(problem) => {
            eprintln!("{problem:#}");
            ExitCode::FAILURE
        }
    }
}

/// A new directory beside this program, hence on the disk that holds the build; removed when dropped.
pub fn work_dir() -> Result<TempDir> {
    let target = sibling("larder")?.with_file_name("bench");
    std::fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    TempDir::with_prefix_in("run-", &target).context("creating a directory for this run")
}

/// Where programs that the benches fetch are kept from run to run.
pub fn tools_dir() -> Result<PathBuf> {
    Ok(sibling("larder")?.with_file_name("bench").join("tools"))
}

/// Starts the program `name` beside this one with `arguments`; it must print `listening: ADDRESS`.
pub async fn start_own(
    name: &str,
    arguments: &[OsString],
    logs: &Path,
) -> Result<(Server, SocketAddr)> {
    let log = logs.join(format!("{name}.log"));
    let mut command = Command::new(sibling(name)?);
    command.args(arguments);
    let mut server = Server::start(command, &log)?;
    let [address] = server.addresses(["listening: "], &log).await?;
    Ok((server, address))
}

async fn find<const N: usize>(
    lines: &mut Lines<BufReader<ChildStdout>>,
    prefixes: [&str; N],
) -> Result<[SocketAddr; N]> {
    let mut found = [None; N];
    while found.contains(&None) {
        let line = lines.next_line().await?.context("the server ended before it listened")?;
        for (address, prefix) in found.iter_mut().zip(prefixes) {
            if let Some(rest) = line.strip_prefix(prefix) {
                let text = rest.trim().trim_start_matches("http://").trim_end_matches('/');
                *address = Some(text.parse().with_context(|| format!("reading {line:?}"))?);
            }
        }
    }
    Ok(found.map(|address| address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))))
}

fn ticks(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The second field is the program's name in parentheses and may hold blanks: count from its end. There, user and
    // system time are fields 14 and 15 of the whole line (proc(5)).
    let (_, rest) = stat.rsplit_once(')').with_context(|| format!("{path} is not as expected"))?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<f64>().ok());
    let (user, system) = next().zip(next()).with_context(|| format!("{path} is too short"))?;
    Ok(user + system)
}

/// The last lines of a log, for an error message.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(12)..].join("\n");
    format!("its last words ({}):\n{last}", log.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn addresses_are_read_in_the_order_asked_for_and_a_dead_server_tells_why() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        let script = "echo b: 127.0.0.1:2; echo noise; echo a: http://127.0.0.1:1; exec sleep 60";
        let mut server = Server::start(shell(script), &log).expect("a shell");
        let found = server.addresses(["a: ", "b: "], &log).await.expect("both addresses");
        assert_eq!(found.map(|address| address.port()), [1, 2]);
        assert!(server.cpu_seconds().expect("a living process") < 10.0);

        let mut server = Server::start(shell("echo why >&2"), &log).expect("a shell");
        let problem = server.addresses(["a: "], &log).await.expect_err("it never listened");
        assert!(format!("{problem:#}").contains("why"), "{problem:#}");
    }
}
