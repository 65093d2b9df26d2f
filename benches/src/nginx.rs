//! nginx with `proxy_cache`, for comparison: found on PATH, else Debian's package unpacked into a folder of the bench's own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::process::Server;

const START_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A running nginx. Dropping it ends the master and its workers.
#[derive(Debug)]
pub struct Nginx {
    /// The master's process; its processor time includes the workers'.
    pub server: Server,
    /// Where it listens.
    pub address: SocketAddr,
    /// The command that ends it: killing the master alone would leave the workers.
    stop: (PathBuf, PathBuf),
}

impl Nginx {
    /// Starts nginx with two workers before `origin`, with its cache in `dir`, which must exist.
    pub async fn start(program: &Path, origin: SocketAddr, dir: &Path) -> Result<Self> {
        // nginx cannot be asked for any free port. One that was free a moment ago does, unless somebody took it since:
        // then it fails to start, and says so.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        std::fs::create_dir_all(dir.join("tmp"))?;
        std::fs::write(dir.join("nginx.conf"), configuration(address, origin))?;
        let log = dir.join("nginx.log");
        let mut command = Command::new(program);
        command.arg("-p").arg(dir).args(["-c", "nginx.conf", "-e", "stderr"]);
        let server = Server::start(command, &log)?;
        let stop = (program.to_owned(), dir.to_owned());
        let nginx = Self { server, address, stop };
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).await.is_err() {
            if Instant::now() > deadline {
                bail!(
                    "nginx does not listen: {}",
                    std::fs::read_to_string(&log).unwrap_or_default()
                );
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let (program, dir) = &self.stop;
        let stopped = Blocking::new(program)
            .arg("-p")
            .arg(dir)
            .args(["-c", "nginx.conf", "-e", "stderr", "-s", "stop"])
            .stderr(Stdio::null())
            .status();
        match stopped {
            Ok(_) => drop(self.server.ended_within(STOP_LIMIT)),
            Err(problem) => eprintln!("nginx could not be stopped: {problem}"),
        }
    }
}

/// Finds nginx, or fetches Debian's package and unpacks it, without installing it, under `tools`.
pub fn find_or_fetch(tools: &Path) -> Result<PathBuf> {
    if Blocking::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok_and(|it| it.success())
    {
        return Ok("nginx".into());
    }
    let dir = tools.join("nginx");
    let program = dir.join("usr/sbin/nginx");
    if !program.is_file() {
        std::fs::create_dir_all(&dir)?;
        run(Blocking::new("apt-get").args(["download", "nginx"]).current_dir(&dir))?;
        let package = std::fs::read_dir(&dir)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|it| it == "deb"))
            .context("apt-get downloaded no package")?;
        run(Blocking::new("dpkg").arg("-x").arg(package).arg(&dir))?;
    }
    run(Blocking::new(&program).arg("-v")).context("the unpacked nginx does not run")?;
    Ok(program)
}

fn run(command: &mut Blocking) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", said.trim());
    Ok(())
}

/// Tuned for this load: `sendfile`, open files kept open, connections kept for ever, no access log.
fn configuration(address: SocketAddr, origin: SocketAddr) -> String {
    format!(
        r"daemon off;
user root root;
worker_processes 2;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    open_file_cache max=4096 inactive=1h;
    open_file_cache_valid 1h;
    client_body_temp_path tmp/body;
    proxy_temp_path tmp/proxy;
    fastcgi_temp_path tmp/fastcgi;
    uwsgi_temp_path tmp/uwsgi;
    scgi_temp_path tmp/scgi;
    proxy_cache_path cache levels=1:2 keys_zone=bench:16m max_size=4g inactive=1d use_temp_path=off;
    server {{
        listen {address};
        location / {{
            proxy_pass http://{origin};
            proxy_http_version 1.1;
            proxy_cache bench;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1d;
        }}
    }}
}}
"
    )
}
