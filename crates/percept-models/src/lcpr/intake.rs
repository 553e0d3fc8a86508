//! What LCPR looks at: six pictures and a sweep.

use std::sync::Arc;

use percept_data::points::LidarConvention;
use percept_data::{Datum, Example, Sample, SampleError};
use percept_graph::Tensor;
use percept_kernels::Cpu;

use super::CAMERAS;
use super::range_image::{RangeImage, range_image};
use crate::intake::{InputShapes, Intake, Part, PartKind, Sizes};
use crate::preprocess::{Fit, PillowFilter, Preprocess};

/// The part, and the input, of the pictures.
pub const CAMERA: &str = "camera";
/// The part, and the input, of the range image.
pub const RANGE: &str = "range";

/// Six pictures, stretched and normalised, and a sweep as a range image. Either can be left out: the network then sees the mean
/// colour, or a sweep without points.
#[derive(Clone, Debug)]
pub struct PlaceIntake {
    /// Usual sizes of the pictures and of the range image.
    sizes: [[usize; 2]; 2],
    parts: Vec<Part>,
}

impl PlaceIntake {
    /// Pictures and range images of usually these heights and widths.
    pub fn new(camera: [usize; 2], range: [usize; 2]) -> Self {
        let parts = vec![
            Part {
                name: CAMERA,
                kind: PartKind::Images,
                size: Some(camera),
                what: "pictures of six cameras: front, front right, back right, back, back left, front left",
            },
            Part {
                name: RANGE,
                kind: PartKind::Points(LidarConvention::NuScenes),
                size: Some(range),
                what: "a LiDAR sweep, seen as a range image",
            },
        ];
        Self {
            sizes: [camera, range],
            parts,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.name == name)
    }

    fn sizes(&self, sizes: &Sizes) -> [[usize; 2]; 2] {
        let [camera, range] = self.sizes;
        [(CAMERA, camera), (RANGE, range)]
            .map(|(part, usual)| sizes.get(part).copied().unwrap_or(usual))
    }
}

const PREPROCESS: Preprocess = Preprocess {
    fit: Fit::Stretch { multiple_of: 1 },
    filter: PillowFilter::Bilinear,
};

fn pictures(sample: &Sample, size: [usize; 2]) -> Result<Tensor<'static>, SampleError> {
    let unusable = |reason: String| SampleError::Unusable {
        sample: sample.name.clone(),
        reason,
    };
    let images = match sample.part(CAMERA)? {
        Datum::Tensor(tensor) => return Ok(tensor.clone()),
        Datum::Images(images) => images,
        other => return Err(sample.other_kind(CAMERA, "six images", other)),
    };
    if images.len() != CAMERAS {
        let count = images.len();
        return Err(unusable(format!(
            "`{CAMERA}` has {count} images, expected {CAMERAS}"
        )));
    }
    let mut data: Vec<f32> = Vec::with_capacity(CAMERAS * 3 * size[0] * size[1]);
    for image in images {
        let own = [image.height, image.width];
        let picture = PREPROCESS.apply(&image.pixels, own, Some(size));
        let picture = picture.map_err(|error| unusable(error.to_string()))?;
        data.extend(&*picture.to_f32());
    }
    let shape = [1, CAMERAS, 3, size[0], size[1]];
    Tensor::from_values(shape, data).map_err(|error| unusable(error.to_string()))
}

fn distances(sample: &Sample, size: [usize; 2]) -> Result<Tensor<'static>, SampleError> {
    let frame = match sample.part(RANGE)? {
        Datum::Tensor(tensor) => return Ok(tensor.clone()),
        Datum::Frame(frame) => frame,
        other => return Err(sample.other_kind(RANGE, "LiDAR points", other)),
    };
    if frame.points.is_empty() {
        return Err(SampleError::Unusable {
            sample: sample.name.clone(),
            reason: format!("`{RANGE}` has no points"),
        });
    }
    Ok(as_tensor(range_image(frame, size)))
}

