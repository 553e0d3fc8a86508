//! From a histogram to the range of a grid.

use std::fmt;
use std::str::FromStr;

use percept_graph::Quantizer;

use crate::Histogram;

/// How the range of a layer's input is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calibrator {
    /// Everything that was seen fits.
    Max,
    /// This many percent of the magnitudes that are not zero fit; the rest is cut.
    Percentile(f64),
    /// The least squared error over what was seen.
    Mse,
    /// The least information lost: the divergence of Kullback and Leibler between what was seen and what the grid leaves of it.
    Entropy,
}

impl Calibrator {
    /// Percent of the percentile where nobody says otherwise.
    const PERCENT: f64 = 99.99;

    /// The largest magnitude that a grid of this many bits should cover; 0 where everything was zero.
    pub fn amax(&self, histogram: &Histogram, bits: u8) -> f32 {
        let largest = histogram.amax();
        if largest == 0.0 {
            return 0.0;
        }
        let chosen = match *self {
            Calibrator::Max => return largest,
            Calibrator::Percentile(percent) => percentile(histogram, percent),
            // So fine a grid has steps below the bins: nothing is won by cutting.
            _ if bits > 10 => return largest,
            Calibrator::Mse => least_squares(histogram, bits),
            Calibrator::Entropy => least_divergence(histogram, bits),
        };
        // Bins end beyond the largest number inside.
        (chosen as f32).min(largest)
    }
}

fn percentile(histogram: &Histogram, percent: f64) -> f64 {
    let bins = histogram.occupied();
    let total: u64 = bins.iter().sum();
    let wanted = percent / 100.0 * total as f64;
    let mut seen = 0;
    for (bin, &count) in bins.iter().enumerate() {
        seen += count;
        if seen as f64 >= wanted {
            return (bin + 1) as f64 * histogram.width();
        }
    }
    bins.len() as f64 * histogram.width()
}

/// Ends of ranges that are tried: the last occupied bin and those before it, in strides.
fn ends(bins: usize, first: usize) -> impl Iterator<Item = usize> {
    const TRIED: usize = 256;
    let stride = (bins / TRIED).max(1);
    (0..)
        .map(move |step| bins.saturating_sub(step * stride))
        .take_while(move |&end| end >= first.max(1))
}

fn least_squares(histogram: &Histogram, bits: u8) -> f64 {
    let (bins, width) = (histogram.occupied(), histogram.width());
    let error = |end: usize| {
        let grid = Quantizer::new(bits, (end as f64 * width) as f32);
        let errors = bins.iter().enumerate().filter(|(_, count)| **count > 0);
        errors
            .map(|(bin, &count)| {
                let x = (bin as f64 + 0.5) * width;
                let away = x - f64::from(grid.round(x as f32));
                count as f64 * away * away
            })
            .sum::<f64>()
    };
    let best = ends(bins.len(), 1).map(|end| (end, error(end)));
    // Of equal errors the wider range: it comes first.
    let best = best.reduce(|best, next| if next.1 < best.1 { next } else { best });
    best.map_or(0.0, |(end, _)| end as f64 * width)
}

/// As TensorRT describes it: magnitudes beyond the range join its last bin; the range is then told by as many levels as the grid
/// has, and what those levels say is compared with what was there.
fn least_divergence(histogram: &Histogram, bits: u8) -> f64 {
    let (bins, width) = (histogram.occupied(), histogram.width());
    let levels = 1usize << (bits - 1);
    let total: f64 = bins.iter().map(|&count| count as f64).sum();
    let divergence = |end: usize| {
        let inside = &bins[..end];
        let beyond: f64 = bins[end..].iter().map(|&count| count as f64).sum();
        let mut sum = 0.0;
        let inside_total: f64 = inside.iter().map(|&count| count as f64).sum();
        if inside_total == 0.0 {
            return f64::INFINITY;
        }
        for level in 0..levels {
            let (start, stop) = (level * end / levels, (level + 1) * end / levels);
            let group = &bins[start..stop];
            let occupied = group.iter().filter(|&&count| count > 0).count();
            let mass: f64 = group.iter().map(|&count| count as f64).sum();
            // What the level says of each of its bins that hold anything.
            let told = mass / (occupied.max(1) as f64 * inside_total);
            for (at, &count) in group.iter().enumerate() {
                let outliers = if start + at + 1 == end { beyond } else { 0.0 };
                let p = (count as f64 + outliers) / total;
                if p > 0.0 {
                    // A bin that only outliers fill is one that the levels say nothing of.
                    let q = if count > 0 { told } else { 1e-12 };
                    sum += p * (p / q).ln();
                }
            }
        }
        sum
    };
    let best = ends(bins.len(), levels).map(|end| (end, divergence(end)));
    let best = best.reduce(|best, next| if next.1 < best.1 { next } else { best });
    best.map_or_else(|| bins.len() as f64 * width, |(end, _)| end as f64 * width)
}

