//! The pools of the store, as the quotas cut them, and the memory that is left for blocks.
//!
//! Invariant: the pools' memory is `cache.memory` together at most, and the files that the store
//! makes for them are `cache.disk.capacity` together at most. Where the quotas break this, the
//! configuration is refused.

use super::{Cache, Config};
use larder_model::{Dataset, PoolName, PoolSpec};
use larder_store::{buffer_bytes, device_bytes};
use std::sync::Arc;

impl Config {
    /// The pools of this node's store.
    pub(crate) fn pools(&self) -> Vec<PoolSpec> {
        pools(&self.cache, &self.datasets)
    }

    /// The bytes of blocks that may be alive at once, in the cache's memory, in flight and in the
    /// hands of slow readers.
    pub(crate) fn block_budget_bytes(&self) -> u64 {
        block_budget_bytes(self.limits.memory_bytes, &self.pools())
    }
}

/// What is left of `memory_bytes` for blocks: 85 %, without the write buffers of the SSD. The rest
/// is for what is not counted block by block: object tables (an eighth of this budget at most),
/// sockets, the allocator's slack and the code itself.
pub(super) fn block_budget_bytes(memory_bytes: u64, pools: &[PoolSpec]) -> u64 {
    let buffers: u64 = pools.iter().map(buffer_bytes).sum();
    (memory_bytes / 100 * 85).saturating_sub(buffers)
}

/// One pool for each dataset with a quota; one for all others, of what the quotas leave.
pub(super) fn pools(cache: &Cache, datasets: &[Arc<Dataset>]) -> Vec<PoolSpec> {
    let mut pools = Vec::new();
    let mut memory_bytes = cache.memory_bytes;
    let mut room = cache.disk.as_ref().map_or(0, |disk| disk.capacity_bytes);
    for dataset in datasets {
        let Some(quota) = dataset.quota else { continue };
        let pool = PoolSpec {
            name: dataset.pool(),
            memory_bytes: quota.memory,
            disk_bytes: quota.disk,
            max_block_bytes: dataset.block_bytes,
        };
        memory_bytes = memory_bytes.saturating_sub(pool.memory_bytes);
        room = room.saturating_sub(device_bytes(&pool));
        pools.push(pool);
    }
    let shared = datasets.iter().filter(|dataset| dataset.quota.is_none());
    if let Some(max_block_bytes) = shared.map(|dataset| dataset.block_bytes).max() {
        let name = PoolName::shared();
        let mut pool = PoolSpec { name, memory_bytes, disk_bytes: 0, max_block_bytes };
        pool.disk_bytes = share_of(room, &pool);
        pools.push(pool);
    }
    pools
}

/// The largest share of which the files fit into `room`, to a MiB; 0 where none does.
fn share_of(room: u64, pool: &PoolSpec) -> u64 {
    let fits = |mib: u64| {
        let pool = PoolSpec { disk_bytes: mib << 20, ..pool.clone() };
        device_bytes(&pool) <= room
    };
    let (mut fitting, mut beyond) = (0, (room >> 20) + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    fitting << 20
}
