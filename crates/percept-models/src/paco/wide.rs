//! Numbers of f64 between nodes, each as a pair of f32: the number rounded, and what the rounding lost.
//!
//! With eps = 1e-5 one f32 is not enough: its rounding of a covariance is larger than what eps adds.

use std::ops::Range;

/// Writes numbers from the place `at`, into all rounded ones and then all remainders.
pub(super) fn split_into(pairs: &mut [f32], at: usize, numbers: &[f64]) {
    let (rounded, remainders) = pairs.split_at_mut(pairs.len() / 2);
    let pairs = rounded[at..].iter_mut().zip(&mut remainders[at..]);
    for ((high, low), &number) in pairs.zip(numbers) {
        *high = number as f32;
        *low = (number - f64::from(*high)) as f32;
    }
}

/// Some of the numbers again, to 48 bits.
pub(super) fn join(pairs: &[f32], range: Range<usize>) -> Vec<f64> {
    let (rounded, remainders) = pairs.split_at(pairs.len() / 2);
    let pairs = rounded[range.clone()].iter().zip(&remainders[range]);
    pairs
        .map(|(&high, &low)| f64::from(high) + f64::from(low))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_48_bits() {
        let numbers = [1.0 / 3.0, -1e-5, 12345.678901, 0.0];
        let mut pairs = [0.0; 12];
        split_into(&mut pairs, 2, &numbers);
        for (number, back) in numbers.iter().zip(join(&pairs, 2..6)) {
            assert!(
                (number - back).abs() <= number.abs() * 2f64.powi(-47),
                "{number}"
            );
        }
    }
}
