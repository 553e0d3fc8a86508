//! How often magnitudes occur, over any number of tensors, in bounded memory.

/// Bins of a histogram.
pub const BINS: usize = 4096;

/// Magnitudes of numbers, counted in bins of equal width. The width is a power of two and doubles when a larger number comes, by
/// merging neighbours, so that the order of the data changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The width of a bin is 2 to this; without meaning as long as there is nothing but zeros.
    pub(crate) exponent: i32,
    /// Zeros are counted apart, below.
    pub(crate) bins: Vec<u64>,
    pub(crate) zeros: u64,
    pub(crate) smallest: f32,
    pub(crate) largest: f32,
    pub(crate) not_finite: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            exponent: 0,
            bins: vec![0; BINS],
            zeros: 0,
            smallest: f32::INFINITY,
            largest: f32::NEG_INFINITY,
            not_finite: 0,
        }
    }
}

impl Histogram {
    /// Counts the numbers of a tensor.
    pub fn add(&mut self, values: &[f32]) {
        let (mut low, mut high, mut not_finite) = (f32::INFINITY, f32::NEG_INFINITY, 0);
        for &x in values {
            if x.is_finite() {
                (low, high) = (low.min(x), high.max(x));
            } else {
                not_finite += 1;
            }
        }
        self.not_finite += not_finite;
        if low > high {
            return;
        }
        let magnitude = high.max(-low);
        if magnitude > 0.0 {
            let known = self.amax() > 0.0;
            self.make_room(magnitude, known);
        }
        self.smallest = self.smallest.min(low);
        self.largest = self.largest.max(high);
        let per_unit = (-f64::from(self.exponent)).exp2() as f32;
        for &x in values.iter().filter(|x| x.is_finite()) {
            match x.abs() {
                0.0 => self.zeros += 1,
                x => self.bins[((x * per_unit) as usize).min(BINS - 1)] += 1,
            }
        }
    }

    /// Widens the bins until this magnitude fits.
    fn make_room(&mut self, magnitude: f32, known: bool) {
        // The largest number of the last bin is just below BINS widths.
        let needed = (f64::from(magnitude) / BINS as f64).log2().floor() as i32 + 1;
        // Widths below what f32 can divide by would count nothing but the noise of denormals.
        let needed = needed.max(-120);
        if !known {
            self.exponent = needed;
            return;
        }
        while self.exponent < needed {
            for bin in 0..BINS / 2 {
                self.bins[bin] = self.bins[2 * bin] + self.bins[2 * bin + 1];
            }
            self.bins[BINS / 2..].fill(0);
            self.exponent += 1;
        }
    }

    /// The largest magnitude; 0 where there was nothing.
    pub fn amax(&self) -> f32 {
        self.largest.max(-self.smallest).max(0.0)
    }

    /// Whether no number was below zero.
    pub fn is_non_negative(&self) -> bool {
        self.smallest >= 0.0
    }

    /// Numbers that were NaN or infinite.
    pub fn not_finite(&self) -> u64 {
        self.not_finite
    }

    /// Numbers counted, zeros included.
    pub fn count(&self) -> u64 {
        self.zeros + self.bins.iter().sum::<u64>()
    }

    /// The width of a bin.
    pub fn width(&self) -> f64 {
        f64::from(self.exponent).exp2()
    }

    /// How often each magnitude but zero occurs, from small to large, up to the last that does.
    pub fn occupied(&self) -> &[u64] {
        let last = self.bins.iter().rposition(|&count| count > 0);
        &self.bins[..last.map_or(0, |last| last + 1)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(parts: &[&[f32]]) -> Histogram {
        let mut histogram = Histogram::default();
        parts.iter().for_each(|part| histogram.add(part));
        histogram
    }

    proptest! {
        #[test]
        fn the_order_of_the_data_changes_nothing(
            values in proptest::collection::vec(-1000.0f32..1000.0, 1..200),
            cut in 0usize..200,
        ) {
            let (a, b) = values.split_at(cut.min(values.len()));
            let together = of(&[&values]);
            prop_assert_eq!(&of(&[a, b]), &together);
            prop_assert_eq!(&of(&[b, a]), &together);
            prop_assert_eq!(together.count(), values.len() as u64);
            let amax = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            prop_assert_eq!(together.amax(), amax);
            // The last occupied bin holds the largest magnitude, and at least half of the bins lie below it.
            let last = together.occupied().len();
            prop_assert!((last as f64) * together.width() >= f64::from(amax) * 0.999_999);
            prop_assert!(last > BINS / 2 || amax == 0.0);
        }
    }

    #[test]
    fn zeros_nothing_and_what_is_no_number_are_counted_apart() {
        let histogram = of(&[&[], &[0.0, -0.0], &[f32::NAN, f32::INFINITY, 0.5]]);
        assert_eq!((histogram.zeros, histogram.not_finite()), (2, 2));
        assert_eq!((histogram.count(), histogram.amax()), (3, 0.5));
        assert!(histogram.is_non_negative());
        let nothing = of(&[]);
        assert_eq!((nothing.amax(), nothing.occupied().len()), (0.0, 0));
        let zeros = of(&[&[0.0; 9]]);
        assert_eq!((zeros.amax(), zeros.count()), (0.0, 9));
        assert!(!of(&[&[-1e-30]]).is_non_negative());
    }

    #[test]
    fn numbers_of_any_size_fit() {
        let histogram = of(&[&[1e-38, 1e38, -3e38]]);
        assert_eq!((histogram.count(), histogram.amax()), (3, 3e38));
    }
}
