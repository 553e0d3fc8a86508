use percept_data::augment::{Transform, TransformError, ViewKey};
use percept_data::images::RgbImage;
use percept_kernels::Cpu;
use percept_models::preprocess::Preprocess;

/// A network's own preprocessing, always the same, for batches to evaluate it with.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation {
    /// What is done to a picture.
    pub preprocess: Preprocess,
    /// Height and width of the network's input.
    pub size: [usize; 2],
}

impl Transform for Evaluation {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn apply(
        &self,
        _: &Cpu,
        image: &RgbImage,
        _: &ViewKey,
        planes: &mut [f32],
    ) -> Result<(), TransformError> {
        let (size, to) = ([image.height, image.width], Some(self.size));
        let tensor = self.preprocess.apply(&image.pixels, size, to);
        let tensor = tensor.map_err(|error| TransformError::Other(error.into()))?;
        planes.copy_from_slice(&tensor.to_f32());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use percept_data::augment::{Augment, AugmentConfig, Normalise, RandomResizedCrop};
    use percept_data::classification::{Birds, BirdsConfig, ImageDataset};
    use percept_models::preprocess::{Fit, IMAGENET_MEAN, IMAGENET_STD, PillowFilter};

    use super::*;

    const EVALUATION: Evaluation = Evaluation {
        preprocess: Preprocess {
            fit: Fit::CoverAndCrop {
                covered: 40,
                kept: 40,
            },
            filter: PillowFilter::Bilinear,
        },
        size: [40, 40],
    };

    fn apply(transform: &dyn Transform, image: &RgbImage) -> Vec<f32> {
        let mut planes = vec![f32::NAN; 3 * 40 * 40];
        let cpu = Cpu::new(1).unwrap();
        transform
            .apply(&cpu, image, &ViewKey::default(), &mut planes)
            .unwrap();
        planes
    }

    #[test]
    fn training_without_any_change_sees_what_evaluation_sees() {
        let image = Birds::new(BirdsConfig::default())
            .unwrap()
            .image(0)
            .unwrap();
        let config = AugmentConfig {
            crop: RandomResizedCrop {
                scale: [1.0, 1.0],
                ratio: [1.0, 1.0],
            },
            flip: 0.0,
            ..AugmentConfig::default()
        };
        let normalise = Normalise {
            mean: IMAGENET_MEAN,
            std: IMAGENET_STD,
        };
        let training = Augment::new(config, EVALUATION.size, normalise).unwrap();
        assert_eq!(apply(&training, &image), apply(&EVALUATION, &image));
    }

    #[test]
    fn a_picture_that_cannot_be_resized_is_refused() {
        let image = RgbImage {
            width: 1_000_000,
            height: 1,
            pixels: vec![0; 3_000_000],
        };
        let cpu = Cpu::new(1).unwrap();
        let huge = Evaluation {
            size: [4000, 4000],
            ..EVALUATION
        };
        let mut planes = vec![0.0; 3 * 4000 * 4000];
        let error = huge.apply(&cpu, &image, &ViewKey::default(), &mut planes);
        assert!(error.unwrap_err().to_string().contains("too large"));
    }
}
