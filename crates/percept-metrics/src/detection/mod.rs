//! nuScenes' detection metric: AP at 0.5, 1, 2 and 4 m, the five errors of true positives, mAP and NDS.
//!
//! The rules are those of nuscenes-devkit 1.2.0 (`detection_cvpr_2019`), and the figures equal its own to rounding:
//!
//! 1. **Filter**, truth and predictions alike: the middle lies nearer to the vehicle than the range of the box's own
//!    class; a box with no point in it goes; two-wheelers in a bicycle rack go.
//! 2. **Match**, class by class and threshold by threshold: predictions of all frames by falling score (of equal ones the
//!    last listed first) take the nearest truth of their frame that nobody has, if its middle is nearer than the threshold in
//!    the ground plane.
//! 3. **Curves** over 101 recalls 0, 0.01, .. 1, by linear interpolation without an envelope; precision beyond the
//!    reached recall is 0. AP = mean over recalls above 0.1 of max(0, precision - 0.1), over 0.9.
//! 4. **Errors** of the matches at 2 m: translation (m), scale (1 - IoU of aligned boxes), orientation (rad; barriers
//!    look the same from behind), velocity (m/s), attribute (1 - accuracy): running means in the order of scores, read at the 101
//!    recalls' scores, averaged from recall 0.11 to the reached one; 1 where that is less.
//! 5. **Means** over all ten classes; a class without truth has AP 0 and errors 1. Cones have no orientation, cones and
//!    barriers neither velocity nor attribute. NDS = (5 mAP + Σ max(0, 1 - error)) / 10.
//!
//! By distance and by number of points ([`Slice`]) is ours: every prediction is matched as above, among all truths; then
//! those matched to a truth outside of the slice are left out.

mod boxes;
mod curve;
mod error;
mod figures;
mod filter;
mod matching;
pub mod results;
mod slices;
#[cfg(test)]
mod tests;
mod true_positive;
mod truth;

pub use boxes::{Attribute, BicycleRack, FramePredictions, FrameTruth, GlobalBox, Prediction};
pub use curve::{Curve, RECALLS};
pub use error::DetectionError;
pub use figures::{ClassFigures, DetectionFigures};
pub use filter::{DetectionSettings, MAX_BOXES};
pub use slices::{ClassInSlice, Slice, SliceFigures};
pub use true_positive::{ErrorKind, Errors};

use percept_data::points::ObjectClass;

/// Metres between middles below which a prediction counts as right.
pub const THRESHOLDS_M: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// The threshold whose matches give the errors of true positives.
pub(crate) const ERROR_THRESHOLD: usize = 2;

/// What `predictions` are worth: one frame of them for each frame of `truth`, in any order.
pub fn evaluate(
    truth: &[FrameTruth],
    predictions: &[FramePredictions],
    settings: &DetectionSettings,
) -> Result<DetectionFigures, DetectionError> {
    let frames = filter::filtered(truth, predictions, settings)?;
    let mut classes = Vec::with_capacity(ObjectClass::ALL.len());
    let mut slices = slices::Slices::new(settings);
    for class in ObjectClass::ALL {
        let candidates = matching::Candidates::of(class, &frames);
        let visits = THRESHOLDS_M.map(|threshold_m| candidates.matched_within(threshold_m));
        classes.push(ClassFigures::of(&candidates, &visits)?);
        slices.add(&candidates, &visits);
    }
    Ok(DetectionFigures::of(classes, slices.into_figures()))
}
