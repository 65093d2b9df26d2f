//! moto, an S3 server for behaviour: versions, conditionals, listings. It checks no signatures.

use crate::client::Client;
use crate::process::Server;
use crate::tools;
use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::process::Command;

/// A running moto, empty at first. Dropping it ends it.
pub struct Moto {
    address: String,
    _server: Server,
    _dir: TempDir,
}

impl Moto {
    /// Starts one on a port that the kernel chooses.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(tools::program("moto_server")?);
        command.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1");
        let mut server = Server::start("moto", &mut command, dir.path())?;
        let listening = server.find("moto's address", |text| {
            let (_, rest) = text.split_once("Running on http://")?;
            let (address, _) = rest.split_once('\n')?;
            Some(address.trim().to_owned())
        });
        let address = listening.await.context("moto did not start")?;
        Ok(Self { address, _server: server, _dir: dir })
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

    /// A client of it, with keys that it does not look at.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.endpoint(), "ORIGIN", "origin-secret")
    }
}
