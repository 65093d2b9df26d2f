//! One test for each way in which foyer would silently break a cache.

use super::Pool;
use super::health::State;
use super::layout::{Layout, stored_bytes};
use crate::directory::takes_direct_io;
use crate::metrics::{Cause, Metrics};
use crate::store::spawner;
use futures_util::FutureExt;
use futures_util::future::join_all;
use larder_model::{Block, BlockKey, Budget, Load, PoolName, PoolSpec, Reserve, Stored, Tier};
use prometheus::Registry;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIB: u32 = 1 << 10;
pub(super) const MIB: u32 = 1 << 20;

/// A pool in a folder, with what is needed to look behind it.
pub(super) struct Bench {
    folder: PathBuf,
    /// Removes it, where the bench made it.
    _own: Option<tempfile::TempDir>,
    spec: PoolSpec,
    budget: Budget,
}

impl Bench {
    pub(super) fn new(memory_bytes: u64, disk_bytes: u64, max_block_bytes: u32) -> Self {
        let own = tempfile::tempdir().unwrap();
        let bench = Self::at(own.path(), memory_bytes, disk_bytes, max_block_bytes);
        Self { _own: Some(own), ..bench }
    }

    /// In a folder that is there.
    pub(super) fn at(folder: &Path, memory_bytes: u64, disk_bytes: u64, longest: u32) -> Self {
        let name = PoolName::shared();
        let spec = PoolSpec { name, memory_bytes, disk_bytes, max_block_bytes: longest };
        Self { folder: folder.to_owned(), _own: None, spec, budget: Budget::new(1 << 30) }
    }

    pub(super) async fn open(&self) -> Arc<Pool> {
        let folder = self.folder.as_path();
        let direct = takes_direct_io(&self.spec.name, folder).unwrap();
        let metrics = Metrics::new(&Registry::new()).unwrap().pool(&self.spec.name);
        let disk = Some((folder, direct));
        let spawner = spawner(1).unwrap();
        let (spec, budget) = (self.spec.clone(), self.budget.clone());
        Pool::open(spec, disk, budget, metrics, &spawner).await.unwrap()
    }

    fn layout(&self) -> Layout {
        Layout::new(&self.spec).unwrap()
    }

    pub(super) fn regions(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|file| file.to_str().unwrap().contains("foyer-storage"))
            .collect();
        files.sort();
        files
    }

    /// Regions into which something was written.
    fn touched(&self) -> usize {
        self.regions().iter().filter(|file| fs::metadata(file).unwrap().blocks() > 0).count()
    }
}

