//! How long a store takes to open with a large index on its SSD, and what the index takes in memory.
//!
//! The index is synthetic: region files without data, but with the index pages that foyer would
//! have written (`foyer-storage` 0.22.6, `engine/block/buffer.rs`), so 10 million blocks take a
//! quarter of a GiB of real disk and no hour to write.
//!
//! `cargo run --release -p larder-benches --bin index -- --blocks 10000000 --bytes 4000`

use anyhow::{Context, ensure};
use clap::Parser;
use larder_model::{BlockKey, BlockStore, Budget, PoolName, PoolSpec};
use larder_store::{HybridStore, StoreConfig, device_bytes};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use twox_hash::XxHash64;

const PAGE: u64 = 4096;
/// foyer's header and key around a block, and an entry of its index page.
const AROUND: u64 = 36 + 16;
const ENTRY: usize = 24;
const ENTRIES: usize = (PAGE as usize - 12) / ENTRY;
/// As the engine asks.
const ADOPT_BATCH: usize = 16_384;

/// Measure the opening of a store with many blocks.
#[derive(Parser)]
struct Arguments {
    /// Blocks in the index.
    #[arg(long, default_value_t = 51_200)]
    blocks: u64,
    /// Bytes of data of each block.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u32,
    /// Where to make the cache directory; it must support sparse files.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn key(number: u64) -> BlockKey {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    BlockKey::from_bits(mixed ^ mixed >> 64)
}

fn config(path: &Path, pool: &PoolSpec) -> StoreConfig {
    StoreConfig {
        path: Some(path.to_owned()),
        reserve: false,
        pools: vec![pool.clone()],
        budget: Budget::new(1 << 30),
        registry: prometheus::Registry::new(),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { blocks, bytes, dir } = Arguments::parse();
    let base = dir.unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::tempdir_in(&base).with_context(|| format!("in {}", base.display()))?;
    let stored = stored_bytes(bytes);
    let name = PoolName::shared();
    let pool = PoolSpec {
        name: name.clone(),
        memory_bytes: 0,
        disk_bytes: blocks * stored,
        max_block_bytes: bytes,
    };
    // Makes the folder and the files.
    HybridStore::open(config(dir.path(), &pool)).await?.close().await;
    let folder = dir.path().join("pools").join(name.as_str());
    let written = write_indexes(&folder, blocks, stored)?;
    println!(
        "{blocks} blocks of {bytes} bytes: {:.1} GiB on the SSD, {written} index pages, files of {:.1} GiB",
        gib(blocks * stored),
        gib(device_bytes(&pool))
    );

    let before = resident()?;
    let started = Instant::now();
    let store = HybridStore::open(config(dir.path(), &pool)).await?;
    let opened = started.elapsed();
    let after_open = resident()?;
    let started = Instant::now();
    let (mut there, mut number, mut longest) = (0, 0, 0.0_f64);
    while number < blocks {
        let end = blocks.min(number + ADOPT_BATCH as u64);
        let keys = (number..end).map(key).collect();
        let batch = Instant::now();
        let found = store.adopt(&name, keys).await;
        longest = longest.max(batch.elapsed().as_secs_f64());
        there += found.iter().filter(|there| **there).count() as u64;
        number = end;
    }
    let adopted = started.elapsed();
    let after_adopt = resident()?;
    ensure!(there == blocks, "only {there} of {blocks} blocks were found");
    println!(
        "open   {:7.3} s  {:6.1} bytes of memory a block",
        opened.as_secs_f64(),
        per(after_open.saturating_sub(before), blocks)
    );
    println!(
        "adopt  {:7.3} s  {:6.1} bytes of memory a block, longest batch {:.1} ms",
        adopted.as_secs_f64(),
        per(after_adopt.saturating_sub(after_open), blocks),
        longest * 1e3
    );
    println!(
        "resident {:.0} MiB before, {:.0} MiB after",
        before as f64 / 1e6,
        after_adopt as f64 / 1e6
    );
    store.close().await;
    Ok(())
}

/// Bytes that a block takes on the SSD, as `larder-store` counts them.
fn stored_bytes(len: u32) -> u64 {
    let sealed = larder_model::Block::sealed_bytes(len as usize) as u64;
    (AROUND + sealed).next_multiple_of(PAGE)
}

/// Fills the region files one after the other with index pages; tells how many there are.
fn write_indexes(folder: &Path, blocks: u64, stored: u64) -> anyhow::Result<u64> {
    let mut regions: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.to_string_lossy().contains("foyer-storage"))
        .collect();
    regions.sort();
    let (mut next, mut pages) = (0, 0);
    for region in regions {
        let file = OpenOptions::new().write(true).open(region)?;
        let len = file.metadata()?.len();
        let mut at = 0;
        while next < blocks {
            let fit = (len.saturating_sub(at + PAGE) / stored).min(ENTRIES as u64);
            let count = fit.min(blocks - next);
            if count == 0 {
                break;
            }
            file.write_all_at(&page(next, count, stored), at)?;
            at += PAGE + count * stored;
            next += count;
            pages += 1;
        }
    }
    ensure!(next == blocks, "the regions hold only {next} blocks");
    Ok(pages)
}

fn page(first: u64, count: u64, stored: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    page[8..12].copy_from_slice(&(count as u32).to_be_bytes());
    for slot in 0..count {
        let entry = &mut page[12 + slot as usize * ENTRY..][..ENTRY];
        entry[..8].copy_from_slice(&key(first + slot).hash64().to_be_bytes());
        entry[8..16].copy_from_slice(&(first + slot + 1).to_be_bytes());
        let offset = PAGE + slot * stored;
        entry[16..20].copy_from_slice(&(offset as u32).to_be_bytes());
        entry[20..24].copy_from_slice(&(stored as u32).to_be_bytes());
    }
    let checksum = XxHash64::oneshot(0, &page[8..]);
    page[..8].copy_from_slice(&checksum.to_be_bytes());
    page
}

/// Resident memory of this process, in bytes.
fn resident() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 30) as f64
}

fn per(bytes: u64, blocks: u64) -> f64 {
    bytes as f64 / blocks as f64
}
