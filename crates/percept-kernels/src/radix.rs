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

/// Sorts packs by key, all keys being below `keys`. Packs of equal keys keep their order.
pub(crate) fn sort_by_key(packs: &mut Vec<u64>, keys: u64) {
    let bits = u64::BITS - keys.saturating_sub(1).leading_zeros();
    let passes = bits.div_ceil(MAX_DIGIT_BITS);
    if passes == 0 || packs.len() < 2 {
        return;
    }
    let digit_bits = bits.div_ceil(passes);
    let mask = (1usize << digit_bits) - 1;
    let mut sorted = vec![0; packs.len()];
    for pass in 0..passes {
        let digit = |pack: u64| (pack >> (NUMBER_BITS + pass * digit_bits)) as usize & mask;
        let mut next = vec![0usize; mask + 1];
        for &pack in packs.iter() {
            next[digit(pack)] += 1;
        }
        let mut start = 0;
        for bucket in &mut next {
            start += std::mem::replace(bucket, start);
        }
        for &pack in packs.iter() {
            let place = &mut next[digit(pack)];
            sorted[*place] = pack;
            *place += 1;
        }
        std::mem::swap(packs, &mut sorted);
    }
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
            sort_by_key(&mut packs, keys);
            prop_assert_eq!(packs, expected);
        }
    }
}
