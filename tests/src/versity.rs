//! Versity's S3 gateway over a folder: a server that is not ours, written in another language by
//! other people, that checks signatures and knows versions, tags, grants and multipart uploads.

use crate::client::Client;
use crate::process::Server;
use crate::{poll, tools};
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// Its root user, who is also the one that a node of the tests signs as.
const ACCESS_KEY: &str = "ORIGIN";
const SECRET: &str = "origin-secret";

/// A running gateway, empty at first. Dropping it ends it.
pub struct Versity {
    address: String,
    _server: Server,
    _dir: TempDir,
}

impl Versity {
    /// Starts one on a port that the kernel chooses.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for name in ["objects", "versions", "attributes"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let mut command = Command::new(tools::program("versitygw")?);
        // Attributes in a folder of their own: not every file system has extended ones.
        command
            .args(["--port", "127.0.0.1:0", "--keep-alive", "--quiet", "posix"])
            .arg("--versioning-dir")
            .arg(dir.path().join("versions"))
            .arg("--sidecar")
            .arg(dir.path().join("attributes"))
            .arg(dir.path().join("objects"))
            .env("ROOT_ACCESS_KEY_ID", ACCESS_KEY)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET);
        let mut server = Server::start("versitygw", &mut command, dir.path())?;
        // It prints the port that it was asked for, 0, instead of the one that it got.
        let port = poll::until("versitygw's port", Duration::from_secs(60), async || {
            server.find("versitygw", |_| Some(())).await?;
            listening(server.id().context("versitygw ended")?)
        })
        .await?;
        Ok(Self { address: format!("127.0.0.1:{port}"), _server: server, _dir: dir })
    }

    /// `HOST:PORT`
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.endpoint(), ACCESS_KEY, SECRET)
    }
}

/// The port on which a process listens, if it does: the socket among its descriptors that the
/// kernel's table of IPv4 sockets shows in state LISTEN (proc(5)).
fn listening(process: u32) -> Result<Option<u16>> {
    let links = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let sockets: Vec<String> = links
        .filter_map(|link| {
            let target = fs::read_link(link.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp"))?;
    Ok(table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = fields.as_slice() else { return None };
        let inode = fields.get(9)?;
        let ours = *state == "0A" && sockets.iter().any(|socket| socket == inode);
        ours.then(|| u16::from_str_radix(local.split(':').nth(1)?, 16).ok())?
    }))
}
