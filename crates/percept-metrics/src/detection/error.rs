//! What cannot be scored.

use thiserror::Error;

/// Why truth and predictions give no figures.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum DetectionError {
    /// A frame stands twice in the truth or in the predictions.
    #[error("frame {token:?} stands twice in the {side}")]
    FrameTwice {
        /// The frame.
        token: String,
        /// The truth or the predictions.
        side: &'static str,
    },
    /// The frames of truth and predictions differ.
    #[error(
        "frame {token:?} is in the {side} only: predictions must name the frames of the truth, each once"
    )]
    OtherFrames {
        /// A frame of one side.
        token: String,
        /// The side that has it.
        side: &'static str,
    },
    /// More boxes than a submission may hold.
    #[error("frame {token:?} has {boxes} predictions: at most {limit} are allowed")]
    TooManyBoxes {
        /// The frame.
        token: String,
        /// Its predictions.
        boxes: usize,
        /// The most that are allowed.
        limit: usize,
    },
    /// There is nothing to compare.
    #[error("there are no {side} boxes at all")]
    NoBoxes {
        /// True or predicted.
        side: &'static str,
    },
    /// A number in a box cannot be.
    #[error("frame {token:?}, {side} box {index} ({class}): {what}")]
    Box {
        /// The frame.
        token: String,
        /// True or predicted.
        side: &'static str,
        /// The box's place in the frame, from 0.
        index: usize,
        /// Its class.
        class: &'static str,
        /// What is wrong.
        what: String,
    },
}
