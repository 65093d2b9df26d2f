//! How close SSD reads through the store come to raw direct reads of the same files, and how long
//! a confirmation takes. `cargo run --release -p larder-store --example reads [DIRECTORY]`

use larder_model::{Block, BlockKey, BlockStore, Budget, Load, PoolName, PoolSpec, Reserve};
use larder_store::{HybridStore, StoreConfig, device_bytes};
use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;
const BYTES: u64 = 512 << 20;

fn key(number: u64) -> BlockKey {
    BlockKey::from_bits(u128::from(number + 1) << 64)
}

/// MB/s of reading whole regions with direct I/O, `len` at a time, one after the other.
fn raw(folder: &Path, len: usize, limit: u64) -> Result<f64, Failure> {
    let mut space = vec![0; len + 4096];
    let skip = space.as_ptr().align_offset(4096);
    let (mut read, started) = (0, Instant::now());
    let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|file| file.path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.to_string_lossy().contains("foyer")) {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
        let mut at = 0;
        while read < limit && at + len as u64 <= file.metadata()?.len() {
            let slice = &mut space[skip..skip + len];
            at += rustix::io::pread(file.as_fd(), slice, at)? as u64;
            read += len as u64;
        }
    }
    Ok(read as f64 / started.elapsed().as_secs_f64() / 1e6)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let base = std::env::args().nth(1).unwrap_or_else(|| "target".to_owned());
    for len in [1_u32 << 20, 8 << 20] {
        let folder = Path::new(&base).join("larder-reads");
        let _ = fs::remove_dir_all(&folder);
        let pool = PoolName::shared();
        let spec = PoolSpec {
            name: pool.clone(),
            memory_bytes: 0,
            disk_bytes: BYTES + BYTES / 8,
            max_block_bytes: len,
        };
        println!(
            "blocks of {len}: device {:.3} of the share",
            device_bytes(&spec) as f64 / spec.disk_bytes as f64
        );
        let config = StoreConfig {
            path: Some(folder.clone()),
            reserve: false,
            pools: vec![spec],
            budget: Budget::new(1 << 30),
            registry: prometheus::Registry::new(),
        };
        let store = HybridStore::open(config).await?;
        let blocks = BYTES / u64::from(len);
        let mut waits = Vec::new();
        let started = Instant::now();
        for number in 0..blocks {
            let data = vec![number as u8; len as usize].into();
            let stored = Instant::now();
            store.store(&pool, Block::seal(key(number), &[data], Reserve::none())).await;
            waits.push(stored.elapsed());
        }
        let rate = BYTES as f64 / started.elapsed().as_secs_f64() / 1e6;
        waits.sort();
        let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        println!("  one store after the other: {rate:.0} MB/s, median {median:?}, worst {worst:?}");
        let regions = folder.join("pools").join(pool.as_str());
        let limit = BYTES / u64::from(len) * u64::from(len);
        for round in 0..5 {
            let direct = raw(&regions, len as usize, limit)?;
            let one = read(&store, &pool, blocks, len, 1).await;
            let four = read(&store, &pool, blocks, len, 4).await;
            println!(
                "  round {round}: raw {direct:.0} MB/s, one reader {one:.0} ({:.2}), four {four:.0} ({:.2})",
                one / direct,
                four / direct
            );
        }
        store.close().await;
        drop(store);
        tokio::time::sleep(Duration::from_millis(50)).await;
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// MB/s of loading every block, `ahead` at a time.
async fn read(store: &HybridStore, pool: &PoolName, blocks: u64, len: u32, ahead: u64) -> f64 {
    let started = Instant::now();
    for first in (0..blocks).step_by(ahead as usize) {
        let loads =
            (first..(first + ahead).min(blocks)).map(|number| store.load(pool, key(number)));
        for found in futures_util::future::join_all(loads).await {
            if !matches!(found, Load::Hit(..)) {
                println!("  missing: {found:?}");
            }
        }
    }
    blocks as f64 * f64::from(len) / started.elapsed().as_secs_f64() / 1e6
}
