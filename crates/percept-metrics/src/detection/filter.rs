//! Which boxes count: in range, with points, not in a bicycle rack.

use std::collections::{HashMap, HashSet};

use percept_data::points::{ObjectClass, Quaternion};

use super::boxes::{FramePredictions, FrameTruth, GlobalBox, Prediction};
use super::error::DetectionError;

/// The most predictions in a frame, over all classes and before any filter.
pub const MAX_BOXES: usize = 500;

/// What may be chosen about the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectionSettings {
    /// For each class, by id: boxes count when their middle is nearer to the vehicle than this, metres.
    pub ranges_m: [f64; 10],
    /// Slices by distance lie between neighbours of these, metres.
    pub distance_edges_m: Vec<f64>,
    /// Slices by number of points begin at each of these.
    pub point_edges: Vec<u64>,
}

impl Default for DetectionSettings {
    /// The official ranges.
    fn default() -> Self {
        Self {
            ranges_m: ObjectClass::ALL.map(official_range_m),
            distance_edges_m: vec![0.0, 10.0, 20.0, 30.0, 40.0, 50.0],
            point_edges: vec![1, 5, 15, 50],
        }
    }
}

impl DetectionSettings {
    /// These settings with no class's range beyond `limit_m`: what a network that sees no further is measured by.
    pub fn within_m(mut self, limit_m: f64) -> Self {
        self.ranges_m = self.ranges_m.map(|range| range.min(limit_m));
        self.distance_edges_m.retain(|edge| *edge < limit_m);
        self.distance_edges_m.push(limit_m);
        self
    }
}

fn official_range_m(class: ObjectClass) -> f64 {
    match class {
        ObjectClass::Car
        | ObjectClass::Truck
        | ObjectClass::Bus
        | ObjectClass::Trailer
        | ObjectClass::ConstructionVehicle => 50.0,
        ObjectClass::Pedestrian | ObjectClass::Motorcycle | ObjectClass::Bicycle => 40.0,
        ObjectClass::TrafficCone | ObjectClass::Barrier => 30.0,
    }
}

/// A box that counts, and how far from the vehicle it is.
#[derive(Debug)]
pub(super) struct Counted<'a, B> {
    pub value: &'a B,
    pub distance_m: f64,
    /// The box's place in its frame before filtering.
    pub index: usize,
}

/// What counts in a frame, in the order in which it was listed.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub token: &'a str,
    pub truths: Vec<Counted<'a, GlobalBox>>,
    pub predictions: Vec<Counted<'a, Prediction>>,
}

/// The frames in the order of `predictions`, with what counts in them.
pub(super) fn filtered<'a>(
    truth: &'a [FrameTruth],
    predictions: &'a [FramePredictions],
    settings: &DetectionSettings,
) -> Result<Vec<Frame<'a>>, DetectionError> {
    let truth_of = paired(truth, predictions)?;
    let mut frames = Vec::with_capacity(predictions.len());
    for (frame, truth) in predictions.iter().zip(truth_of) {
        check(truth, frame)?;
        // The distance of a box that counts.
        let counts = |found: &GlobalBox| -> Option<f64> {
            let distance_m = found.ground_distance_m(truth.ego);
            let in_range = distance_m < settings.ranges_m[found.class.id()];
            let two_wheels = matches!(found.class, ObjectClass::Bicycle | ObjectClass::Motorcycle);
            let in_rack = || truth.bicycle_racks.iter().any(|r| r.contains(found.centre));
            let counts = in_range && found.points != Some(0) && !(two_wheels && in_rack());
            counts.then_some(distance_m)
        };
        frames.push(Frame {
            token: &frame.token,
            truths: counted(&truth.boxes, counts),
            predictions: counted(&frame.boxes, |prediction| counts(&prediction.found)),
        });
    }
    Ok(frames)
}

fn counted<B>(boxes: &[B], distance_m: impl Fn(&B) -> Option<f64>) -> Vec<Counted<'_, B>> {
    let counted = |(index, value)| {
        Some(Counted {
            value,
            distance_m: distance_m(value)?,
            index,
        })
    };
    boxes.iter().enumerate().filter_map(counted).collect()
}

/// The truth of each frame of `predictions`.
fn paired<'a>(
    truth: &'a [FrameTruth],
    predictions: &[FramePredictions],
) -> Result<Vec<&'a FrameTruth>, DetectionError> {
    let twice = |token: &str, side| DetectionError::FrameTwice {
        token: token.to_owned(),
        side,
    };
    let other = |token: &str, side| DetectionError::OtherFrames {
        token: token.to_owned(),
        side,
    };
    let mut of_token = HashMap::with_capacity(truth.len());
    for frame in truth {
        if of_token.insert(frame.token.as_str(), frame).is_some() {
            return Err(twice(&frame.token, "truth"));
        }
    }
    let mut pairs = Vec::with_capacity(predictions.len());
    let mut seen = HashSet::with_capacity(predictions.len());
    for frame in predictions {
        if !seen.insert(frame.token.as_str()) {
            return Err(twice(&frame.token, "predictions"));
        }
        let found = of_token.get(frame.token.as_str());
        pairs.push(*found.ok_or_else(|| other(&frame.token, "predictions"))?);
    }
    if let Some(unanswered) = truth
        .iter()
        .find(|frame| !seen.contains(frame.token.as_str()))
    {
        return Err(other(&unanswered.token, "truth"));
    }
    if truth.iter().all(|frame| frame.boxes.is_empty()) {
        return Err(DetectionError::NoBoxes { side: "true" });
    }
    if predictions.iter().all(|frame| frame.boxes.is_empty()) {
        return Err(DetectionError::NoBoxes { side: "predicted" });
    }
    Ok(pairs)
}

/// Refuses numbers that no comparison is defined for. Sizes are looked at when boxes match, as the public code does.
fn check(truth: &FrameTruth, predictions: &FramePredictions) -> Result<(), DetectionError> {
    let token = &truth.token;
    if predictions.boxes.len() > MAX_BOXES {
        return Err(DetectionError::TooManyBoxes {
            token: token.clone(),
            boxes: predictions.boxes.len(),
            limit: MAX_BOXES,
        });
    }
    let fault = |side, index, found: &GlobalBox, what| DetectionError::Box {
        token: token.clone(),
        side,
        index,
        class: found.class.name(),
        what,
    };
    for (index, found) in truth.boxes.iter().enumerate() {
        check_box(found).map_err(|what| fault("true", index, found, what))?;
    }
    for (index, Prediction { found, score }) in predictions.boxes.iter().enumerate() {
        let score_is_right = *score >= 0.0 && score.is_finite();
        let fault = |what| fault("predicted", index, found, what);
        if !score_is_right {
            return Err(fault(format!("score {score}, expected at least 0")));
        }
        check_box(found).map_err(fault)?;
    }
    Ok(())
}

fn check_box(found: &GlobalBox) -> Result<(), String> {
    let Quaternion(rotation) = found.rotation;
    if !found.centre.iter().all(|v| v.is_finite()) {
        return Err(format!("centre {:?}", found.centre));
    }
    if !found.size_wlh.iter().all(|v| v.is_finite()) {
        return Err(format!("size {:?}", found.size_wlh));
    }
    if !rotation.iter().all(|v| v.is_finite()) || rotation.iter().all(|v| *v == 0.0) {
        return Err(format!("rotation {rotation:?}"));
    }
    Ok(())
}