fn as_tensor(image: RangeImage) -> Tensor<'static> {
    let shape = [1, 1, image.size[0], image.size[1]];
    Tensor::from_values(shape, image.metres).expect("a distance for each pixel")
}

impl Intake for PlaceIntake {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn shapes(&self, sizes: &Sizes) -> InputShapes {
        let [[h, w], [hl, wl]] = self.sizes(sizes);
        vec![
            (CAMERA, vec![1, CAMERAS, 3, h, w]),
            (RANGE, vec![1, 1, hl, wl]),
        ]
    }

    fn example(&self, _: &Cpu, sample: &Sample, sizes: &Sizes) -> Result<Example, SampleError> {
        let [camera, range] = self.sizes(sizes);
        let camera = match self.has(CAMERA) {
            true => pictures(sample, camera)?,
            // The mean colour, normalised.
            false => {
                let shape = [1, CAMERAS, 3, camera[0], camera[1]];
                let zeros = vec![0.0f32; shape.iter().product()];
                Tensor::from_values(shape, zeros).expect("a number for each pixel")
            }
        };
        let range = match self.has(RANGE) {
            true => distances(sample, range)?,
            false => as_tensor(RangeImage::empty(range)),
        };
        Ok(Example::of_one([(CAMERA, camera), (RANGE, range)]))
    }

    fn without(&self, part: &str) -> Option<Arc<dyn Intake>> {
        let mut rest = self.clone();
        rest.parts.retain(|known| known.name != part);
        let one_left = rest.parts.len() + 1 == self.parts.len() && !rest.parts.is_empty();
        one_left.then(|| Arc::new(rest) as Arc<dyn Intake>)
    }
}

#[cfg(test)]
mod tests {
    use percept_data::images::RgbImage;
    use percept_data::points::{LidarFrame, Point};

    use super::*;

    fn sample(images: usize, points: usize) -> Sample {
        let image = RgbImage::filled(1, 1, [124, 116, 104]);
        let point = Point {
            position: [0.1, 10.0, 0.0],
            intensity: 0.0,
            age_s: 0.0,
            ring: None,
        };
        let frame = LidarFrame::from_points(LidarConvention::NuScenes, vec![point; points]);
        Sample::of("a", CAMERA, Datum::Images(vec![image; images]))
            .with(RANGE, Datum::Frame(Box::new(frame)))
    }

    fn example(intake: &dyn Intake, sample: &Sample) -> Result<Example, String> {
        let cpu = Cpu::new(1).unwrap();
        let example = intake.example(&cpu, sample, &Sizes::new());
        example.map_err(|error| error.to_string())
    }

    #[test]
    fn a_pixel_is_stretched_and_missing_things_are_named() {
        let intake = PlaceIntake::new([4, 8], [2, 16]);
        let all = example(&intake, &sample(6, 1)).unwrap();
        assert_eq!(all.get(CAMERA).unwrap().shape(), [1, 6, 3, 4, 8]);
        assert_eq!(all.get(RANGE).unwrap().shape(), [1, 1, 2, 16]);
        let five = example(&intake, &sample(5, 1)).unwrap_err();
        assert_eq!(five, "a: `camera` has 5 images, expected 6");
        let none = example(&intake, &sample(6, 0)).unwrap_err();
        assert_eq!(none, "a: `range` has no points");
    }

    #[test]
    fn a_part_can_be_left_out() {
        let intake = PlaceIntake::new([4, 8], [2, 16]);
        let blind = intake.without(CAMERA).unwrap();
        assert_eq!(blind.parts().len(), 1);
        let seen = example(&*blind, &sample(0, 1)).unwrap();
        assert!(seen.get(CAMERA).unwrap().to_f32().iter().all(|v| *v == 0.0));
        let without_range = intake.without(RANGE).unwrap();
        let seen = example(&*without_range, &sample(6, 0)).unwrap();
        assert!(seen.get(RANGE).unwrap().to_f32().iter().all(|v| *v == -1.0));
        assert!(blind.without(RANGE).is_none() && intake.without("radar").is_none());
    }
}
