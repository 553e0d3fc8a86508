//! What answers are worth: each task's public metric, computed in f64 from plain data.
//!
//! - [`detection`]: nuScenes' detection metric, equal to nuscenes-devkit's figures.
//! - [`segmentation`]: intersection over union of labelled points, by class and by distance.
//! - [`retrieval`]: recall at k and the best F1 of places found again.
//!
//! A metric takes truth and answers and gives figures. It knows neither networks nor files of weights; each
//! module says at its head what it computes.

pub mod detection;
pub mod matching;
pub mod retrieval;
pub mod segmentation;
