//! Random numbers as a function of (seed, stream, index): nothing carries state that threads could disturb.

/// A well-mixed word from three counters (splitmix64's finaliser over each in turn).
#[inline]
pub(crate) fn hash(seed: u64, stream: u64, index: u64) -> u64 {
    mix(mix(mix(seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(stream)).wrapping_add(index))
}

/// A number in [0, 1) from a hashed word.
#[inline]
pub(crate) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A number with mean 0, variance 1 and the shape of a bell within ±3.47, from a hashed word.
///
/// The sum of four uniform numbers: cheaper than a true normal, the same bits everywhere, and bounded, so that
/// "within the noise" is a statement that a test can check.
#[inline]
pub(crate) fn bell(word: u64) -> f64 {
    let sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    // Four uniforms on 0..=65535: mean 131070, variance 4 * (65536^2 - 1) / 12.
    (sum as f64 - 131_070.0) * (1.0 / 37_837.227)
}

/// The farthest that [`bell`] strays from 0.
pub(crate) const BELL_LIMIT: f64 = 3.4645;

#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A cursor over one stream, for building scenes step by step.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    seed: u64,
    stream: u64,
    index: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self {
            seed,
            stream,
            index: 0,
        }
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.index += 1;
        hash(self.seed, self.stream, self.index)
    }

    /// In [low, high).
    pub(crate) fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * unit(self.word())
    }

    /// In 0..count.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (unit(self.word()) * count as f64) as usize
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        unit(self.word()) < probability
    }

    /// 1 or -1.
    pub(crate) fn sign(&mut self) -> f64 {
        if self.chance(0.5) { 1.0 } else { -1.0 }
    }

    /// An angle in [-pi, pi).
    pub(crate) fn angle(&mut self) -> f64 {
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
}
