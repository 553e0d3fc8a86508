//! Networks that look at one picture.

use percept_data::{Example, Sample, SampleError};
use percept_kernels::Cpu;

use super::{InputShapes, Intake, Part, PartKind, Sizes};
use crate::preprocess::Preprocess;

/// The name of the part, and of the input that takes it.
const IMAGE: &str = "image";

/// A picture, brought to the network's size and normalised.
#[derive(Clone, Debug)]
pub struct ImageIntake {
    preprocess: Preprocess,
    parts: [Part; 1],
}

impl ImageIntake {
    /// Pictures of usually this height and width.
    pub fn new(preprocess: Preprocess, size: [usize; 2]) -> Self {
        let part = Part {
            name: IMAGE,
            kind: PartKind::Image,
            size: Some(size),
            what: "a picture",
        };
        Self {
            preprocess,
            parts: [part],
        }
    }
}

impl Intake for ImageIntake {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn shapes(&self, sizes: &Sizes) -> InputShapes {
        let [part] = &self.parts;
        let [height, width] = sizes.get(IMAGE).copied().or(part.size).unwrap_or_default();
        vec![(IMAGE, vec![1, 3, height, width])]
    }

    fn example(&self, _: &Cpu, sample: &Sample, sizes: &Sizes) -> Result<Example, SampleError> {
        let image = sample.image(IMAGE)?;
        let size = [image.height, image.width];
        let asked = sizes.get(IMAGE).copied();
        let tensor = self.preprocess.apply(&image.pixels, size, asked);
        let tensor = tensor.map_err(|error| SampleError::Unusable {
            sample: sample.name.clone(),
            reason: error.to_string(),
        })?;
        Ok(Example::of_one([(IMAGE, tensor)]))
    }

    fn picture(&self) -> Option<&Preprocess> {
        Some(&self.preprocess)
    }
}

#[cfg(test)]
mod tests {
    use percept_data::Datum;
    use percept_data::images::RgbImage;

    use super::*;
    use crate::preprocess::{Fit, PillowFilter};

    #[test]
    fn pictures_get_the_asked_size_or_the_nearest() {
        let fit = Fit::Stretch { multiple_of: 14 };
        let filter = PillowFilter::Bicubic;
        let intake = ImageIntake::new(Preprocess { fit, filter }, [518, 518]);
        let image = RgbImage::filled(30, 15, [1, 2, 3]);
        let sample = Sample::of("a.png", "image", Datum::Image(image));
        let cpu = Cpu::new(1).unwrap();
        let shape = |sizes: &Sizes| {
            let example = intake.example(&cpu, &sample, sizes).unwrap();
            example.get("image").unwrap().shape().to_vec()
        };
        let asked = Sizes::from([("image".to_owned(), [28, 42])]);
        assert_eq!(shape(&Sizes::new()), [1, 3, 14, 28]);
        assert_eq!(shape(&asked), [1, 3, 28, 42]);
        assert_eq!(intake.shapes(&Sizes::new())[0].1, [1, 3, 518, 518]);
        assert_eq!(intake.shapes(&asked)[0].1, [1, 3, 28, 42]);
        let other = Sample::of("a.bin", "points", Datum::Class(1));
        let error = intake.example(&cpu, &other, &asked).unwrap_err();
        assert_eq!(error.to_string(), "a.bin: no part `image`; it has points");
    }
}
