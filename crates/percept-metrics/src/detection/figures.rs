//! The figures, and their public JSON form.

use percept_data::points::ObjectClass;
use serde_json::{Map, Value, json};

use super::curve::{Curve, mean};
use super::error::DetectionError;
use super::matching::{Candidates, Visit};
use super::slices::SliceFigures;
use super::true_positive::{ErrorKind, Errors, errors};
use super::{ERROR_THRESHOLD, THRESHOLDS_M};

/// mAP counts as much as this many errors.
const MEAN_AP_WEIGHT: f64 = 5.0;

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFigures {
    /// Which.
    pub class: ObjectClass,
    /// True boxes that count.
    pub truths: usize,
    /// Predictions that count.
    pub predictions: usize,
    /// Average precision at [`THRESHOLDS_M`].
    pub average_precisions: [f64; 4],
    /// The mean of those.
    pub average_precision: f64,
    /// Of the matches at 2 m.
    pub errors: Errors,
    /// At [`THRESHOLDS_M`].
    pub curves: [Curve; 4],
}

impl ClassFigures {
    /// From every prediction's turn at each threshold.
    pub(super) fn of(
        candidates: &Candidates<'_>,
        visits: &[Vec<Visit>; 4],
    ) -> Result<Self, DetectionError> {
        let truths = candidates.truths.len();
        let curves = visits
            .each_ref()
            .map(|visits| Curve::of(visits.iter().map(|v| (v.score, v.truth.is_some())), truths));
        let average_precisions = curves.each_ref().map(Curve::average_precision);
        let errors = errors(
            candidates,
            &visits[ERROR_THRESHOLD],
            &curves[ERROR_THRESHOLD],
        )?;
        Ok(Self {
            class: candidates.class,
            truths,
            predictions: candidates.predictions.len(),
            average_precision: mean(average_precisions.into_iter()),
            average_precisions,
            errors,
            curves,
        })
    }
}

/// All classes.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectionFigures {
    /// By class id.
    pub classes: Vec<ClassFigures>,
    /// Mean average precision over the ten classes.
    pub mean_average_precision: f64,
    /// Mean errors over the classes that each is defined for, in the order of [`ErrorKind::ALL`].
    pub mean_errors: [f64; 5],
    /// The nuScenes detection score.
    pub nds: f64,
    /// By distance, then by number of points.
    pub slices: Vec<SliceFigures>,
}

impl DetectionFigures {
    pub(super) fn of(classes: Vec<ClassFigures>, slices: Vec<SliceFigures>) -> Self {
        let mean_average_precision = mean(classes.iter().map(|class| class.average_precision));
        let mean_errors = std::array::from_fn(|kind| {
            let defined: Vec<f64> = classes.iter().filter_map(|c| c.errors[kind]).collect();
            mean(defined.into_iter())
        });
        let score: f64 = mean_errors.iter().map(|error| error_score(*error)).sum();
        let weights = MEAN_AP_WEIGHT + mean_errors.len() as f64;
        Self {
            classes,
            mean_average_precision,
            mean_errors,
            nds: (MEAN_AP_WEIGHT * mean_average_precision + score) / weights,
            slices,
        }
    }

    /// The layout of the public code's `metrics_summary.json`, and `slices` beside it.
    pub fn to_json(&self) -> Value {
        let mut label_aps = Map::new();
        let mut mean_dist_aps = Map::new();
        let mut label_tp_errors = Map::new();
        for class in &self.classes {
            let name = class.class.name().to_owned();
            let aps = THRESHOLDS_M.iter().zip(class.average_precisions);
            let aps: Map<String, Value> =
                aps.map(|(m, ap)| (format!("{m:.1}"), json!(ap))).collect();
            label_aps.insert(name.clone(), Value::Object(aps));
            mean_dist_aps.insert(name.clone(), json!(class.average_precision));
            label_tp_errors.insert(name, by_kind(class.errors.map(|error| json!(error))));
        }
        json!({
            "label_aps": label_aps,
            "mean_dist_aps": mean_dist_aps,
            "mean_ap": self.mean_average_precision,
            "label_tp_errors": label_tp_errors,
            "tp_errors": by_kind(self.mean_errors.map(|error| json!(error))),
            "tp_scores": by_kind(self.mean_errors.map(|error| json!(error_score(error)))),
            "nd_score": self.nds,
            "slices": self.slices.iter().map(SliceFigures::to_json).collect::<Vec<_>>(),
        })
    }
}

fn error_score(error: f64) -> f64 {
    (1.0 - error).max(0.0)
}

fn by_kind(values: [Value; 5]) -> Value {
    let named = ErrorKind::ALL.iter().map(|kind| kind.name().to_owned());
    Value::Object(named.zip(values).collect())
}