pub(super) fn key(number: u64) -> BlockKey {
    // Like the digests of real keys: all bits differ.
    let mut rng = SmallRng::seed_from_u64(number);
    BlockKey::from_bits(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

fn data(number: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    SmallRng::seed_from_u64(!number).fill_bytes(&mut bytes);
    bytes
}

pub(super) fn block(number: u64, len: u32) -> Block {
    Block::seal(key(number), &[data(number, len).into()], Reserve::none())
}

/// Stores all of them at once.
pub(super) async fn store_all(pool: &Pool, numbers: impl Iterator<Item = u64>, len: u32) {
    let stored = join_all(numbers.map(|number| pool.store(block(number, len)))).await;
    assert!(stored.iter().all(|stored| *stored == Stored::Kept));
}

/// The tier that the block came from, when it came, byte for byte.
pub(super) async fn found(pool: &Pool, number: u64, len: u32) -> Option<Tier> {
    match pool.load(key(number)).await {
        Load::Hit(block, tier) => {
            assert_eq!(block.data(), data(number, len), "block {number} has other bytes");
            Some(tier)
        }
        _ => None,
    }
}

/// Waits until the pool's device is in use again.
pub(super) async fn normal(pool: &Pool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while pool.metrics.current_state() != State::Normal as i64 {
        assert!(Instant::now() < deadline, "the device is not back in use");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn missing(pool: &Pool, numbers: impl Iterator<Item = u64>, len: u32) -> Vec<u64> {
    let mut missing = Vec::new();
    for number in numbers {
        if found(pool, number, len).await.is_none() {
            missing.push(number);
        }
    }
    missing
}

/// Of the present life of the pool's engine.
fn statistics(pool: &Pool) -> Arc<foyer::Statistics> {
    let life = pool.disk.as_ref().unwrap().guard.life().unwrap();
    life.inner.device().statistics().clone()
}

fn written(pool: &Pool) -> usize {
    statistics(pool).disk_write_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_configured_block_reaches_the_ssd() {
    for len in [16 * MIB, 16 * MIB - 1, 5 * MIB + 3] {
        let bench = Bench::new(0, 64 << 20, 16 * MIB);
        let pool = bench.open().await;
        assert_eq!(pool.store(block(1, len)).await, Stored::Kept);
        pool.cache.memory().evict_all();
        assert_eq!(found(&pool, 1, len).await, Some(Tier::Disk));
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_longer_than_the_pool_takes_is_refused_and_counted() {
    let bench = Bench::new(1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    assert_eq!(pool.store(block(1, MIB + 1)).await, Stored::Dropped);
    assert_eq!(pool.metrics.counted(Cause::Oversize), 1);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_far_above_the_queue_is_kept_in_full_and_found_after_a_restart() {
    let (count, len) = (1600, 64 * KIB);
    let bench = Bench::new(1 << 20, 128 << 20, 64 * KIB);
    assert!(u64::from(len) * count > 2 * bench.layout().buffer);
    let pool = bench.open().await;
    store_all(&pool, 0..count, len).await;
    assert_eq!(missing(&pool, 0..count, len).await, [0; 0]);
    pool.close().await;
    drop(pool);

    let pool = bench.open().await;
    let keys: Vec<_> = (0..count + 1).map(key).collect();
    let there = pool.adopt(&keys);
    assert_eq!(there.iter().filter(|there| **there).count() as u64, count);
    assert!(!there[count as usize], "a block that was never stored");
    assert_eq!(missing(&pool, 0..count, len).await, [0; 0]);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn blocks_stored_by_many_threads_at_once_are_all_found_after_a_restart() {
    let (threads, each, len) = (8, 1000, 500);
    let bench = Bench::new(1 << 20, 64 << 20, 64 * KIB);
    let pool = bench.open().await;
    let storing: Vec<_> = (0..threads)
        .map(|thread| {
            let pool = pool.clone();
            tokio::spawn(async move {
                store_all(&pool, thread * each..(thread + 1) * each, len).await;
            })
        })
        .collect();
    for thread in storing {
        thread.await.unwrap();
    }
    pool.close().await;
    drop(pool);
    let pool = bench.open().await;
    let keys: Vec<_> = (0..threads * each).map(key).collect();
    let lost = pool.adopt(&keys).iter().filter(|there| !**there).count();
    assert_eq!(lost, 0, "of {}", keys.len());
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_is_in_memory_from_the_first_poll() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    let mut storing = Box::pin(pool.store(block(1, MIB)));
    let first = storing.as_mut().now_or_never();
    assert!(first.is_none(), "confirmed before the SSD could answer");
    assert!(pool.peek(key(1)).is_some());
    assert_eq!(found(&pool, 1, MIB).await, Some(Tier::Memory));
    assert_eq!(storing.await, Stored::Kept);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_write_nothing_to_the_ssd() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..1, MIB).await;
    pool.cache.storage().wait().await;
    let before = written(&pool);
    for _ in 0..20 {
        assert_eq!(found(&pool, 0, MIB).await, Some(Tier::Memory));
    }
    for _ in 0..20 {
        pool.cache.memory().evict_all();
        assert_eq!(found(&pool, 0, MIB).await, Some(Tier::Disk));
        assert_eq!(found(&pool, 0, MIB).await, Some(Tier::Memory), "a disk hit is promoted");
    }
    pool.cache.memory().evict_all();
    pool.cache.storage().wait().await;
    assert_eq!(written(&pool), before);
    let statistics = statistics(&pool);
    pool.close().await;
    assert_eq!(statistics.disk_write_bytes(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storing_a_resident_block_again_writes_nothing() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..1, MIB).await;
    let before = written(&pool);
    store_all(&pool, 0..1, MIB).await;
    pool.cache.storage().wait().await;
    assert_eq!(written(&pool), before);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_takes_the_bytes_that_stored_bytes_says() {
    for len in [1, 4000, 4004, 4005, 4096, 100_000, MIB, 8 * MIB] {
        let bench = Bench::new(0, 256 << 20, 8 * MIB);
        let pool = bench.open().await;
        assert_eq!(pool.store(block(1, len)).await, Stored::Kept);
        pool.cache.storage().wait().await;
        // The entry, and the index page before it.
        assert_eq!(written(&pool) as u64, pool.stored_bytes(len) + 4096, "{len} bytes");
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_holds_a_whole_number_of_the_largest_blocks() {
    let bench = Bench::new(0, 64 << 20, MIB);
    let fit = (bench.layout().region - 4096) / stored_bytes(MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..fit, MIB).await;
    assert_eq!(bench.touched(), 1);
    store_all(&pool, fit..fit + 1, MIB).await;
    assert_eq!(bench.touched(), 2);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn residents_survive_the_churn_of_others_in_the_same_pool_and_a_restart_after_it() {
    let len = 60 * KIB;
    let bench = Bench::new(0, 32 << 20, 64 * KIB);
    let pool = bench.open().await;
    let device = bench.layout().region * bench.layout().regions;
    let churn = 4 * device / stored_bytes(len);
    let mut quiet = Vec::new();
    for first in (0..churn).step_by(100) {
        store_all(&pool, first..first + 100, len).await;
        // Few in each region, so that every reclaim meets some.
        let stays = if quiet.len() < 200 { 10 } else { 0 };
        quiet.extend(first..first + stays);
        (first + stays..first + 100).for_each(|number| pool.remove(key(number)));
    }
    let disk = pool.disk.as_ref().unwrap();
    assert!(disk.rewrite.bytes() > 0, "no resident's region was ever reclaimed");
    pool.cache.memory().evict_all();
    assert_eq!(missing(&pool, quiet.iter().copied(), len).await, [0; 0]);
    assert_eq!(found(&pool, churn - 1, len).await, None, "a removed block");
    pool.close().await;
    drop(pool);

    let pool = bench.open().await;
    let keys: Vec<_> = quiet.iter().map(|number| key(*number)).collect();
    let there = pool.adopt(&keys);
    assert_eq!(there.iter().filter(|there| !**there).count(), 0, "lost by the restart");
    assert_eq!(missing(&pool, quiet.iter().copied(), len).await, [0; 0]);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn residents_that_were_read_into_memory_survive_the_reclaiming_of_their_region() {
    let len = 60 * KIB;
    let bench = Bench::new(16 << 20, 32 << 20, 64 * KIB);
    let pool = bench.open().await;
    let device = bench.layout().region * bench.layout().regions;
    let churn = 4 * device / stored_bytes(len);
    let mut quiet = Vec::new();
    for first in (0..churn).step_by(100) {
        store_all(&pool, first..first + 100, len).await;
        // Few in each region, so that every reclaim meets some.
        let stays = if quiet.len() < 200 { 10 } else { 0 };
        quiet.extend(first..first + stays);
        (first + stays..first + 100).for_each(|number| pool.remove(key(number)));
        // In memory they are copies of what was read, all the while.
        pool.cache.memory().evict_all();
        assert_eq!(missing(&pool, quiet.iter().copied(), len).await, [0; 0]);
    }
    assert!(pool.disk.as_ref().unwrap().rewrite.bytes() > 0, "their region was never reclaimed");
    pool.cache.memory().evict_all();
    assert_eq!(missing(&pool, quiet.into_iter(), len).await, [0; 0]);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_share_is_never_squeezed_out_while_blocks_are_replaced() {
    let bench = Bench::new(0, 48 << 20, 256 * KIB);
    let pool = bench.open().await;
    let mut rng = SmallRng::seed_from_u64(7);
    let mut residents: Vec<(u64, u32)> = Vec::new();
    let (mut next, mut bytes, mut total) = (0, 0, 0);
    let device = bench.layout().region * bench.layout().regions;
    while total < 4 * device {
        let mut batch = Vec::new();
        for _ in 0..16 {
            let len = rng.random_range(1..=256 * KIB);
            batch.push((next, len));
            next += 1;
            bytes += stored_bytes(len);
            total += stored_bytes(len);
        }
        while bytes > bench.spec.disk_bytes {
            let (victim, len) = residents.swap_remove(rng.random_range(0..residents.len()));
            pool.remove(key(victim));
            bytes -= stored_bytes(len);
        }
        let stored = join_all(batch.iter().map(|(n, len)| pool.store(block(*n, *len)))).await;
        assert!(stored.iter().all(|stored| *stored == Stored::Kept), "{stored:?}");
        residents.extend(batch);
    }
    pool.cache.memory().evict_all();
    let mut lost = 0;
    for (number, len) in &residents {
        lost += u64::from(found(&pool, *number, *len).await.is_none());
    }
    assert_eq!(lost, 0, "of {}", residents.len());
    pool.close().await;
    drop(pool);

    let pool = bench.open().await;
    let keys: Vec<_> = residents.iter().map(|(number, _)| key(*number)).collect();
    let there = pool.adopt(&keys);
    let lost = there.iter().filter(|there| !**there).count();
    assert_eq!(lost, 0, "of {} by the restart", residents.len());
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_nobody_adopts_make_room() {
    let len = 60 * KIB;
    let bench = Bench::new(0, 32 << 20, 64 * KIB);
    let pool = bench.open().await;
    let fit = bench.spec.disk_bytes / stored_bytes(len);
    store_all(&pool, 0..fit, len).await;
    pool.close().await;
    drop(pool);
    let pool = bench.open().await;
    let adopted = 0..fit / 8;
    assert!(pool.adopt(&adopted.clone().map(key).collect::<Vec<_>>()).iter().all(|there| *there));
    assert!(pool.contains(key(fit - 1)), "found, but nobody wants it");
    let new = fit..2 * fit - fit / 8;
    store_all(&pool, new.clone(), len).await;
    pool.cache.memory().evict_all();
    assert_eq!(missing(&pool, adopted.chain(new), len).await, [0; 0]);
    let gone = missing(&pool, fit / 8..fit, len).await;
    assert!(!gone.is_empty(), "the device is longer than this test thinks");
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_a_reader_holds_is_counted_after_its_eviction() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..1, MIB).await;
    pool.cache.memory().evict_all();
    assert_eq!(bench.budget.used(), 0);
    let Load::Hit(held, Tier::Disk) = pool.load(key(0)).await else { panic!("not on the SSD") };
    let slice = held.data().slice(10..20);
    drop(held);
    pool.cache.memory().evict_all();
    pool.cache.storage().wait().await;
    assert_eq!(pool.cache.memory().usage(), 0);
    assert_eq!(bench.budget.used(), Block::sealed_bytes(MIB as usize) as u64);
    drop(slice);
    // foyer's own task may still be letting go of it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.budget.used() != 0 {
        assert!(Instant::now() < deadline, "{} bytes are still counted", bench.budget.used());
        tokio::task::yield_now().await;
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_are_opened_for_direct_io() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let direct = takes_direct_io(&bench.spec.name, &bench.folder).unwrap();
    let pool = bench.open().await;
    let regions = bench.regions();
    let mut seen = 0;
    for fd in fs::read_dir("/proc/self/fd").unwrap() {
        let fd = fd.unwrap();
        if !fs::read_link(fd.path()).is_ok_and(|file| regions.contains(&file)) {
            continue;
        }
        let name = fd.file_name();
        let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(name)).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let flags = i32::from_str_radix(flags, 8).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::DIRECT.bits() as i32 != 0, direct);
        seen += 1;
    }
    assert_eq!(seen as u64, bench.layout().regions);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_block_is_gone_and_can_come_back() {
    let bench = Bench::new(8 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    for _ in 0..5 {
        store_all(&pool, 0..3, MIB).await;
        pool.remove(key(1));
        assert_eq!(found(&pool, 1, MIB).await, None);
        assert!(!pool.contains(key(1)));
        assert_eq!(missing(&pool, [0, 2].into_iter(), MIB).await, [0; 0]);
    }
    store_all(&pool, 1..2, MIB).await;
    pool.close().await;
    drop(pool);
    let pool = bench.open().await;
    assert_eq!(pool.adopt(&[key(1)]), [true]);
    assert_eq!(found(&pool, 1, MIB).await, Some(Tier::Disk));
    pool.close().await;
}

/// Flips one bit in each 4 KiB page of the given regions.
fn flip(files: &[PathBuf], rng: &mut SmallRng) {
    for path in files {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        for page in 0..file.metadata().unwrap().len() / 4096 {
            let at = page * 4096 + rng.random_range(0..4096);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            byte[0] ^= 1 << rng.random_range(0..8);
            file.write_all_at(&byte, at).unwrap();
        }
        file.sync_all().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_are_corrupt_and_counted_and_never_served() {
    let bench = Bench::new(0, 64 << 20, 256 * KIB);
    let pool = bench.open().await;
    let count = 40;
    store_all(&pool, 0..count, 200 * KIB).await;
    pool.cache.memory().evict_all();
    flip(&bench.regions(), &mut SmallRng::seed_from_u64(1));
    for number in 0..count {
        assert!(matches!(pool.load(key(number)).await, Load::Corrupt), "block {number}");
        assert!(matches!(pool.load(key(number)).await, Load::Miss), "block {number}, again");
    }
    assert_eq!(pool.metrics.counted(Cause::Corrupt), count);
    // Nothing is written to a device that lies so often; after a while the place is good again.
    assert_eq!(pool.store(block(count, 200 * KIB)).await, Stored::Dropped);
    assert_eq!(pool.metrics.counted(Cause::Down), 1);
    normal(&pool).await;
    store_all(&pool, 0..count, 200 * KIB).await;
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_flipped_while_closed_are_never_served_either() {
    let bench = Bench::new(0, 64 << 20, 256 * KIB);
    for seed in 0..5 {
        let pool = bench.open().await;
        store_all(&pool, 0..40, 200 * KIB).await;
        pool.close().await;
        drop(pool);
        let mut rng = SmallRng::seed_from_u64(seed);
        let regions = bench.regions();
        // Pages of about one block in five.
        for path in &regions {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let end = file.metadata().unwrap().len() - 8192;
            for entry in (0..end).step_by(5 * 208 * KIB as usize) {
                let mut byte = [0];
                file.read_exact_at(&mut byte, entry + 5000).unwrap();
                byte[0] ^= 1 << rng.random_range(0..8);
                file.write_all_at(&byte, entry + 5000).unwrap();
            }
        }
        let pool = bench.open().await;
        let keys: Vec<_> = (0..40).map(key).collect();
        pool.adopt(&keys);
        let missing = missing(&pool, 0..40, 200 * KIB).await;
        assert!(!missing.is_empty() && missing.len() < 40, "{missing:?}");
        assert_eq!(pool.metrics.counted(Cause::Corrupt), missing.len() as u64);
        missing.iter().for_each(|number| assert!(!pool.contains(key(*number))));
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_swapped_on_the_ssd_are_corrupt() {
    let bench = Bench::new(0, 64 << 20, MIB);
    let pool = bench.open().await;
    for number in 0..2 {
        store_all(&pool, number..number + 1, MIB).await;
    }
    pool.cache.memory().evict_all();
    let entry = stored_bytes(MIB);
    let file = OpenOptions::new().read(true).write(true).open(&bench.regions()[0]).unwrap();
    let (mut one, mut other) = (vec![0; entry as usize], vec![0; entry as usize]);
    file.read_exact_at(&mut one, 4096).unwrap();
    file.read_exact_at(&mut other, 4096 + entry).unwrap();
    file.write_all_at(&other, 4096).unwrap();
    file.write_all_at(&one, 4096 + entry).unwrap();
    assert!(matches!(pool.load(key(0)).await, Load::Corrupt));
    assert!(matches!(pool.load(key(1)).await, Load::Corrupt));
    assert_eq!(pool.metrics.counted(Cause::Corrupt), 2);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_region_fails_and_is_counted_and_is_a_miss_after_a_restart() {
    let bench = Bench::new(0, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..2, MIB).await;
    pool.cache.memory().evict_all();
    let file = OpenOptions::new().write(true).open(&bench.regions()[0]).unwrap();
    file.set_len(8192).unwrap();
    assert!(matches!(pool.load(key(0)).await, Load::Failed));
    assert_eq!(pool.metrics.counted(Cause::Io), 1);
    pool.close().await;
    drop(pool);
    let pool = bench.open().await;
    pool.adopt(&[key(0), key(1)]);
    assert_eq!(missing(&pool, 0..2, MIB).await, [0, 1]);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_in_memory_keeps_its_share() {
    let bench = Bench::new(32 << 20, 0, MIB);
    let metrics = Metrics::new(&Registry::new()).unwrap().pool(&bench.spec.name);
    let spec = bench.spec.clone();
    let pool =
        Pool::open(spec, None, bench.budget.clone(), metrics, &spawner(1).unwrap()).await.unwrap();
    assert!(!pool.persistent());
    let fit = bench.spec.memory_bytes / pool.stored_bytes(MIB);
    for round in 0..4 {
        let first = round * fit;
        store_all(&pool, first..first + fit, MIB).await;
        assert_eq!(missing(&pool, first..first + fit, MIB).await, [0; 0]);
        assert_eq!(pool.adopt(&[key(first)]), [true]);
        (first..first + fit).for_each(|number| pool.remove(key(number)));
        assert_eq!(pool.cache.memory().usage(), 0);
    }
    pool.close().await;
}
