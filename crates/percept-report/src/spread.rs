//! Repeated measurements in three numbers.

use serde::Serialize;

/// Median and the tenth and ninetieth percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
}

impl Spread {
    /// The spread of some measurements (zeros for none).
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| match values.len() {
            0 => 0.0,
            len => {
                let place = share * (len - 1) as f64;
                let (below, part) = (place.floor() as usize, place.fract());
                let above = (below + 1).min(len - 1);
                values[below] * (1.0 - part) + values[above] * part
            }
        };
        Self {
            median: at(0.5),
            p10: at(0.1),
            p90: at(0.9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate() {
        let spread = Spread::of([5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.p10, spread.median, spread.p90), (1.4, 3.0, 4.6));
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([7.0]).p90, 7.0);
    }
}
