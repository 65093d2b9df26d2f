//! The origin fails: what is cached is served within its bound, the rest is 503 with Retry-After,
//! nothing half is served as whole, and all is well when the origin is back.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::{Ask, Client, Reply};
use larder_tests::forward::{Fault, Forwarder};
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::oracle::Oracle;
use larder_tests::poll;
use std::time::Duration;

const SIZE: u64 = 300_000;

struct Bench {
    _moto: Moto,
    origin: Client,
    forwarder: Forwarder,
    larder: Larder,
}

async fn start() -> Result<Bench> {
    let moto = Moto::start().await?;
    let origin = moto.client();
    let forwarder = Forwarder::start(moto.address()).await?;
    // Few and quick attempts: the test waits for each of them.
    let mut config = cache("64MiB", None)
        + &s3_origin("moto", &forwarder.endpoint())
        + "attempts = 2\nconnect_timeout = \"2s\"\nanswer_timeout = \"5s\"\nidle_timeout = \"5s\"\n";
    for (name, freshness) in [("immutable", "immutable"), ("hour", "1h"), ("strict", "strict")] {
        origin.make_bucket(name).await?;
        let rest = format!("freshness = \"{freshness}\"\nblock = \"64KiB\"");
        config += &dataset(name, "moto", name, &rest);
        origin.put(name, "k", Oracle::of("k").body(1, SIZE)).await?;
    }
    let larder = Larder::start(&config).await?;
    Ok(Bench { _moto: moto, origin, forwarder, larder })
}

fn whole(reply: &Reply) -> Result<()> {
    ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
    ensure!(reply.body.len() as u64 == SIZE, "{} bytes", reply.body.len());
    Oracle::of("k").check(0, &reply.body)?;
    Ok(())
}

fn unavailable(reply: &Reply) -> Result<()> {
    ensure!(reply.status == 503, "{}: {}", reply.status, reply.text());
    let seconds: u64 = reply.header("retry-after").parse()?;
    ensure!((1..=60).contains(&seconds), "Retry-After: {seconds}");
    ensure!(reply.text().contains("<Code>"), "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn fresh_data_is_served_while_the_origin_is_gone_and_strict_data_is_503() -> Result<()> {
    let bench = start().await?;
    let client = bench.larder.client();
    for bucket in ["immutable", "hour", "strict"] {
        whole(&client.get(bucket, "k").await?)?;
    }
    bench.forwarder.fail(Fault::Gone);
    for bucket in ["immutable", "hour"] {
        whole(&client.get(bucket, "k").await?)?;
        client.head(bucket, "k").await?.expect(200)?;
        unavailable(&client.get(bucket, "never-read").await?)?;
    }
    unavailable(&client.get("strict", "k").await?)?;
    let list = Ask::target(Method::GET, "/immutable").query("list-type", "2");
    unavailable(&client.send(&list).await?)?;
    let (status, _) = bench.larder.ask_admin("/healthz").await?;
    ensure!(status == 200, "/healthz is {status} while the origin is gone");
    bench.forwarder.fail(Fault::None);
    whole(&poll_until_up(&client, "strict", "k").await?)?;
    bench.origin.put("immutable", "never-read", Oracle::of("k").body(1, SIZE)).await?;
    whole(&poll_until_up(&client, "immutable", "never-read").await?)
}

/// The origin's clients may keep off for a moment after failures.
async fn poll_until_up(client: &Client, bucket: &str, key: &str) -> Result<Reply> {
    poll::until("the origin in use again", Duration::from_secs(30), async || {
        let reply = client.get(bucket, key).await?;
        Ok((reply.status != 503).then_some(reply))
    })
    .await
}

#[tokio::test]
async fn a_body_that_breaks_off_is_never_served_as_whole() -> Result<()> {
    let bench = start().await?;
    let client = bench.larder.client();
    // In the first block, in a later one, and just before the end.
    for after in [0, 10_000, 100_000, SIZE - 1] {
        let key = format!("cut-{after}");
        bench.origin.put("immutable", &key, Oracle::of("k").body(1, SIZE)).await?;
        bench.forwarder.fail(Fault::Cut(after));
        match client.get("immutable", &key).await {
            // An answer that hyper calls complete must be.
            Ok(reply) if reply.status == 200 => whole(&reply)?,
            Ok(reply) => unavailable(&reply)?,
            Err(error) => println!("cut after {after}: {error:#}"),
        }
        bench.forwarder.fail(Fault::None);
        whole(&poll_until_up(&client, "immutable", &key).await?)?;
        // And what the cache holds of it now is whole.
        bench.forwarder.fail(Fault::Gone);
        whole(&client.get("immutable", &key).await?)?;
        bench.forwarder.fail(Fault::None);
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_breaks_off_is_resumed_where_it_broke() -> Result<()> {
    let bench = start().await?;
    let client = bench.larder.client();
    bench.forwarder.fail(Fault::Cut(100_000));
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.get("immutable", "k").await }
    });
    poll::until("the first break", Duration::from_secs(20), async || {
        let cut = bench.forwarder.seen_of("immutable", "k").iter().any(|seen| seen.bytes() > 0);
        Ok(cut.then_some(()))
    })
    .await?;
    bench.forwarder.fail(Fault::None);
    let read = reading.await?;
    let seen = bench.forwarder.seen_of("immutable", "k");
    let ranges: Vec<_> = seen.iter().map(|seen| seen.headers.get("range")).collect();
    println!("resumed with ranges {ranges:?}: {}", read.is_ok());
    whole(&read?)?;
    let resumed = seen.iter().skip(1).all(|seen| seen.headers.contains_key("if-match"));
    ensure!(resumed, "a resumed request had no If-Match");
    Ok(())
}
