//! The store through its port: pools apart, directories guarded, kills survived.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use larder_model::{
    Block, BlockKey, BlockStore, Budget, Load, PoolName, PoolSpec, Reserve, Stored, Tier,
};
use larder_store::{HybridStore, StoreConfig, StoreError};
use prometheus::Registry;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const LEN: u32 = 256 << 10;

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn spec(name: &str, disk_bytes: u64) -> PoolSpec {
    let name = pool(name);
    PoolSpec { name, memory_bytes: 2 << 20, disk_bytes, max_block_bytes: LEN }
}

async fn open(path: &Path, pools: Vec<PoolSpec>) -> Result<HybridStore, StoreError> {
    let (budget, registry) = (Budget::new(1 << 30), Registry::new());
    let path = Some(path.to_owned());
    HybridStore::open(StoreConfig { path, reserve: false, pools, budget, registry }).await
}

fn key(number: u64) -> BlockKey {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    BlockKey::from_bits(mixed)
}

fn data(number: u64) -> Vec<u8> {
    (0..u64::from(LEN) / 8).flat_map(|word| (number << 32 | word).to_le_bytes()).collect()
}

fn block(number: u64) -> Block {
    Block::seal(key(number), &[data(number).into()], Reserve::none())
}

async fn found(store: &HybridStore, pool: &PoolName, number: u64) -> Option<Tier> {
    match store.load(pool, key(number)).await {
        Load::Hit(block, tier) => {
            assert_eq!(block.data(), data(number));
            Some(tier)
        }
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pools_do_not_touch_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let pools = || vec![spec("@shared", 16 << 20), spec("kept", 16 << 20), spec("hot", 0)];
    let store = open(dir.path(), pools()).await.unwrap();
    let (shared, kept, hot) = (pool("@shared"), pool("kept"), pool("hot"));
    for number in 0..40 {
        assert_eq!(store.store(&kept, block(number)).await, Stored::Kept);
    }
    assert_eq!(store.store(&hot, block(1)).await, Stored::Kept);
    assert!(store.persistent(&kept) && !store.persistent(&hot));
    // The same keys, and several times the device, in the neighbour.
    for number in 0..400 {
        assert_eq!(store.store(&shared, block(number)).await, Stored::Kept);
        store.remove(&shared, key(number));
    }
    for number in 0..40 {
        assert!(found(&store, &kept, number).await.is_some(), "block {number}");
        assert_eq!(found(&store, &shared, number).await, None);
    }
    assert_eq!(found(&store, &hot, 1).await, Some(Tier::Memory));
    store.close().await;

    let store = open(dir.path(), pools()).await.unwrap();
    let adopted = store.adopt(&kept, (0..40).map(key).collect()).await;
    assert_eq!(adopted, [true; 40]);
    assert_eq!(store.adopt(&hot, vec![key(1)]).await, [false]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_was_not_configured_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), vec![spec("a", 0)]).await.unwrap();
    let other = pool("b");
    assert_eq!(store.store(&other, block(1)).await, Stored::Dropped);
    assert!(store.peek(&other, key(1)).is_none() && !store.contains(&other, key(1)));
    assert!(matches!(store.load(&other, key(1)).await, Load::Miss));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_use_is_refused_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), vec![spec("a", 8 << 20)]).await.unwrap();
    let error = open(dir.path(), vec![spec("a", 8 << 20)]).await.err().unwrap();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    store.close().await;
    open(dir.path(), vec![spec("a", 8 << 20)]).await.unwrap().close().await;
}

#[tokio::test]
async fn impossible_pools_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(dir.path(), vec![spec("a", 0), spec("a", 0)]).await.err().unwrap();
    assert!(matches!(error, StoreError::Twice { .. }), "{error}");
    let (budget, registry) = (Budget::new(1), Registry::new());
    let pools = vec![spec("a", 1 << 20)];
    let config = StoreConfig { path: None, reserve: true, pools, budget, registry };
    let error = HybridStore::open(config).await;
    assert!(matches!(error, Err(StoreError::NoDirectory { .. })));
}

/// The child's part of the test below: stores blocks, tells of each that is confirmed, until it is
/// killed.
async fn store_for_ever(path: &Path) {
    let store = open(path, vec![spec("a", 64 << 20)]).await.unwrap();
    for number in 0.. {
        if store.store(&pool("a"), block(number)).await == Stored::Kept {
            println!("kept {number}");
        }
        if number >= 100 {
            store.remove(&pool("a"), key(number));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_was_confirmed() {
    const CHILD: &str = "LARDER_STORE_TEST_CHILD";
    if let Some(path) = std::env::var_os(CHILD) {
        store_for_ever(Path::new(&path)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_loses_nothing_that_was_confirmed", "--nocapture"])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut confirmed = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, number)) = line.split_once("kept ") else { continue };
        confirmed.push(number.parse::<u64>().unwrap());
        if confirmed.len() == 120 {
            child.kill().unwrap();
            break;
        }
    }
    child.wait().unwrap();
    let store = open(dir.path(), vec![spec("a", 64 << 20)]).await.unwrap();
    confirmed.retain(|number| *number < 100);
    assert_eq!(confirmed.len(), 100);
    let there = store.adopt(&pool("a"), confirmed.iter().copied().map(key).collect()).await;
    assert!(there.iter().all(|there| *there), "{there:?}");
    for number in confirmed {
        assert_eq!(found(&store, &pool("a"), number).await, Some(Tier::Disk), "block {number}");
    }
    store.close().await;
}
