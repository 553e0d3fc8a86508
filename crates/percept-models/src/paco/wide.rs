//! Numbers of f64 between nodes, each as a pair of f32: the number rounded, and what the rounding lost.
//!
//! With eps = 1e-5 one f32 is not enough: its rounding of a covariance is larger than what eps adds.

/// All rounded numbers, then all remainders.
pub(super) fn split(numbers: &[f64]) -> Vec<f32> {
    let rounded = numbers.iter().map(|&number| number as f32);
    let remainders = numbers
        .iter()
        .map(|&number| (number - f64::from(number as f32)) as f32);
    rounded.chain(remainders).collect()
}

/// The numbers again, to 48 bits.
pub(super) fn join(pairs: &[f32]) -> Vec<f64> {
    let (rounded, remainders) = pairs.split_at(pairs.len() / 2);
    let pairs = rounded.iter().zip(remainders);
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
        for (number, back) in numbers.iter().zip(join(&split(&numbers))) {
            assert!(
                (number - back).abs() <= number.abs() * 2f64.powi(-47),
                "{number}"
            );
        }
    }
}
