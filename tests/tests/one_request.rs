//! A cold read costs the origin as few requests as can be: one for an object that fits into one
//! block, whoever asks and however it is signed, and one for each span of a larger one.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::Client;
use larder_tests::forward::{Forwarder, Seen};
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::oracle::Oracle;
use larder_tests::tools::{self, Style};

const BLOCK: u64 = 1 << 20;
const SPAN: u64 = 16 * BLOCK;

struct Bench {
    _moto: Moto,
    origin: Client,
    forwarder: Forwarder,
    larder: Larder,
}

impl Bench {
    async fn start(freshness: &str) -> Result<Self> {
        let moto = Moto::start().await?;
        let origin = moto.client();
        origin.make_bucket("data").await?;
        let forwarder = Forwarder::start(moto.address()).await?;
        let rest = format!("freshness = \"{freshness}\"");
        let larder = Larder::start(&format!(
            "{}{}{}",
            cache("128MiB", None),
            s3_origin("moto", &forwarder.endpoint()),
            dataset("data", "moto", "data", &rest)
        ))
        .await?;
        Ok(Self { _moto: moto, origin, forwarder, larder })
    }

    async fn put(&self, key: &str, size: u64) -> Result<()> {
        self.origin.put("data", key, Oracle::of(key).body(1, size)).await.map(drop)
    }

    /// A whole read through the proxy, checked; what the origin saw of it.
    async fn read(&self, key: &str, size: u64) -> Result<Vec<Seen>> {
        self.forwarder.forget();
        let reply = self.larder.client().get("data", key).await?.expect(200)?;
        ensure!(reply.body.len() as u64 == size, "{key}: {} bytes of {size}", reply.body.len());
        if size > 0 {
            Oracle::of(key).check(0, &reply.body)?;
        }
        Ok(self.forwarder.seen())
    }
}

fn told(seen: &[Seen]) -> Vec<String> {
    let range = |seen: &Seen| seen.headers.get("range").map(|value| format!("{value:?}"));
    let line = |seen: &Seen| format!("{} {} {:?}", seen.method, seen.target, range(seen));
    seen.iter().map(line).collect()
}

#[tokio::test]
async fn a_cold_object_of_one_block_is_one_get() -> Result<()> {
    for freshness in ["immutable", "strict", "60s"] {
        let bench = Bench::start(freshness).await?;
        for (key, size) in [("small", 100_000), ("exact", BLOCK), ("tiny", 24), ("two", BLOCK + 8)]
        {
            bench.put(key, size).await?;
            let seen = bench.read(key, size).await?;
            println!("{freshness}: cold {key} of {size} bytes: {:?}", told(&seen));
            ensure!(seen.len() == 1, "{key}: {:?}", told(&seen));
            ensure!(seen[0].method == Method::GET && seen[0].bytes() == size);
            let warm = bench.read(key, size).await?;
            let most = usize::from(freshness == "strict");
            let bytes: u64 = warm.iter().map(Seen::bytes).sum();
            ensure!(warm.len() <= most && bytes == 0, "{key} warm: {:?}", told(&warm));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cold_empty_object_costs_two_requests_and_a_warm_one_at_most_a_head() -> Result<()> {
    for freshness in ["immutable", "strict", "60s"] {
        let bench = Bench::start(freshness).await?;
        bench.put("empty", 0).await?;
        let seen = bench.read("empty", 0).await?;
        println!("{freshness}: cold empty object: {:?}", told(&seen));
        // A range of no bytes cannot be asked for: the first answer is a 416.
        let ranged: Vec<bool> = seen.iter().map(|s| s.headers.contains_key("range")).collect();
        ensure!(ranged == [true, false], "{:?}", told(&seen));
        ensure!(seen.iter().all(|seen| seen.method == Method::GET), "{:?}", told(&seen));
        let warm = bench.read("empty", 0).await?;
        let heads = usize::from(freshness == "strict");
        ensure!(warm.len() == heads, "{freshness}, warm: {:?}", told(&warm));
        ensure!(warm.iter().all(|seen| seen.method == Method::HEAD), "{:?}", told(&warm));
    }
    Ok(())
}

#[tokio::test]
async fn an_object_of_several_spans_is_one_get_for_each() -> Result<()> {
    let bench = Bench::start("immutable").await?;
    for (key, size, spans) in [("a", SPAN, 1), ("b", 2 * SPAN + 1000, 3)] {
        bench.put(key, size).await?;
        let seen = bench.read(key, size).await?;
        let bytes: u64 = seen.iter().map(Seen::bytes).sum();
        println!("cold {key} of {size} bytes: {bytes} bytes in {:?}", told(&seen));
        ensure!(bytes == size, "{key}: {bytes} bytes of {size}");
        ensure!(seen.iter().all(|seen| seen.method == Method::GET));
        ensure!(seen.len() == spans, "{key}: {:?}", told(&seen));
        let later = seen.iter().skip(1).all(|seen| seen.headers.contains_key("if-match"));
        ensure!(later, "{key}: a later span was asked for without If-Match");
        ensure!(bench.read(key, size).await?.is_empty(), "{key} is not warm");
    }
    Ok(())
}

#[tokio::test]
async fn a_head_costs_one_head_and_the_get_behind_it_one_get() -> Result<()> {
    let bench = Bench::start("60s").await?;
    bench.put("k", 100_000).await?;
    let reply = bench.larder.client().head("data", "k").await?.expect(200)?;
    ensure!(reply.header("content-length") == "100000", "{:?}", reply.headers);
    let seen = bench.forwarder.seen();
    ensure!(seen.len() == 1 && seen[0].method == Method::HEAD, "{:?}", told(&seen));
    let seen = bench.read("k", 100_000).await?;
    println!("HEAD, then GET: {:?}", told(&seen));
    ensure!(seen.len() == 1 && seen[0].method == Method::GET, "{:?}", told(&seen));
    Ok(())
}

#[tokio::test]
async fn an_unsigned_payload_from_boto3_is_one_get_too() -> Result<()> {
    let bench = Bench::start("immutable").await?;
    bench.put("k", 100_000).await?;
    bench.forwarder.forget();
    let account = bench.larder.account(Style::Path);
    let mut command = tools::client("python", &account, bench.larder.dir())?;
    let script = tools::folder("clients").join("unsigned_payload.py");
    let said = tools::run(command.arg(script).args(["data", "k"])).await?;
    let seen = bench.forwarder.seen();
    println!("boto3, unsigned payload: {} bytes, {:?}", said.trim(), told(&seen));
    ensure!(said.trim() == "100000", "{said}");
    ensure!(seen.len() == 1 && seen[0].method == Method::GET, "{:?}", told(&seen));
    Ok(())
}
