//! Random numbers as a function of counters: nothing carries state that threads or a resumed run could disturb.
//!
//! A number is the hash of a list such as (seed, epoch, sample, purpose, index), so that each can be made alone, in any
//! order, on any thread.

/// A well-mixed word from a list of counters; a longer list continues a shorter one.
///
/// ```
/// use percept_data::random::{hash, key};
/// assert_eq!(key(&[1, 2, 3]), hash(1, 2, 3));
/// assert_ne!(key(&[1, 2, 3]), key(&[1, 3, 2]));
/// ```
#[inline]
pub fn key(counters: &[u64]) -> u64 {
    let (first, rest) = counters.split_first().unwrap_or((&0, &[]));
    let start = mix(first ^ GOLDEN_GAMMA);
    rest.iter()
        .fold(start, |word, counter| mix(word.wrapping_add(*counter)))
}

/// The [`key`] of three counters.
#[inline]
pub fn hash(seed: u64, stream: u64, index: u64) -> u64 {
    key(&[seed, stream, index])
}

/// A number in [0, 1) from a hashed word.
#[inline]
pub fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A number with mean 0, variance 1 and the shape of a bell within ±3.47, from a hashed word.
///
/// The sum of four uniform numbers: cheaper than a true normal, the same bits everywhere, and bounded, so that
/// "within the noise" is a statement that a test can check.
#[inline]
pub fn bell(word: u64) -> f64 {
    let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    // Four uniforms on 0..=65535: mean 131070, variance 4 * (65536^2 - 1) / 12.
    (sum as f64 - 131_070.0) * (1.0 / 37_837.227)
}

/// The farthest that [`bell`] strays from 0.
pub const BELL_LIMIT: f64 = 3.4645;

/// The permutation of `0..len` that sorts by `word` of each index, ascending and stable.
pub fn permutation(len: usize, word: impl Fn(u64) -> u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by_cached_key(|&index| word(index as u64));
    order
}

/// The odd number nearest to 2^64 over the golden ratio: the step between splitmix64's states.
pub(crate) const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(word: u64) -> u64 {
    finalise(word.wrapping_add(GOLDEN_GAMMA))
}

/// The finaliser of splitmix64.
#[inline]
pub(crate) fn finalise(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A cursor over the numbers behind one key, for building something step by step.
#[derive(Clone, Debug)]
pub struct Draws {
    key: u64,
    index: u64,
}

impl Draws {
    /// The numbers of one stream of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self::of(&[seed, stream])
    }

    /// The numbers behind a list of counters.
    pub fn of(counters: &[u64]) -> Self {
        Self {
            key: key(counters),
            index: 0,
        }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.index += 1;
        mix(self.key.wrapping_add(self.index))
    }

    /// In [low, high).
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * unit(self.word())
    }

    /// In 0..count.
    pub fn below(&mut self, count: usize) -> usize {
        (unit(self.word()) * count as f64) as usize
    }

    /// True in `probability` of all cases.
    pub fn chance(&mut self, probability: f64) -> bool {
        unit(self.word()) < probability
    }

    /// 1 or -1.
    pub fn sign(&mut self) -> f64 {
        if self.chance(0.5) { 1.0 } else { -1.0 }
    }

    /// An angle in [-pi, pi).
    pub fn angle(&mut self) -> f64 {
        self.range(-std::f64::consts::PI, std::f64::consts::PI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bell_has_the_promised_moments_and_bound() {
        let values: Vec<f64> = (0..100_000).map(|i| bell(hash(1, 2, i))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!(
            mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        assert!(bell(0).abs() <= BELL_LIMIT && bell(u64::MAX).abs() <= BELL_LIMIT);
    }

    #[test]
    fn every_counter_matters() {
        let base = hash(1, 2, 3);
        assert!(
            [hash(2, 2, 3), hash(1, 3, 3), hash(1, 2, 4), hash(2, 1, 3)]
                .iter()
                .all(|h| *h != base)
        );
        let mut draws = Draws::new(5, 6);
        let mean = (0..10_000).map(|_| draws.range(0.0, 1.0)).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_cursor_reads_the_hashes_of_its_key() {
        // Worlds and datasets hang on these bits.
        assert_eq!(hash(1, 2, 3), 0x48cf_5028_b6df_10db);
        let mut draws = Draws::of(&[1, 2]);
        assert_eq!(
            [draws.word(), draws.word(), draws.word()],
            [1, 2, 3].map(|i| hash(1, 2, i))
        );
    }

    #[test]
    fn permutations_hold_every_index_once() {
        let order = permutation(1000, |index| hash(1, 2, index));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        assert!(
            order
                .windows(2)
                .all(|pair| hash(1, 2, pair[0] as u64) < hash(1, 2, pair[1] as u64))
        );
        assert!(permutation(0, |index| index).is_empty());
    }
}