impl fmt::Display for Calibrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calibrator::Max => f.pad("max"),
            Calibrator::Percentile(percent) => f.pad(&format!("percentile={percent}")),
            Calibrator::Mse => f.pad("mse"),
            Calibrator::Entropy => f.pad("entropy"),
        }
    }
}

impl FromStr for Calibrator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, percent) = match text.split_once('=') {
            Some((name, percent)) => (name, Some(percent)),
            None => (text, None),
        };
        match (name, percent) {
            ("max", None) => Ok(Self::Max),
            ("mse", None) => Ok(Self::Mse),
            ("entropy", None) => Ok(Self::Entropy),
            ("percentile", None) => Ok(Self::Percentile(Self::PERCENT)),
            ("percentile", Some(percent)) => match percent.parse() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percentile(percent)),
                _ => Err(format!("`{percent}` is no percentage above 0")),
            },
            _ => Err("expected max, percentile, percentile=99.9, mse or entropy".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of a bell, and a far outlier.
    fn with_outlier() -> Histogram {
        let mut histogram = Histogram::default();
        let bell: Vec<f32> = (0..100_000)
            .map(|i| {
                let u = (i as f32 + 0.5) / 100_000.0;
                // The inverse of a logistic curve is near enough to a bell.
                0.3 * (u / (1.0 - u)).ln()
            })
            .collect();
        histogram.add(&bell);
        histogram.add(&[100.0]);
        histogram
    }

    #[test]
    fn the_maximum_takes_everything_and_others_cut_outliers() {
        let histogram = with_outlier();
        let amax = |calibrator: Calibrator| calibrator.amax(&histogram, 8);
        assert_eq!(amax(Calibrator::Max), 100.0);
        let percentile = amax(Calibrator::Percentile(99.9));
        assert!((1.5..4.0).contains(&percentile), "{percentile}");
        let all = amax(Calibrator::Percentile(100.0));
        assert_eq!(all, 100.0);
        // One number far out costs squares little and information nothing.
        for (calibrator, most) in [(Calibrator::Mse, 80.0), (Calibrator::Entropy, 20.0)] {
            let amax = amax(calibrator);
            assert!((1.0..most).contains(&amax), "{calibrator}: {amax}");
        }
    }

    #[test]
    fn the_least_squared_error_is_the_least_of_those_tried() {
        let histogram = with_outlier();
        let best = Calibrator::Mse.amax(&histogram, 8);
        let error = |amax: f32| {
            let grid = Quantizer::new(8, amax);
            let bins = histogram.occupied().iter().enumerate();
            bins.map(|(bin, &count)| {
                let x = ((bin as f64 + 0.5) * histogram.width()) as f32;
                count as f64 * f64::from(x - grid.round(x)).powi(2)
            })
            .sum::<f64>()
        };
        assert!(error(best) <= error(100.0));
        assert!(error(best) <= error(Calibrator::Percentile(99.9).amax(&histogram, 8)));
    }

    #[test]
    fn evenly_spread_numbers_are_not_cut() {
        let mut histogram = Histogram::default();
        let even: Vec<f32> = (0..50_000).map(|i| i as f32 / 25_000.0 - 1.0).collect();
        histogram.add(&even);
        for calibrator in [Calibrator::Mse, Calibrator::Entropy] {
            let amax = calibrator.amax(&histogram, 8);
            assert!(amax > 0.97, "{calibrator}: {amax}");
        }
    }

    #[test]
    fn zeros_have_no_range_and_names_are_read_back() {
        let mut zeros = Histogram::default();
        zeros.add(&[0.0; 10]);
        for name in ["max", "percentile=99.9", "mse", "entropy"] {
            let calibrator: Calibrator = name.parse().unwrap();
            assert_eq!(calibrator.to_string(), name);
            assert_eq!(calibrator.amax(&zeros, 8), 0.0);
        }
        for wrong in ["most", "percentile=0", "percentile=101", "max=3"] {
            assert!(wrong.parse::<Calibrator>().is_err(), "{wrong}");
        }
    }
}
