//! The oracle that the other tests rely on notices what it is there to notice.

use larder_tests::oracle::{Oracle, Wrong};
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_assume, proptest};

/// Long enough that a foreign word passing by chance (2⁻³² each) is not seen in a test's life.
const MIN_LEN: usize = 24;

proptest! {
    #[test]
    fn any_range_in_any_pieces_gives_its_version(
        key in "[a-z/]{1,20}",
        version in any::<u32>(),
        offset in 0_u64..1 << 40,
        len in MIN_LEN..5_000,
        cuts in prop::collection::vec(1_usize..700, 1..40),
    ) {
        let oracle = Oracle::of(&key);
        let bytes = oracle.slice(version, offset, len as u64);
        let mut reader = oracle.reader(offset);
        let mut rest = bytes.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            prop_assert_eq!(reader.push(piece), Ok(()));
            rest = behind;
        }
        prop_assert_eq!(reader.close(), Ok(version));
    }

    #[test]
    fn mixing_two_versions_anywhere_is_noticed(
        versions in any::<(u32, u32)>(),
        offset in 0_u64..10_000,
        len in MIN_LEN..5_000,
        at in any::<prop::sample::Index>(),
    ) {
        let oracle = Oracle::of("k");
        let at = 1 + at.index(len - 1);
        let mut bytes = oracle.slice(versions.0, offset, len as u64);
        let pure = [versions.0, versions.1].map(|v| oracle.slice(v, offset, len as u64));
        bytes.truncate(at);
        bytes.extend(oracle.slice(versions.1, offset + at as u64, (len - at) as u64));
        // Versions that are near each other differ in the low bytes of a word alone: where the cut
        // leaves one of them none of those, the result is the other one and not a mixture.
        prop_assume!(!pure.contains(&bytes));
        prop_assert!(oracle.check(offset, &bytes).is_err());
    }

    #[test]
    fn a_shift_is_noticed(
        version in any::<u32>(),
        offset in 0_u64..10_000,
        shift in 1_u64..10_000,
        len in MIN_LEN as u64..2_000,
    ) {
        let oracle = Oracle::of("k");
        let bytes = oracle.slice(version, offset + shift, len);
        prop_assert!(oracle.check(offset, &bytes).is_err());
        let back = oracle.slice(version, offset, len);
        prop_assert!(oracle.check(offset + shift, &back).is_err());
    }

    #[test]
    fn a_piece_that_is_missing_in_the_middle_is_noticed(
        version in any::<u32>(),
        lost in 1_usize..500,
        at in 0_usize..1_000,
    ) {
        let oracle = Oracle::of("k");
        let mut bytes = oracle.body(version, 2_000);
        bytes.drain(at..at + lost);
        prop_assert!(oracle.check(0, &bytes).is_err());
    }

    #[test]
    fn bytes_of_another_key_are_noticed(keys in any::<(u64, u64)>(), version in any::<u32>()) {
        prop_assume!(keys.0 != keys.1);
        let bytes = Oracle::of(&keys.0.to_string()).body(version, 64);
        let wrong = Oracle::of(&keys.1.to_string()).check(0, &bytes);
        let foreign = matches!(wrong, Err(Wrong::Foreign { .. }));
        prop_assert!(foreign, "{wrong:?}");
    }

    #[test]
    fn any_flipped_bit_is_noticed(len in MIN_LEN..2_000, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let oracle = Oracle::of("k");
        let mut bytes = oracle.body(3, len as u64);
        let at = at.index(len);
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(oracle.check(0, &bytes).is_err());
    }
}
