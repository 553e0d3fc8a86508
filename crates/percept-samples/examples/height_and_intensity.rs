//! What height over the sensor and intensity alone tell about the points of held-out towns: the baseline that a network which labels
//! points must beat.
//!
//! `cargo run --release -p percept-samples --example height_and_intensity`
//!
//! Cells of 10 cm by 0.05 count the classes of all training points; a point of a held-out scan takes the commonest class of its
//! cell, or, in the second row, the commonest one after the weights that the network learns with.

use std::error::Error;

use percept_data::Sample;
use percept_data::points::{LEARNED_CLASS_NAMES, Point};
use percept_metrics::segmentation::Confusion;
use percept_models::lesson::DataKind;
use percept_models::randlanet::class_weights;
use percept_samples::training::DataConfig;

const CLASSES: usize = LEARNED_CLASS_NAMES.len();
const HEIGHTS: usize = 100;
const LOWEST_M: f32 = -4.0;
const HEIGHT_M: f32 = 0.1;
const INTENSITIES: usize = 20;
/// Classes with a smaller share of the held-out points do not enter the mean.
const COMMON_SHARE: f64 = 0.001;

fn cell(point: &Point) -> usize {
    let height = ((point.position[2] - LOWEST_M) / HEIGHT_M).clamp(0.0, (HEIGHTS - 1) as f32);
    let intensity = (point.intensity * INTENSITIES as f32).clamp(0.0, (INTENSITIES - 1) as f32);
    height as usize * INTENSITIES + intensity as usize
}

/// Each point's cell with its class.
fn points(sample: &Sample) -> Result<Vec<(usize, u16)>, Box<dyn Error>> {
    let frame = sample.frame("points")?;
    let labels = frame.labels.iter().flatten();
    let class = labels.map(|label| u16::from(label.learned_class()));
    Ok(frame.points.iter().map(cell).zip(class).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let data = DataConfig::default().open(DataKind::Scans, 0, None)?;
    let mut counts = vec![[0u64; CLASSES]; HEIGHTS * INTENSITIES];
    for index in 0..data.training.len() {
        for (cell, class) in points(&data.training.sample(index)?)? {
            counts[cell][usize::from(class)] += 1;
        }
    }
    let mut totals = [0u64; CLASSES];
    for cell in &counts {
        (0..CLASSES).for_each(|class| totals[class] += cell[class]);
    }
    let weights = class_weights(&totals);
    for (name, weighs) in [("commonest", false), ("weighted", true)] {
        let answer = |cell: &[u64; CLASSES]| -> u16 {
            let score = |class: usize| {
                let weight = if weighs { weights[class - 1] } else { 1.0 };
                cell[class] as f64 * f64::from(weight)
            };
            let better = |best, class| {
                if score(class) > score(best) {
                    class
                } else {
                    best
                }
            };
            (2..CLASSES).fold(1, better) as u16
        };
        let answers: Vec<u16> = counts.iter().map(answer).collect();
        let mut confusion = Confusion::new(CLASSES, Some(0));
        for index in 0..data.testing.len() {
            let points = points(&data.testing.sample(index)?)?;
            let truth: Vec<u16> = points.iter().map(|(_, class)| *class).collect();
            let told: Vec<u16> = points.iter().map(|(cell, _)| answers[*cell]).collect();
            confusion.add(&truth, &told)?;
        }
        let percent = |share: Option<f64>| 100.0 * share.unwrap_or(f64::NAN);
        let (present, common) = (
            confusion.classes_with_share(0.0),
            confusion.classes_with_share(COMMON_SHARE),
        );
        println!(
            "{name}: mIoU {:.1} %, of the {} classes with 0.1 % of the points {:.1} %, accuracy {:.1} %, {} scans",
            percent(confusion.mean_iou_of(&present)),
            common.len(),
            percent(confusion.mean_iou_of(&common)),
            percent(confusion.accuracy()),
            data.testing.len()
        );
    }
    Ok(())
}
