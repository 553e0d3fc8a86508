//! The same predictions by distance and by number of points.

use percept_data::points::ObjectClass;
use serde_json::{Map, Value, json};

use super::ERROR_THRESHOLD;
use super::curve::{Curve, mean};
use super::filter::DetectionSettings;
use super::matching::{Candidates, Visit};

/// A part of the true boxes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slice {
    /// Their middle is at least as far from the vehicle as the first, and nearer than the second, metres.
    /// Predictions that match nothing belong to the slice that they lie in.
    Distance(f64, f64),
    /// At least as many points as the first, and fewer than the second if there is one. Predictions that match nothing
    /// count in every slice, because nobody knows how many points they should have.
    Points(u64, Option<u64>),
}

impl Slice {
    /// E.g. `10-20 m`, `5-14 points`.
    pub fn name(&self) -> String {
        match self {
            Self::Distance(from, to) => format!("{from}-{to} m"),
            Self::Points(from, None) => format!("{from} points and more"),
            Self::Points(from, Some(to)) => format!("{from}-{} points", to.saturating_sub(1)),
        }
    }

    fn has_distance(&self, distance_m: f64) -> bool {
        match *self {
            Self::Distance(from, to) => (from..to).contains(&distance_m),
            Self::Points(..) => true,
        }
    }

    fn has_points(&self, points: Option<u64>) -> bool {
        match *self {
            Self::Distance(..) => true,
            Self::Points(from, to) => {
                points.is_some_and(|points| points >= from && to.is_none_or(|to| points < to))
            }
        }
    }
}

/// A class in a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassInSlice {
    /// Which.
    pub class: ObjectClass,
    /// True boxes in the slice.
    pub truths: usize,
    /// How many of them were found at 2 m, at any score.
    pub found: usize,
    /// Mean over the thresholds; nothing when there is no true box.
    pub average_precision: Option<f64>,
}

/// All classes in a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceFigures {
    /// Which part.
    pub slice: Slice,
    /// By class id.
    pub classes: Vec<ClassInSlice>,
}

impl SliceFigures {
    /// The mean over the classes that have true boxes in the slice.
    pub fn mean_average_precision(&self) -> Option<f64> {
        let known = self.classes.iter().filter_map(|c| c.average_precision);
        let known: Vec<f64> = known.collect();
        (!known.is_empty()).then(|| mean(known.into_iter()))
    }

    pub(super) fn to_json(&self) -> Value {
        let class = |class: &ClassInSlice| {
            let figures = json!({
                "truths": class.truths,
                "found": class.found,
                "ap": class.average_precision,
            });
            (class.class.name().to_owned(), figures)
        };
        json!({
            "slice": self.slice.name(),
            "mean_ap": self.mean_average_precision(),
            "classes": self.classes.iter().map(class).collect::<Map<_, _>>(),
        })
    }
}

/// Slices being filled class by class.
#[derive(Debug)]
pub(super) struct Slices(Vec<SliceFigures>);

impl Slices {
    pub fn new(settings: &DetectionSettings) -> Self {
        let distances = settings.distance_edges_m.windows(2);
        let distances = distances.map(|edge| Slice::Distance(edge[0], edge[1]));
        let edges = &settings.point_edges;
        let points = edges.iter().enumerate();
        let points = points.map(|(i, from)| Slice::Points(*from, edges.get(i + 1).copied()));
        let empty = |slice| SliceFigures {
            slice,
            classes: Vec::new(),
        };
        Self(distances.chain(points).map(empty).collect())
    }

    pub fn add(&mut self, candidates: &Candidates<'_>, visits: &[Vec<Visit>; 4]) {
        for figures in &mut self.0 {
            let slice = figures.slice;
            let has_truth = |truth: usize| {
                let truth = &candidates.truths[truth].counted;
                slice.has_distance(truth.distance_m) && slice.has_points(truth.value.points)
            };
            let has_visit = |visit: &&Visit| match visit.truth {
                Some(truth) => has_truth(truth),
                None => {
                    let prediction = &candidates.predictions[visit.prediction];
                    slice.has_distance(prediction.counted.distance_m)
                }
            };
            let truths = (0..candidates.truths.len())
                .filter(|&t| has_truth(t))
                .count();
            let average_precision = |visits: &Vec<Visit>| {
                let visits = visits.iter().filter(has_visit);
                let visits = visits.map(|visit| (visit.score, visit.truth.is_some()));
                Curve::of(visits, truths).average_precision()
            };
            let found = visits[ERROR_THRESHOLD].iter().filter_map(|v| v.truth);
            figures.classes.push(ClassInSlice {
                class: candidates.class,
                truths,
                found: found.filter(|&truth| has_truth(truth)).count(),
                average_precision: (truths > 0).then(|| mean(visits.iter().map(average_precision))),
            });
        }
    }

    pub fn into_figures(self) -> Vec<SliceFigures> {
        self.0
    }
}
