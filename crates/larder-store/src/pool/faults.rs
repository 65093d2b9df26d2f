//! Devices that fail: what the pool promises then is misses, counted under their cause, and nothing
//! that a client would have to wait for.

mod device;

use super::health::State;
use super::tests::{Bench, MIB, block, found, key, normal, store_all};
use super::{Pool, READ_PATIENCE, Stored};
use crate::metrics::Cause;
use device::{Device, Fault};
use futures_util::future::join_all;
use larder_model::{Load, Tier};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(40);

fn state(pool: &Pool) -> i64 {
    pool.metrics.current_state()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Says that a test cannot be run here; fails where all of them must be.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}: CI needs it");
    println!("skipped: {why}");
}

/// What a fault calls for.
struct Row {
    fault: Fault,
    /// The state that it leads to, once blocks were loaded and stored.
    state: State,
    /// Under which cause it is counted, beside others perhaps.
    cause: Cause,
    /// Whether the blocks of before can be read during the fault, and after it.
    read: (bool, bool),
}

const TABLE: [Row; 10] = {
    use {Cause as C, Fault as F, State as S};
    const fn row(fault: Fault, state: State, cause: Cause, read: (bool, bool)) -> Row {
        Row { fault, state, cause, read }
    }
    [
        row(F::ReadErrors, S::Down, C::Io, (false, true)),
        row(F::WriteErrors, S::Down, C::Io, (true, true)),
        row(F::Errors, S::Down, C::Io, (false, true)),
        row(F::NoSpace, S::Unstable, C::NoSpace, (true, true)),
        row(F::ReadOnly, S::Unstable, C::NoSpace, (true, true)),
        row(F::HangingReads, S::Down, C::Timeout, (false, true)),
        row(F::HangingWrites, S::Down, C::Timeout, (true, true)),
        row(F::FlippedBits, S::Unstable, C::Corrupt, (false, false)),
        row(F::Swapped, S::Unstable, C::Corrupt, (false, false)),
        row(F::CutReads, S::Unstable, C::Io, (false, true)),
    ]
};

const BLOCKS: u64 = 40;

/// Loads all blocks at once; tells how many were hits. Any other byte fails the test.
async fn load_all(pool: &Pool, fault: Fault) -> u64 {
    let hits = join_all((0..BLOCKS).map(async |number| {
        let started = Instant::now();
        let hit = found(pool, number, MIB).await.is_some();
        let bound = READ_PATIENCE + Duration::from_secs(2);
        assert!(started.elapsed() < bound, "{fault:?}: a load took {:?}", started.elapsed());
        hit
    }));
    hits.await.into_iter().map(u64::from).sum()
}

