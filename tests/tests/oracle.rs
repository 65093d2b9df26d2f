//! A writer overwrites objects at the origin behind the proxy's back while readers read: no answer
//! mixes two versions, and none is older than its dataset's bound.

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use larder_tests::client::{Ask, Client};
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::oracle::{Oracle, Wrong};
use larder_tests::scaled;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// (key, size): of one block, and of several; the block is 64 KiB.
const OBJECTS: [(&str, u64); 6] = [
    ("one/a", 20_000),
    ("one/b", 64 * 1024),
    ("several/a", 200_000),
    ("several/b", 4 * 64 * 1024),
    ("several/c", 1_000_003),
    ("span/a", 1_500_000),
];
const READERS: usize = 6;
/// Between two writes: long enough that a body of the largest object can come through whole.
const WRITE_EVERY: Duration = Duration::from_millis(40);

/// When the versions of one object were in place at the origin.
#[derive(Default)]
struct History(Mutex<Vec<Instant>>);

impl History {
    fn written(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }

    /// When `version` had certainly been replaced: when the write of the next one was answered.
    fn replaced(&self, version: u32) -> Option<Instant> {
        let versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(version as usize + 1).copied()
    }

    fn next(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }
}

#[derive(Default)]
struct Count {
    whole: AtomicU64,
    ranged: AtomicU64,
    broken: AtomicU64,
    refused: AtomicU64,
    stale_within_bound: AtomicU64,
}

impl Count {
    fn reads(&self) -> u64 {
        self.whole.load(Ordering::Relaxed) + self.ranged.load(Ordering::Relaxed)
    }
}

struct Scene {
    client: Client,
    bound: Duration,
    histories: Vec<History>,
    count: Count,
    wanted: u64,
    over: AtomicBool,
}

impl Scene {
    async fn write(&self, origin: &Client, index: usize) -> Result<()> {
        let (key, size) = OBJECTS[index];
        let history = &self.histories[index];
        origin.put("data", key, Oracle::of(key).body(history.next(), size)).await?;
        history.written();
        Ok(())
    }

