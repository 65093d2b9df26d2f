//! The geometry of a pool on its SSD: what an entry takes, how long a region is, and how many
//! regions hold the residents without ever squeezing one out.
//!
//! The figures are foyer's (`foyer-storage` 0.22.6, `engine/block`): an entry is a header of 36
//! bytes, the value and the key, aligned to 4 KiB; each 170 entries have an index page before
//! them; an entry never crosses the end of a region, so what remains there is lost.

use larder_model::{Block, PoolSpec};

const PAGE: u64 = 4096;
/// foyer's `EntryHeader::serialized_len()`.
const ENTRY_HEADER: u64 = 36;
/// The key behind the value: 128 bits.
const KEY: u64 = 16;
const ENTRIES_PER_INDEX: u64 = (PAGE - 12) / 24;

const SMALLEST_REGION: u64 = 16 << 20;
const LARGEST_REGION: u64 = 64 << 20;
/// Half a region of new writes at a time, so that a device that is four fifths alive, whose every
/// reclaimed region hands back four fifths of itself, settles at two and a half regions a flush.
const WINDOWS_PER_REGION: u64 = 2;
/// foyer reclaims while fewer regions than this are clean.
pub(crate) const CLEAN_REGIONS: usize = 2;
/// Beyond the residents: one region being written, one being reclaimed, and the clean ones.
const SPARE_REGIONS: u64 = 2 + CLEAN_REGIONS as u64;
/// Regions' worth of bytes that one flush buffer holds: the above, and the clean regions' worth
/// that may come at once. Only the part that is used becomes resident memory.
const BUFFER_REGIONS: u64 = 5;
const LARGEST_WINDOW: u64 = 32 << 20;

/// Bytes that a block of `len` bytes of data takes on the SSD.
pub(crate) fn stored_bytes(len: u32) -> u64 {
    let sealed = Block::sealed_bytes(len as usize) as u64;
    (ENTRY_HEADER + KEY + sealed).next_multiple_of(PAGE)
}

/// Bytes of SSD that the pool's files take when they are full: its share, a quarter more for
/// blocks that were removed but not yet reclaimed, what is lost at the ends of regions, and the
/// spare regions. 0 for a pool in memory only.
#[must_use]
pub fn device_bytes(pool: &PoolSpec) -> u64 {
    Layout::new(pool).map_or(0, |layout| layout.regions * layout.region)
}

/// How many files the pool keeps open. The process's limit of open files must allow for them.
#[must_use]
pub fn region_files(pool: &PoolSpec) -> u64 {
    Layout::new(pool).map_or(0, |layout| layout.regions)
}

/// Bytes of memory, beside the pool's memory share, that its write buffers may grow to.
#[must_use]
pub fn buffer_bytes(pool: &PoolSpec) -> u64 {
    // foyer keeps two: one fills while the other is written.
    Layout::new(pool).map_or(0, |layout| 2 * layout.buffer)
}

/// The geometry of one pool on its SSD. All in bytes, all multiples of 4 KiB, but `regions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// The length of a region, foyer's "block": the unit that is reclaimed.
    pub(crate) region: u64,
    pub(crate) regions: u64,
    /// The length of one flush buffer.
    pub(crate) buffer: u64,
    /// Bytes of writes that may wait for their confirmation at once.
    pub(crate) window: u64,
}

impl Layout {
    /// `None` for a pool in memory only.
    pub(crate) fn new(pool: &PoolSpec) -> Option<Self> {
        if pool.disk_bytes == 0 {
            return None;
        }
        let largest = stored_bytes(pool.max_block_bytes);
        // A whole number of the largest blocks, so that they leave no remainder: at least four, so
        // that others lose a quarter at worst; sixteen regions where the pool is long enough.
        let wanted = (pool.disk_bytes / 1024).clamp(SMALLEST_REGION, LARGEST_REGION);
        let blocks = (pool.disk_bytes / 16).min(wanted).div_ceil(largest).max(4);
        let region = blocks * largest + blocks.div_ceil(ENTRIES_PER_INDEX) * PAGE;
        // The worst case: each region ends with a gap that just does not hold the largest block,
        // and its entries are so short that every second page is one.
        let indexes = (region / (2 * PAGE)).div_ceil(ENTRIES_PER_INDEX) * PAGE;
        let usable = region.saturating_sub(largest + indexes).max(largest);
        let live = pool.disk_bytes + pool.disk_bytes / 4;
        let window = (region / WINDOWS_PER_REGION).min(LARGEST_WINDOW).max(2 * largest);
        Some(Self {
            region,
            regions: live.div_ceil(usable) + SPARE_REGIONS,
            buffer: BUFFER_REGIONS * region,
            window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, buffer_bytes, device_bytes, stored_bytes};
    use larder_model::{PoolName, PoolSpec};

    fn pool(disk_bytes: u64, max_block_bytes: u32) -> PoolSpec {
        PoolSpec { name: PoolName::shared(), memory_bytes: 0, disk_bytes, max_block_bytes }
    }

    #[test]
    fn a_pool_in_memory_has_no_device() {
        assert_eq!((device_bytes(&pool(0, 1 << 20)), buffer_bytes(&pool(0, 1 << 20))), (0, 0));
    }

    #[test]
    fn an_entry_is_aligned_to_pages() {
        // 36 + 16 around it, 40 + 4 for each chunk inside.
        assert_eq!(stored_bytes(1), 4096);
        assert_eq!(stored_bytes(4096 - 52 - 40), 4096);
        assert_eq!(stored_bytes(4096 - 52 - 39), 8192);
        assert_eq!(stored_bytes(4096), 8192);
        assert_eq!(stored_bytes(1 << 20), (1 << 20) + 4096);
        assert_eq!(stored_bytes(16 << 20), (16 << 20) + 4096);
    }

    #[test]
    fn regions_hold_a_whole_number_of_the_largest_blocks() {
        for (disk, block) in [(1 << 30, 1 << 20), (250 << 30, 1 << 20), (10 << 30, 16 << 20)] {
            let layout = Layout::new(&pool(disk, block)).unwrap();
            let usable = layout.region - 4096;
            assert_eq!(usable % stored_bytes(block), 0, "{layout:?}");
            assert!(usable / stored_bytes(block) >= 4, "{layout:?}");
            assert_eq!(layout.region % 4096, 0);
        }
    }

    #[test]
    fn the_device_is_a_quarter_longer_than_the_share_even_with_the_worst_ends() {
        for disk in [1 << 20, 64 << 20, 1 << 30, 250 << 30, 4 << 40] {
            for block in [64 << 10, 1 << 20, 8 << 20, 16 << 20] {
                let spec = pool(disk, block);
                let layout = Layout::new(&spec).unwrap();
                let largest = stored_bytes(block);
                let filled = layout.regions * (layout.region - largest - layout.region / 341);
                assert!(filled >= disk + disk / 4, "{spec:?} {layout:?}");
                assert!(layout.regions >= 5, "{spec:?} {layout:?}");
                assert!(layout.buffer >= 2 * layout.region && layout.window <= layout.buffer / 2);
                assert!(layout.window >= 2 * largest);
            }
        }
    }

    #[test]
    fn a_usual_pool_pays_little_slack() {
        let spec = pool(250 << 30, 1 << 20);
        let slack = device_bytes(&spec) as f64 / spec.disk_bytes as f64;
        assert!(slack < 1.30, "{slack}");
    }
}
