//! A restart is warm: after SIGTERM and after SIGKILL, what was on the SSD is served from there, and
//! the origin is not asked for a byte.

use anyhow::{Result, ensure};
use larder_tests::client::Client;
use larder_tests::forward::{Fault, Forwarder};
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::oracle::Oracle;
use larder_tests::poll;
use std::time::{Duration, Instant};

const OBJECTS: usize = 40;
const SIZE: u64 = 700_000;
const LATER: u64 = 1_000;
/// Eight times as long as the catalog may lag behind.
const WHILE: Duration = Duration::from_secs(2);

fn key(index: usize) -> String {
    format!("shard/{index:03}")
}

async fn read_all(larder: &Larder) -> Result<()> {
    let client = larder.client();
    for index in 0..OBJECTS {
        let reply = client.get("data", &key(index)).await?.expect(200)?;
        ensure!(reply.body.len() as u64 == SIZE);
        Oracle::of(&key(index)).check(0, &reply.body)?;
    }
    Ok(())
}

/// Blocks reach the SSD at once but not before the client: waits until all are told to be there.
async fn settled(larder: &Larder) -> Result<()> {
    poll::until("all blocks on the SSD", Duration::from_secs(30), async || {
        let metrics = larder.metrics().await?;
        let bytes = metrics.sum("larder_cached_bytes", &[("dataset", "data"), ("tier", "disk")]);
        Ok((bytes >= (OBJECTS as u64 * SIZE) as f64).then_some(()))
    })
    .await
}

/// Other objects are read for a while, as in life. The catalog is written four times a second; what
/// was read before this must be warm after a kill, what is read meanwhile need not be.
///
/// Tells how many those were.
async fn go_on(larder: &Larder, origin: &Client) -> Result<usize> {
    let (client, began) = (larder.client(), Instant::now());
    let mut count = 0;
    while began.elapsed() < WHILE {
        let later = later(count);
        origin.put("data", &later, Oracle::of(&later).body(1, LATER)).await?;
        client.get("data", &later).await?.expect(200)?;
        count += 1;
    }
    Ok(count)
}

fn later(index: usize) -> String {
    format!("later/{index}")
}

/// Warm or cold, what was read just before a kill comes back byte for byte; and most of it warm.
async fn read_later(larder: &Larder, forwarder: &Forwarder, count: usize) -> Result<()> {
    let client = larder.client();
    for index in 0..count {
        let reply = client.get("data", &later(index)).await?.expect(200)?;
        ensure!(reply.body.len() as u64 == LATER);
        Oracle::of(&later(index)).check(0, &reply.body)?;
    }
    let cold = forwarder.seen().len();
    println!("of {count} objects read in the last {WHILE:?} before the kill, {cold} were cold");
    // The catalog lags by an eighth of that time, and a commit takes its own.
    ensure!(cold * 2 < count, "{cold} of {count} objects were lost");
    Ok(())
}

async fn check(by_kill: bool) -> Result<()> {
    let moto = Moto::start().await?;
    let origin = moto.client();
    origin.make_bucket("data").await?;
    for index in 0..OBJECTS {
        origin.put("data", &key(index), Oracle::of(&key(index)).body(1, SIZE)).await?;
    }
    let forwarder = Forwarder::start(moto.address()).await?;
    let mut larder = Larder::start(&format!(
        "{}{}{}",
        cache("64MiB", Some("1GiB")),
        s3_origin("moto", &forwarder.endpoint()),
        dataset("data", "moto", "data", "freshness = \"immutable\"")
    ))
    .await?;
    read_all(&larder).await?;
    settled(&larder).await?;
    let mut meanwhile = 0;
    if by_kill {
        meanwhile = go_on(&larder, &origin).await?;
        larder.kill().await?;
    } else {
        let status = larder.stop().await?;
        ensure!(status.success(), "SIGTERM ended it with {status}");
    }
    forwarder.forget();
    larder.start_again().await?;
    read_all(&larder).await?;
    let metrics = larder.metrics().await?;
    let (disk, fetched) = (metrics.served_bytes("data", "disk"), metrics.origin_bytes("data"));
    println!(
        "after {}: {} of {} bytes from disk, {fetched} from the origin in {} requests",
        if by_kill { "SIGKILL" } else { "SIGTERM" },
        disk,
        OBJECTS as u64 * SIZE,
        forwarder.seen().len()
    );
    for cause in ["cold", "evicted", "stale", "corrupt", "lost", "bypass"] {
        let misses = metrics.sum("larder_misses_total", &[("dataset", "data"), ("cause", cause)]);
        println!("misses, {cause}: {misses}");
    }
    ensure!(fetched == 0 && forwarder.object_bytes() == 0, "fetched {fetched} bytes");
    ensure!(disk == OBJECTS as u64 * SIZE, "{disk} bytes from disk");
    if by_kill {
        read_later(&larder, &forwarder, meanwhile).await?;
    }
    // The catalog is warm too: with the origin gone, versions and headers are still known.
    forwarder.fail(Fault::Gone);
    read_all(&larder).await?;
    let head = larder.client().head("data", &key(0)).await?.expect(200)?;
    ensure!(head.header("content-length") == SIZE.to_string(), "{:?}", head.headers);
    Ok(())
}

#[tokio::test]
async fn a_restart_by_sigterm_is_warm() -> Result<()> {
    check(false).await
}

#[tokio::test]
async fn a_restart_by_sigkill_is_warm() -> Result<()> {
    check(true).await
}
