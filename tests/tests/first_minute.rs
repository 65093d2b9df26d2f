//! The first minute of a new user: `larder serve --origin DIR` on a folder that does not exist yet,
//! then the line that it prints, as it is, with the real `aws`.

use anyhow::{Context, Result, ensure};
use larder_tests::client::Client;
use larder_tests::larder::bare;
use larder_tests::process::Server;
use larder_tests::tools;
use rustix::process::Signal;
use std::time::Duration;
use tokio::process::Command;

#[tokio::test]
async fn the_line_that_serve_prints_lists_the_samples() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut command = bare(dir.path())?;
    let ports = ["--listen", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"];
    command.args(["serve", "--origin", "data"]).args(ports);
    let mut server = Server::start("larder", &mut command, dir.path())?;
    let after = |text: &str, label: &str| {
        let (line, _) = text.split_once(label)?.1.split_once('\n')?;
        Some(line.trim().to_owned())
    };
    let line = server.find("the line to try", |text| after(text, "try:")).await?;
    let output = server.output()?;
    let field = |label: &str| after(&output, label).with_context(|| format!("no {label} printed"));

    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &line])
        .env("PATH", format!("{}:{path}", tools::home()?.join("bin").display()));
    shell.env("AWS_CONFIG_FILE", dir.path().join("none")).env("AWS_EC2_METADATA_DISABLED", "true");
    shell.env("AWS_SHARED_CREDENTIALS_FILE", dir.path().join("none"));
    let said = tools::run(&mut shell).await?;
    println!("{said}");
    for name in ["hello.txt", "about.json", "noise.bin", "PRE tables/"] {
        ensure!(said.contains(name), "{name} is not listed:\n{said}");
    }

    let (endpoint, key, secret) =
        (field("s3 endpoint:")?, field("access key:")?, field("secret key:")?);
    let reply =
        Client::new(&endpoint, &key, &secret).get("samples", "hello.txt").await?.expect(200)?;
    ensure!(reply.body == std::fs::read(dir.path().join("data/samples/hello.txt"))?);
    Client::new(&endpoint, &key, "another-secret")
        .get("samples", "hello.txt")
        .await?
        .expect(403)?;
    let log = server.complaints()?;
    ensure!(!log.contains(&secret), "the generated secret is in the log");
    let ended = server.end(Signal::TERM, Duration::from_secs(60)).await?;
    ensure!(ended.success(), "SIGTERM ended it with {ended}");
    Ok(())
}