async fn check(row: &Row, device: &Device) {
    let Row { fault, state: expected, cause, read } = *row;
    let bench = Bench::at(device.path(), 1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..BLOCKS, MIB).await;
    pool.cache.memory().evict_all();
    assert_eq!(pool.metrics.counted(cause), 0, "{fault:?}");

    device.set(fault);
    let hits = load_all(&pool, fault).await;
    assert_eq!(hits, if read.0 { BLOCKS } else { 0 }, "{fault:?}");
    let started = Instant::now();
    let stored = join_all((100..104).map(|number| pool.store(block(number, MIB)))).await;
    assert!(started.elapsed() < PATIENCE, "{fault:?}: stores took {:?}", started.elapsed());
    assert!(stored.iter().all(|stored| *stored == Stored::Dropped), "{fault:?}");
    until(&format!("{fault:?} leads to {expected:?}"), || state(&pool) == expected as i64).await;
    until(&format!("{fault:?} is counted as {cause:?}"), || pool.metrics.counted(cause) > 0).await;
    // Nobody waits for it any more.
    let started = Instant::now();
    assert_eq!(pool.store(block(200, MIB)).await, Stored::Dropped, "{fault:?}");
    if expected == State::Down {
        assert!(matches!(pool.load(key(0)).await, Load::Failed), "{fault:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{fault:?}");

    device.set(Fault::None);
    normal(&pool).await;
    pool.cache.memory().evict_all();
    let hits = load_all(&pool, fault).await;
    assert_eq!(hits, if read.1 { BLOCKS } else { 0 }, "after {fault:?}");
    store_all(&pool, 300..340, MIB).await;
    pool.cache.memory().evict_all();
    for number in 300..340 {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "after {fault:?}");
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_costs_misses_that_are_counted_and_is_over_when_it_is_over() {
    if Device::mount().is_none() {
        return skip("FUSE cannot be mounted (not root?)");
    }
    join_all(TABLE.iter().map(async |row| {
        let device = Device::mount().unwrap();
        check(row, &device).await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_closed_while_its_device_hangs() {
    for fault in [Fault::HangingReads, Fault::HangingWrites] {
        let Some(device) = Device::mount() else {
            return skip("FUSE cannot be mounted (not root?)");
        };
        let bench = Bench::at(device.path(), 1 << 20, 64 << 20, MIB);
        let pool = bench.open().await;
        store_all(&pool, 0..8, MIB).await;
        pool.cache.memory().evict_all();
        device.set(fault);
        let under_way = tokio::spawn({
            let pool = pool.clone();
            async move { (pool.load(key(0)).await, pool.store(block(9, MIB)).await) }
        });
        until("something hangs", || device.hangs()).await;
        let started = Instant::now();
        pool.close().await;
        assert!(started.elapsed() < Duration::from_secs(30), "{fault:?}: {:?}", started.elapsed());
        device.set(Fault::None);
        under_way.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failed_write_costs_no_block_that_was_kept_and_little_time() {
    let Some(device) = Device::mount() else {
        return skip("FUSE cannot be mounted (not root?)");
    };
    let bench = Bench::at(device.path(), 1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    let mut kept = Vec::new();
    for round in 0..3 {
        let numbers = round * 10..(round + 1) * 10;
        store_all(&pool, numbers.clone(), MIB).await;
        kept.extend(numbers);
        device.set(Fault::WriteErrors);
        let stored = pool.store(block(1000 + round, MIB)).await;
        device.set(Fault::None);
        assert_eq!(stored, Stored::Dropped);
        normal(&pool).await;
        until("the engine was begun anew", || pool.metrics.rebuilds() == round + 1).await;
    }
    pool.cache.memory().evict_all();
    for number in kept {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "block {number}");
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_are_begun_anew_leave_no_open_files_behind() {
    let bench = Bench::new(1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..8, MIB).await;
    let open = || {
        let regions = bench.regions();
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        links.filter(|file| regions.contains(file)).count()
    };
    assert_eq!(open(), bench.regions().len());
    for _ in 0..5 {
        pool.disk.as_ref().unwrap().guard.mend().await.unwrap();
    }
    assert_eq!(open(), bench.regions().len());
    pool.cache.memory().evict_all();
    for number in 0..8 {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "block {number}");
    }
    pool.close().await;
    until("all files are closed", || open() == 0).await;
}

/// The length of every region file, to cut them and put them back.
fn set_lengths(bench: &Bench, length: impl Fn(u64) -> u64) {
    for region in bench.regions() {
        let file = OpenOptions::new().write(true).open(region).unwrap();
        file.set_len(length(file.metadata().unwrap().len())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_lost_everything_is_left_alone_and_comes_back() {
    let bench = Bench::new(1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..24, MIB).await;
    pool.cache.memory().evict_all();
    let whole = std::fs::metadata(&bench.regions()[0]).unwrap().len();
    // Reads behind a file's end fail as reads from a broken device do.
    set_lengths(&bench, |_| 4096);
    for number in 0..24 {
        assert!(!matches!(pool.load(key(number)).await, Load::Hit(..)), "block {number}");
    }
    assert!(pool.metrics.counted(Cause::Io) >= 10);
    let refused = pool.metrics.counted(Cause::Down);
    assert!(refused > 0, "the last reads were not even tried");
    // While it is down, nothing is written either, and what is in memory is served.
    assert_eq!(pool.store(block(100, MIB)).await, Stored::Dropped);
    assert_eq!(found(&pool, 100, MIB).await, Some(Tier::Memory));
    set_lengths(&bench, |_| whole);
    normal(&pool).await;
    assert_eq!(pool.store(block(101, MIB)).await, Stored::Kept);
    pool.cache.memory().evict_all();
    assert_eq!(found(&pool, 101, MIB).await, Some(Tier::Disk));
    pool.close().await;
}

/// A tmpfs of its own; unmounted when dropped. Needs root.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Self(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_system_stops_writes_and_keeps_what_it_has_until_there_is_room() {
    let Some(tmpfs) = Tmpfs::mount(60 << 20) else {
        return skip("a tmpfs cannot be mounted (not root?)");
    };
    let others = tmpfs.path().join("others");
    std::fs::write(&others, vec![1; 36 << 20]).unwrap();
    let folder = tempfile::tempdir_in(tmpfs.path()).unwrap();
    let bench = Bench::at(folder.path(), 1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    let mut kept = 0;
    while kept < 64 && pool.store(block(kept, MIB)).await == Stored::Kept {
        kept += 1;
    }
    assert!((8..24).contains(&kept), "{kept} blocks of a MiB on 24 MiB");
    until("the want of room is counted", || pool.metrics.counted(Cause::NoSpace) > 0).await;
    assert_eq!(state(&pool), State::Unstable as i64);
    // Not even tried from now on.
    let started = Instant::now();
    assert_eq!(pool.store(block(200, MIB)).await, Stored::Dropped);
    assert!(started.elapsed() < Duration::from_secs(1));
    pool.cache.memory().evict_all();
    for number in 0..kept {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "block {number}");
    }
    std::fs::remove_file(&others).unwrap();
    normal(&pool).await;
    assert_eq!(pool.store(block(300, MIB)).await, Stored::Kept);
    pool.cache.memory().evict_all();
    for number in (0..kept).chain([300]) {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "block {number}, later");
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_removed_while_in_use_costs_nothing_until_the_restart() {
    let outer = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir_in(outer.path()).unwrap();
    let bench = Bench::at(folder.path(), 1 << 20, 64 << 20, MIB);
    let pool = bench.open().await;
    store_all(&pool, 0..8, MIB).await;
    std::fs::remove_dir_all(folder.path()).unwrap();
    pool.disk.as_ref().unwrap().health.suspect();
    until("it is noticed", || pool.metrics.counted(Cause::Gone) == 1).await;
    assert_eq!(pool.store(block(9, MIB)).await, Stored::Kept);
    pool.cache.memory().evict_all();
    for number in (0..8).chain([9]) {
        assert_eq!(found(&pool, number, MIB).await, Some(Tier::Disk), "block {number}");
    }
    pool.close().await;
    assert!(!folder.path().exists(), "it was made again");
}
