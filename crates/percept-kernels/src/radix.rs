//! A stable radix sort of numbered keys: what sorts points into voxels.

/// Bits of a pack's lower half, which holds the number.
const NUMBER_BITS: u32 = 32;
/// A table of this many buckets stays in the first cache.
const MAX_DIGIT_BITS: u32 = 11;

/// A key with a number, in one word that sorts by the key.
pub(crate) fn pack(key: u32, number: u32) -> u64 {
    u64::from(key) << NUMBER_BITS | u64::from(number)
}

/// The key of a pack.
pub(crate) fn key(pack: u64) -> u32 {
    (pack >> NUMBER_BITS) as u32
}

/// The number of a pack.
pub(crate) fn number(pack: u64) -> u32 {
    pack as u32
}

/// Sorts packs by key, all keys being below `keys`; packs of equal keys keep their order. The sorted packs come back
/// first, in one of the two slices, which must be equally long (and below 2^32); the other holds nothing of use.
pub(crate) fn sort_by_key<'a>(
    mut packs: &'a mut [u64],
    mut spare: &'a mut [u64],
    keys: u64,
) -> [&'a mut [u64]; 2] {
    assert_eq!(packs.len(), spare.len(), "the spare slice");
    let bits = u64::BITS - keys.saturating_sub(1).leading_zeros();
    let passes = bits.div_ceil(MAX_DIGIT_BITS);
    let digit_bits = bits.div_ceil(passes.max(1));
    let mut next = vec![0u32; 1 << digit_bits];
    for pass in 0..passes {
        let shift = NUMBER_BITS + pass * digit_bits;
        let digit = |pack: u64| (pack >> shift) as usize & ((1 << digit_bits) - 1);
        next.fill(0);
        for &pack in packs.iter() {
            next[digit(pack)] += 1;
        }
        let mut start = 0;
        for bucket in &mut next {
            start += std::mem::replace(bucket, start);
        }
        for &pack in packs.iter() {
            let place = &mut next[digit(pack)];
            spare[*place as usize] = pack;
            *place += 1;
        }
        std::mem::swap(&mut packs, &mut spare);
    }
    [packs, spare]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn equals_a_stable_sort(
            keys in prop::sample::select(vec![1u64, 2, 100, 2048, 2049, 5_000_000, 1 << 32]),
            seeds in prop::collection::vec(any::<u32>(), 0..300),
        ) {
            let numbered = seeds.iter().zip((0..seeds.len() as u32).rev());
            let mut packs: Vec<u64> = numbered
                .map(|(&seed, number)| pack((u64::from(seed) % keys) as u32, number))
                .collect();
            let mut expected = packs.clone();
            expected.sort_by_key(|&pack| key(pack));
            let mut spare = vec![0; packs.len()];
            let [sorted, _] = sort_by_key(&mut packs, &mut spare, keys);
            prop_assert_eq!(sorted, expected);
        }
    }
}