    /// One read: whole or a range, checked against the oracle and the clock.
    async fn read(&self, random: &mut StdRng) -> Result<()> {
        let index = random.random_range(0..OBJECTS.len());
        let (key, size) = OBJECTS[index];
        let mut ask = Ask::object(Method::GET, "data", key);
        let range = random.random_bool(0.5).then(|| {
            let start = random.random_range(0..size - 16);
            (start, random.random_range(start + 16..=size))
        });
        if let Some((start, end)) = range {
            ask = ask.header("range", &format!("bytes={start}-{}", end - 1));
        }
        let began = Instant::now();
        let answer = self.client.open(&ask).await.context("no answer")?;
        let status = answer.status().as_u16();
        if status == 503 {
            self.count.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let (start, end) = range.unwrap_or((0, size));
        ensure!(status == if range.is_some() { 206 } else { 200 }, "{key}: status {status}");
        let (version, broken) = body(answer, Oracle::of(key), start, end - start)
            .await
            .with_context(|| format!("{key} {range:?}, seen through {:?}", self.bound))?;
        let Some(version) = version else {
            self.count.broken.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        self.judge(index, version, began)?;
        let count = match (broken, range) {
            (true, _) => &self.count.broken,
            (false, Some(_)) => &self.count.ranged,
            (false, None) => &self.count.whole,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn judge(&self, index: usize, version: u32, began: Instant) -> Result<()> {
        let Some(replaced) = self.histories[index].replaced(version) else { return Ok(()) };
        let Some(age) = began.checked_duration_since(replaced) else { return Ok(()) };
        ensure!(
            age <= self.bound,
            "{}: version {version} had been replaced {age:?} before the read began, the bound is \
             {:?}",
            OBJECTS[index].0,
            self.bound
        );
        self.count.stale_within_bound.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Checks a body as it comes: its version, where enough came to tell, and whether it broke off. Only
/// a connection that was closed short is a broken body; wrong bytes are an error.
async fn body(
    answer: http::Response<hyper::body::Incoming>,
    oracle: Oracle,
    offset: u64,
    len: u64,
) -> Result<(Option<u32>, bool)> {
    use http_body_util::BodyExt;
    let mut body = answer.into_body();
    let mut reader = oracle.reader(offset);
    let mut read = 0;
    let mut broken = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            broken = true;
            break;
        };
        let Some(piece) = frame.data_ref() else { continue };
        reader.push(piece)?;
        read += piece.len() as u64;
    }
    ensure!(broken || read == len, "{read} bytes of {len} in an answer that claims to be whole");
    match reader.close() {
        Ok(version) => Ok((Some(version), broken)),
        Err(Wrong::Short) if broken => Ok((None, true)),
        Err(wrong) => bail!(wrong),
    }
}

async fn check(freshness: &str, bound: Duration, wanted: u64) -> Result<()> {
    let moto = Moto::start().await?;
    let origin = moto.client();
    origin.make_bucket("data").await?;
    let rest = format!("freshness = \"{freshness}\"\nblock = \"64KiB\"");
    let larder = Larder::start(&format!(
        "{}{}{}",
        cache("32MiB", Some("1GiB")),
        s3_origin("moto", &moto.endpoint()),
        dataset("data", "moto", "data", &rest)
    ))
    .await?;
    let scene = Arc::new(Scene {
        client: larder.client(),
        bound,
        histories: OBJECTS.iter().map(|_| History::default()).collect(),
        count: Count::default(),
        wanted,
        over: AtomicBool::new(false),
    });
    for index in 0..OBJECTS.len() {
        scene.write(&origin, index).await?;
    }
    let seed: u64 = rand::random();
    println!("{freshness}: seed {seed}");
    let began = Instant::now();
    let mut readers = JoinSet::new();
    for reader in 0..READERS as u64 {
        let scene = Arc::clone(&scene);
        readers.spawn(async move {
            let mut random = StdRng::seed_from_u64(seed ^ reader);
            while !scene.over.load(Ordering::Relaxed) && scene.count.reads() < scene.wanted {
                scene.read(&mut random).await?;
            }
            anyhow::Ok(())
        });
    }
    let writer = tokio::spawn(overwrite(Arc::clone(&scene), origin));
    let mut outcome = Ok(());
    while let Some(done) = readers.join_next().await {
        let done = done?;
        if done.is_err() {
            scene.over.store(true, Ordering::Relaxed);
            outcome = outcome.and(done);
        }
    }
    scene.over.store(true, Ordering::Relaxed);
    writer.await??;
    let writes: u32 = scene.histories.iter().map(History::next).sum();
    let count = &scene.count;
    println!(
        "{freshness}: {} reads ({} ranged) against {writes} writes in {:.1} s: 0 mixed, 0 too old; \
         {} of a replaced version within the bound, {} broken off, {} times 503",
        count.reads(),
        count.ranged.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
        count.stale_within_bound.load(Ordering::Relaxed),
        count.broken.load(Ordering::Relaxed),
        count.refused.load(Ordering::Relaxed),
    );
    outcome?;
    let tried = count.reads() + count.broken.load(Ordering::Relaxed);
    ensure!(count.reads() >= wanted, "{} reads of {wanted}", count.reads());
    ensure!(count.reads() * 2 > tried, "most bodies broke off: nothing was shown");
    ensure!(u64::from(writes) > OBJECTS.len() as u64 * 2, "{writes} writes only");
    Ok(())
}

async fn overwrite(scene: Arc<Scene>, origin: Client) -> Result<()> {
    let mut pace = tokio::time::interval(WRITE_EVERY);
    let mut random = StdRng::seed_from_u64(0);
    while !scene.over.load(Ordering::Relaxed) {
        pace.tick().await;
        scene.write(&origin, random.random_range(0..OBJECTS.len())).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_dataset_is_never_stale_and_never_mixed() -> Result<()> {
    check("strict", Duration::ZERO, scaled(2_500, 50_000)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dataset_within_two_seconds_is_no_older_and_never_mixed() -> Result<()> {
    check("2s", Duration::from_secs(2), scaled(2_500, 50_000)).await
}
