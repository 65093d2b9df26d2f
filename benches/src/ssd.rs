//! GETs from the SSD: Larder with hardly any memory, beside direct reads of the same device.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::direct;
use crate::hot::Rounds;
use crate::larder::{Larder, Setting, signer};
use crate::load::{Requests, Tally};
use crate::process::start_own;
use crate::report::{Bar, Series, Verdicts, size_name};

/// Sizes of the objects.
pub const SIZES: [u64; 2] = [1 << 20, 8 << 20];
/// Bytes of all objects of a size: far more than the memory below.
const TOTAL: u64 = 2 << 30;
const MEMORY: &str = "32MiB";
/// The least that Larder's throughput may be of the device's.
const BAR: f64 = 0.7;
/// At most this share of the answers may be from memory for the figure to count as the SSD's.
const MOST_FROM_MEMORY: f64 = 0.05;
/// How long the cache may take until all objects are on the SSD.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// Measures, prints, and tells which bars were met. `dir` must be on the device to measure.
pub async fn run(rounds: Rounds, sizes: &[u64], dir: &Path) -> Result<Verdicts> {
    let (_origin, origin) = start_own("bare-hyper", &["--computed".into()], dir).await?;
    let setting =
        Setting { freshness: "immutable", limit: "1GiB", memory: MEMORY, disk: Some("8GiB") };
    let larder = Larder::start(origin, &setting, dir).await?;
    let path = dir.join("direct");
    let file = direct::make_file(&path, TOTAL)?;
    println!("larder is process {}\n", larder.server.pid());
    let mut verdicts = Verdicts::default();
    for size in SIZES.into_iter().filter(|size| sizes.is_empty() || sizes.contains(size)) {
        let keys: Vec<_> = (0..TOTAL / size).map(|index| format!("{size}/ssd-{index}")).collect();
        let requests = Requests::new(larder.address, &keys, Some(&signer()))?;
        settle(&requests, keys.len() as u64).await?;
        let (mut ours, mut device, mut cpu, mut memory) =
            <(Series, Series, Series, Series)>::default();
        for round in 0..rounds.count {
            let direct = |device: &mut Series| {
                let read = direct::read(&file, size as usize, rounds.connections, rounds.window);
                read.map(|rate| device.push(rate / 1e9))
            };
            if round % 2 == 0 {
                direct(&mut device)?;
            }
            let before = larder.server.cpu_seconds()?;
            let tally = requests.run(rounds.connections, rounds.window).await?;
            cpu.push((larder.server.cpu_seconds()? - before) * 1e9 / tally.bytes as f64);
            memory.push(from_ssd(&tally)?);
            ours.push(tally.bytes_per_second() / 1e9);
            if round % 2 == 1 {
                direct(&mut device)?;
            }
        }
        let ratio = ours.by(&device);
        println!("{} from the SSD, {} connections", size_name(size), rounds.connections);
        println!("  larder         {ours:.3} GB/s, CPU {:.3} s/GB", cpu.median());
        println!("  direct reads   {device:.3} GB/s");
        println!("  ratio          {ratio:.3}; share answered from memory {memory:.3}\n");
        let what = format!("{} GET from the SSD, larder by direct reads", size_name(size));
        verdicts.hold(&what, ratio.median(), Bar::AtLeast, BAR);
        // A ratio whose answers memory helped with is not the SSD's: said beside it, whatever it is.
        let what = format!("{} GET from the SSD, share answered from memory", size_name(size));
        verdicts.hold(&what, memory.max(), Bar::AtMost, MOST_FROM_MEMORY);
    }
    Ok(verdicts)
}

/// Reads every object until a whole pass needs nothing from the origin; the bytes of each pass are checked.
async fn settle(requests: &Requests, count: u64) -> Result<()> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let tally = requests.check_all().await.context("filling the SSD")?;
        let cached = tally.from_memory + tally.from_disk;
        if cached == count {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "after {SETTLE_LIMIT:?} only {cached} of {count} objects are answered from the cache"
            );
        }
    }
}

/// The share of answers from memory; an error if any was from the origin.
fn from_ssd(tally: &Tally) -> Result<f64> {
    let lost = tally.requests - tally.from_memory - tally.from_disk;
    ensure!(lost == 0, "{lost} of {} GETs went to the origin", tally.requests);
    let share = tally.from_memory as f64 / tally.requests as f64;
    Ok(share)
}
