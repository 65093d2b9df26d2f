//! Every byte is fetched once: many concurrent cold reads of one object cost the origin exactly the
//! object's bytes, and the node no more memory than its limit.

use anyhow::{Context, Result, ensure};
use http::Method;
use http_body_util::BodyExt;
use larder_tests::client::{Ask, Client};
use larder_tests::forward::Forwarder;
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::oracle::Oracle;
use larder_tests::{poll, process, scaled};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const MIB: u64 = 1 << 20;

/// How long a reader goes on being told to come back.
const PATIENCE: Duration = Duration::from_secs(120);

/// One whole read, every byte checked as it comes; told to slow down, it comes back.
async fn read(client: &Client, key: &str, size: u64, refused: &AtomicU64) -> Result<()> {
    let ask = Ask::object(Method::GET, "data", key);
    let deadline = Instant::now() + PATIENCE;
    let mut body = loop {
        let answer = client.open(&ask).await?;
        if answer.status() == 200 {
            break answer.into_body();
        }
        ensure!(answer.status() == 503, "status {}", answer.status());
        ensure!(answer.headers().contains_key("retry-after"), "503 without Retry-After");
        ensure!(Instant::now() < deadline, "told to slow down for {PATIENCE:?}");
        refused.fetch_add(1, Ordering::Relaxed);
        poll::pause().await;
    };
    let mut reader = Oracle::of(key).reader(0);
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.with_context(|| format!("body broke off after {read} bytes"))?;
        let Some(piece) = frame.data_ref() else { continue };
        reader.push(piece)?;
        read += piece.len() as u64;
    }
    ensure!(read == size, "{read} bytes of {size}");
    reader.close()?;
    Ok(())
}

async fn check(readers: usize, size: u64, memory: &str, limit: u64, disk: &str) -> Result<()> {
    process::raise_file_limit()?;
    let moto = Moto::start().await?;
    let origin = moto.client();
    origin.make_bucket("data").await?;
    origin.put("data", "k", Oracle::of("k").body(1, size)).await?;
    let forwarder = Forwarder::start(moto.address()).await?;
    let larder = Larder::start(&format!(
        "[limits]\nmemory = {limit}\n{}{}{}",
        cache(memory, Some(disk)),
        s3_origin("moto", &forwarder.endpoint()),
        dataset("data", "moto", "data", "freshness = \"immutable\"")
    ))
    .await?;
    let refused = Arc::new(AtomicU64::new(0));
    let barrier = Arc::new(Barrier::new(readers));
    let mut reads = JoinSet::new();
    let began = Instant::now();
    let client = larder.client();
    for _ in 0..readers {
        let (client, barrier, refused) =
            (client.clone(), Arc::clone(&barrier), Arc::clone(&refused));
        reads.spawn(async move {
            barrier.wait().await;
            read(&client, "k", size, &refused).await
        });
    }
    let mut failures = Vec::new();
    while let Some(done) = reads.join_next().await {
        failures.extend(done?.err().map(|error| format!("{error:#}")));
    }
    let fetched = forwarder.object_bytes();
    let requests = forwarder.seen_of("data", "k").len();
    println!(
        "{readers} concurrent cold GETs of {} MiB over {memory} of memory: {} MiB served in \
         {:.1} s; origin: {fetched} bytes in {requests} requests; told to slow down {} times",
        size / MIB,
        readers as u64 * size / MIB,
        began.elapsed().as_secs_f64(),
        refused.load(Ordering::Relaxed)
    );
    let peak = larder.peak_memory()?;
    println!("peak memory: {} MiB, the limit is {} MiB", peak / MIB, limit / MIB);
    ensure!(failures.is_empty(), "{} reads failed, the first: {}", failures.len(), failures[0]);
    ensure!(fetched == size, "fetched {fetched} bytes of an object of {size}");
    let told = larder.metrics().await?.origin_bytes("data");
    ensure!(told == size, "larder_origin_bytes_total says {told}");
    ensure!(peak * 100 <= limit * 115, "peak memory {peak} is over {limit} and 15 per cent");
    Ok(())
}

#[tokio::test]
async fn a_crowd_on_one_object_fetches_each_byte_once() -> Result<()> {
    let (readers, size) = scaled((200, 8 * MIB), (1_000, 32 * MIB));
    check(readers, size, "128MiB", 512 * MIB, "1GiB").await
}

#[tokio::test]
async fn an_object_larger_than_the_memory_is_fetched_once_too() -> Result<()> {
    let (readers, size) = scaled((20, 64 * MIB), (100, 256 * MIB));
    check(readers, size, scaled("32MiB", "64MiB"), 512 * MIB, scaled("1GiB", "2GiB")).await
}
