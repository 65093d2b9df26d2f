//! The pools of the store, as the quotas cut them.
//!
//! Invariant: the pools' memory is `cache.memory` together at most, and their SSD shares times the
//! store's slack of 1.25 are `cache.disk.capacity` together at most.

use super::Config;
use larder_model::{PoolName, PoolSpec};

impl Config {
    /// One pool for each dataset with a quota; one for all others, of what the quotas leave.
    pub(crate) fn pools(&self) -> Vec<PoolSpec> {
        let mut pools = Vec::new();
        let mut memory_bytes = self.cache.memory_bytes;
        let mut disk_bytes =
            self.cache.disk.as_ref().map_or(0, |disk| disk.capacity_bytes / 125 * 100);
        for dataset in &self.datasets {
            let Some(quota) = dataset.quota else { continue };
            memory_bytes = memory_bytes.saturating_sub(quota.memory);
            disk_bytes = disk_bytes.saturating_sub(quota.disk);
            pools.push(PoolSpec {
                name: dataset.pool(),
                memory_bytes: quota.memory,
                disk_bytes: quota.disk,
                max_block_bytes: dataset.block_bytes,
            });
        }
        let shared = self.datasets.iter().filter(|dataset| dataset.quota.is_none());
        if let Some(max_block_bytes) = shared.map(|dataset| dataset.block_bytes).max() {
            let name = PoolName::shared();
            pools.push(PoolSpec { name, memory_bytes, disk_bytes, max_block_bytes });
        }
        pools
    }
}
