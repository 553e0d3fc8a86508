//! Precision and score over recall, and what is read from them.

use serde::Serialize;

/// Recalls at which curves are read: 0, 0.01, .. 1.
pub const RECALLS: usize = 101;

/// The first recall that counts, in hundredths: those up to 0.1 are left out as noise.
const FIRST_COUNTED: usize = 11;

/// Precision up to here is worth nothing.
const MIN_PRECISION: f64 = 0.1;

/// A class at one threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// At recalls 0, 0.01, .. 1; 0 beyond the reached recall.
    pub precision: Vec<f64>,
    /// The score at which that recall is reached; 0 beyond the reached recall.
    pub confidence: Vec<f64>,
}

impl Curve {
    /// Of predictions by falling score, each right or wrong, where `positives` could be found.
    pub(super) fn of(visits: impl Iterator<Item = (f64, bool)>, positives: usize) -> Self {
        let (mut recall, mut precision, mut score) = (Vec::new(), Vec::new(), Vec::new());
        let (mut right, mut visited) = (0_usize, 0_usize);
        for (visit_score, is_right) in visits {
            visited += 1;
            right += usize::from(is_right);
            recall.push(right as f64 / positives as f64);
            precision.push(right as f64 / visited as f64);
            score.push(visit_score);
        }
        if right == 0 {
            return Self::nothing();
        }
        let at_recalls = |values: &[f64]| {
            let read = |i| interpolate(grid(i), &recall, values, Some(0.0));
            (0..RECALLS).map(read).collect()
        };
        Self {
            precision: at_recalls(&precision),
            confidence: at_recalls(&score),
        }
    }

    /// When nothing is found, or there is nothing to find.
    fn nothing() -> Self {
        Self {
            precision: vec![0.0; RECALLS],
            confidence: vec![0.0; RECALLS],
        }
    }

    /// The last recall, in hundredths, with a score above 0.
    pub fn reached(&self) -> usize {
        let last = self.confidence.iter().rposition(|score| *score != 0.0);
        last.unwrap_or(0)
    }

    /// Average precision.
    pub fn average_precision(&self) -> f64 {
        let counted = &self.precision[FIRST_COUNTED..];
        let above = counted.iter().map(|p| (p - MIN_PRECISION).max(0.0));
        mean(above) / (1.0 - MIN_PRECISION)
    }

    /// The recalls that errors of true positives are averaged over, if enough was found.
    pub(super) fn counted_recalls(&self) -> Option<std::ops::RangeInclusive<usize>> {
        let reached = self.reached();
        (reached >= FIRST_COUNTED).then_some(FIRST_COUNTED..=reached)
    }
}

/// Recall `i` of the grid. Not `i / 100`: in a tenth of the places the last bit differs, and with it which side of a
/// step is read.
fn grid(i: usize) -> f64 {
    i as f64 * 0.01
}

/// The mean of at least one value.
pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// The line through the points (`places` ascending, `values`) at `x`. Of points at one place the last holds there and to its
/// right. Before the first place its value holds, beyond the last `beyond`, or its value. There is at least one point.
pub(super) fn interpolate(x: f64, places: &[f64], values: &[f64], beyond: Option<f64>) -> f64 {
    let last = places.len() - 1;
    if x > places[last] {
        return beyond.unwrap_or(values[last]);
    }
    let after = places.partition_point(|place| *place <= x);
    if after == 0 {
        return values[0];
    }
    let left = after - 1;
    if left == last || places[left] == x {
        return values[left];
    }
    let slope = (values[after] - values[left]) / (places[after] - places[left]);
    slope * (x - places[left]) + values[left]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_grid_is_numpy_s() {
        let other: Vec<usize> = (0..RECALLS)
            .filter(|&i| grid(i) != i as f64 / 100.0)
            .collect();
        assert_eq!(other, [35, 41, 47, 57, 69, 70, 82, 83, 94, 95]);
        assert_eq!(grid(100), 1.0);
    }

    #[test]
    fn a_perfect_detector_is_worth_one() {
        let curve = Curve::of([(0.9, true), (0.8, true)].into_iter(), 2);
        assert!((curve.average_precision() - 1.0).abs() < 1e-15);
        assert_eq!(curve.reached(), 100);
        let nothing = Curve::of([(0.9, false)].into_iter(), 2);
        assert_eq!((nothing.average_precision(), nothing.reached()), (0.0, 0));
        assert_eq!(Curve::of([].into_iter(), 0), Curve::nothing());
    }

    /// The same by walking all segments from the right.
    fn interpolate_slowly(x: f64, places: &[f64], values: &[f64], beyond: f64) -> f64 {
        for i in (0..places.len()).rev() {
            if x >= places[i] {
                if x == places[i] {
                    return values[i];
                }
                let Some(next) = places.get(i + 1) else {
                    return beyond;
                };
                let share = (x - places[i]) / (next - places[i]);
                return values[i] + share * (values[i + 1] - values[i]);
            }
        }
        values[0]
    }

    proptest! {
        #[test]
        fn interpolation_equals_the_slow_one(
            mut points in prop::collection::vec((0_u8..20, -1.0..1.0_f64), 1..30),
            x in -5_i32..50,
        ) {
            points.sort_by_key(|point| point.0);
            let places: Vec<f64> = points.iter().map(|p| f64::from(p.0)).collect();
            let values: Vec<f64> = points.iter().map(|p| p.1).collect();
            let x = f64::from(x) * 0.5;
            let slow = interpolate_slowly(x, &places, &values, 7.0);
            prop_assert!((interpolate(x, &places, &values, Some(7.0)) - slow).abs() < 1e-12);
        }
    }
}
