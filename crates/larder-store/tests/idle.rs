//! Alone in its process, so that the processor time measured is the store's.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use larder_model::{Block, BlockKey, BlockStore, Budget, PoolName, PoolSpec, Reserve, Stored};
use larder_store::{HybridStore, StoreConfig};
use prometheus::Registry;
use std::time::Duration;

/// Processor time of this process so far, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is the name in parentheses; user and system time are the 14th and 15th.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_uses_no_processor() {
    let dir = tempfile::tempdir().unwrap();
    let name = PoolName::shared();
    let pool = PoolSpec {
        name: name.clone(),
        memory_bytes: 8 << 20,
        disk_bytes: 64 << 20,
        max_block_bytes: 1 << 20,
    };
    let store = HybridStore::open(StoreConfig {
        path: Some(dir.path().to_owned()),
        reserve: false,
        pools: vec![pool],
        budget: Budget::new(1 << 30),
        registry: Registry::new(),
    });
    let store = store.await.unwrap();
    for number in 0..10 {
        let key = BlockKey::from_bits(number);
        let block = Block::seal(key, &[vec![1; 1 << 20].into()], Reserve::none());
        assert_eq!(store.store(&name, block).await, Stored::Kept);
    }
    let before = ticks();
    // The measure is over time: there is nothing to poll for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = ticks() - before;
    // io_uring's engine took 187 in two seconds.
    assert!(used <= 10, "{used} ticks of 10 ms in 2 s");
    store.close().await;
}
