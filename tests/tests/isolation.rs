//! A neighbour's churn does not touch a kept dataset: `keep` with a quota that fits loses at most one
//! per cent of its blocks, across a restart too.

use anyhow::{Context, Result, ensure};
use larder_tests::client::Client;
use larder_tests::larder::{Larder, cache, dataset, directory_origin};
use larder_tests::oracle::Oracle;
use larder_tests::{poll, scaled};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// A whole number of blocks and a part of one, as real objects are.
const OBJECT: u64 = 2 * MIB + MIB / 2;

fn write(bucket: &Path, objects: u64) -> Result<()> {
    std::fs::create_dir_all(bucket)?;
    for index in 0..objects {
        let key = format!("{index:05}");
        std::fs::write(bucket.join(&key), Oracle::of(&key).body(1, OBJECT))?;
    }
    Ok(())
}

async fn read(client: &Client, bucket: &str, objects: u64) -> Result<()> {
    for index in 0..objects {
        let key = format!("{index:05}");
        let reply = client.get(bucket, &key).await?.expect(200)?;
        ensure!(reply.body.len() as u64 == OBJECT, "{bucket}/{key}: {}", reply.body.len());
        Oracle::of(&key).check(0, &reply.body).with_context(|| format!("{bucket}/{key}"))?;
    }
    Ok(())
}

/// Reads the kept dataset again; an error if more than one per cent had to be fetched.
async fn check(larder: &Larder, objects: u64, after: &str) -> Result<()> {
    let before = larder.metrics().await?.origin_bytes("kept");
    read(&larder.client(), "kept", objects).await?;
    let metrics = larder.metrics().await?;
    let lost = metrics.origin_bytes("kept") - before;
    let total = objects * OBJECT;
    println!("after {after}: {lost} of {total} bytes lost ({:.3} %)", percent(lost, total));
    ensure!(lost * 100 <= total, "lost {lost} of {total} bytes");
    Ok(())
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

#[tokio::test]
async fn a_kept_dataset_survives_a_churning_neighbour_and_a_restart() -> Result<()> {
    // Sizes in MiB: what is kept, its quota, the disk of both.
    let (kept, quota, disk) = scaled((64, 80, 512), (512, 640, 2048));
    let origin = tempfile::tempdir()?;
    let kept_objects = kept * MIB / OBJECT;
    let churn_objects = 5 * disk * MIB / OBJECT;
    write(&origin.path().join("kept"), kept_objects)?;
    // The churn is many names for few files: five times the cache would be much disk for a test.
    let churn = origin.path().join("churn");
    write(&churn, 16)?;
    for index in 16..churn_objects {
        std::fs::hard_link(
            churn.join(format!("{:05}", index % 16)),
            churn.join(format!("{index:05}")),
        )?;
    }
    let keep = format!(
        "freshness = \"immutable\"\npolicy = \"keep\"\n\
         quota = {{ memory = \"16MiB\", disk = \"{quota}MiB\" }}"
    );
    let mut larder = Larder::start(&format!(
        "{}{}{}{}",
        cache("48MiB", Some(&format!("{disk}MiB"))),
        directory_origin("files", origin.path()),
        dataset("kept", "files", "kept", &keep),
        dataset("churn", "files", "churn", "freshness = \"immutable\"\npolicy = \"lru\"")
    ))
    .await?;
    read(&larder.client(), "kept", kept_objects).await?;
    resident(&larder, kept_objects * OBJECT).await?;
    check(&larder, kept_objects, "the first read").await?;

    let client = larder.client();
    for index in 0..churn_objects {
        let reply = client.get("churn", &format!("{index:05}")).await?.expect(200)?;
        let key = format!("{:05}", index % 16);
        Oracle::of(&key).check(0, &reply.body)?;
    }
    let fetched = larder.metrics().await?.origin_bytes("churn");
    println!("the neighbour fetched {} MiB over {disk} MiB of disk", fetched / MIB);
    ensure!(fetched >= 5 * disk * MIB * 99 / 100, "the neighbour fetched {fetched} bytes only");
    check(&larder, kept_objects, "the churn").await?;

    let status = larder.stop().await?;
    ensure!(status.success(), "SIGTERM ended it with {status}");
    larder.start_again().await?;
    check(&larder, kept_objects, "a restart").await?;
    read(&larder.client(), "churn", 16).await?;
    check(&larder, kept_objects, "a restart and more churn").await
}

async fn resident(larder: &Larder, bytes: u64) -> Result<()> {
    poll::until("the kept dataset on the SSD", Duration::from_secs(60), async || {
        let metrics = larder.metrics().await?;
        let cached = metrics.sum("larder_cached_bytes", &[("dataset", "kept"), ("tier", "disk")]);
        Ok((cached >= bytes as f64).then_some(()))
    })
    .await
}
