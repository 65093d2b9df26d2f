//! The content oracle: every 8-byte word of an object is a function of (key, version, offset), so
//! any reader notices mixing, staleness, shifts and wrong keys without bookkeeping.

/// The bytes of version `version` of `key` from `start` to `end`.
pub(crate) fn bytes(key: &str, version: u64, start: u64, end: u64) -> Vec<u8> {
    (start..end)
        .map(|offset| word(key, version, offset / 8).to_le_bytes()[(offset % 8) as usize])
        .collect()
}

fn word(key: &str, version: u64, index: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mut word = hash ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.rotate_left(32);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
