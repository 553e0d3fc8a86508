//! How far off the right ones are.

use std::f64::consts::PI;

use percept_data::points::ObjectClass;

use super::boxes::GlobalBox;
use super::curve::{Curve, interpolate, mean};
use super::error::DetectionError;
use super::matching::{Candidate, Candidates, Visit};

/// What a match can be wrong in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorKind {
    Translation,
    Scale,
    Orientation,
    Velocity,
    Attribute,
}

impl ErrorKind {
    /// Every kind, in the order of [`Errors`].
    pub const ALL: [Self; 5] = [
        Self::Translation,
        Self::Scale,
        Self::Orientation,
        Self::Velocity,
        Self::Attribute,
    ];

    /// The public code's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Translation => "trans_err",
            Self::Scale => "scale_err",
            Self::Orientation => "orient_err",
            Self::Velocity => "vel_err",
            Self::Attribute => "attr_err",
        }
    }

    /// Whether the kind means something for the class.
    fn is_defined_for(self, class: ObjectClass) -> bool {
        match self {
            Self::Translation | Self::Scale => true,
            Self::Orientation => class != ObjectClass::TrafficCone,
            Self::Velocity | Self::Attribute => {
                !matches!(class, ObjectClass::TrafficCone | ObjectClass::Barrier)
            }
        }
    }

    /// The error of a match, or nothing where it is not known.
    fn of(self, truth: &GlobalBox, found: &GlobalBox) -> Option<f64> {
        match self {
            Self::Translation => Some(truth.ground_distance_m([found.centre[0], found.centre[1]])),
            Self::Scale => Some(1.0 - aligned_iou(truth.size_wlh, found.size_wlh)),
            Self::Orientation => {
                let period = match truth.class {
                    ObjectClass::Barrier => PI,
                    _ => 2.0 * PI,
                };
                let turn = truth.heading_rad() - found.heading_rad();
                Some(((turn + 0.5 * period).rem_euclid(period) - 0.5 * period).abs())
            }
            Self::Velocity => {
                let ([x, y], [fx, fy]) = (truth.velocity?, found.velocity?);
                Some(((fx - x).powi(2) + (fy - y).powi(2)).sqrt())
            }
            Self::Attribute => {
                let truth = truth.attribute?;
                Some(if found.attribute == Some(truth) {
                    0.0
                } else {
                    1.0
                })
            }
        }
    }
}

/// One error of each kind, in the order of [`ErrorKind::ALL`]; nothing where the kind is not defined for the class.
pub type Errors = [Option<f64>; 5];

/// Intersection over union of two boxes laid into each other.
fn aligned_iou(a: [f64; 3], b: [f64; 3]) -> f64 {
    let volume = |size: [f64; 3]| size[0] * size[1] * size[2];
    let shared = volume(std::array::from_fn(|i| a[i].min(b[i])));
    shared / (volume(a) + volume(b) - shared)
}

/// The errors of a class from its matches, averaged over the recalls that count; and the curves behind them.
pub(super) fn errors(
    candidates: &Candidates<'_>,
    visits: &[Visit],
    curve: &Curve,
) -> Result<Errors, DetectionError> {
    let matches: Vec<(f64, &GlobalBox, &GlobalBox)> = visits
        .iter()
        .filter_map(|visit| {
            let prediction = &candidates.predictions[visit.prediction];
            let truth = &candidates.truths[visit.truth?];
            Some((visit.score, truth, prediction))
        })
        .map(|(score, truth, prediction)| {
            check_size(truth, "true", |found| found)?;
            check_size(prediction, "predicted", |prediction| &prediction.found)?;
            Ok((score, truth.counted.value, &prediction.counted.value.found))
        })
        .collect::<Result<_, DetectionError>>()?;
    // From the least sure to the surest, as interpolation wants them.
    let scores: Vec<f64> = matches.iter().rev().map(|m| m.0).collect();
    let error = |kind: ErrorKind| {
        if !kind.is_defined_for(candidates.class) {
            return None;
        }
        let Some(counted) = curve.counted_recalls() else {
            return Some(1.0);
        };
        let errors = matches
            .iter()
            .map(|(_, truth, found)| kind.of(truth, found));
        let mut means = running_means(errors);
        means.reverse();
        let confidences = curve.confidence[counted].iter();
        Some(mean(
            confidences.map(|&score| interpolate(score, &scores, &means, None)),
        ))
    };
    Ok(ErrorKind::ALL.map(error))
}

/// The mean of the known values so far: 0 before the first; 1 throughout when none is known.
fn running_means(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    let (mut sum, mut known) = (0.0, 0_usize);
    let mut means: Vec<f64> = values
        .map(|value| {
            if let Some(value) = value {
                sum += value;
                known += 1;
            }
            sum / known.max(1) as f64
        })
        .collect();
    if known == 0 {
        means.fill(1.0);
    }
    means
}

fn check_size<B>(
    candidate: &Candidate<'_, B>,
    side: &'static str,
    place: impl Fn(&B) -> &GlobalBox,
) -> Result<(), DetectionError> {
    let found = place(candidate.counted.value);
    if found.size_wlh.iter().all(|v| *v > 0.0) {
        return Ok(());
    }
    Err(DetectionError::Box {
        token: candidate.token.to_owned(),
        side,
        index: candidate.counted.index,
        class: found.class.name(),
        what: format!("size {:?}, expected more than 0", found.size_wlh),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_means_skip_what_is_unknown() {
        let means = |values: &[Option<f64>]| running_means(values.iter().copied());
        assert_eq!(
            means(&[None, Some(2.0), None, Some(4.0)]),
            [0.0, 2.0, 2.0, 3.0]
        );
        assert_eq!(means(&[None, None]), [1.0, 1.0]);
        assert!(means(&[]).is_empty());
    }

    #[test]
    fn boxes_are_laid_into_each_other() {
        assert_eq!(aligned_iou([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), 1.0);
        assert_eq!(aligned_iou([1.0, 2.0, 1.0], [2.0, 1.0, 1.0]), 1.0 / 3.0);
    }
}
