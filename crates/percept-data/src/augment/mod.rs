//! From a decoded picture to a network's input, changed a little each time: crop, flip, colours, normalisation.
//!
//! Every random number is a function of (seed, epoch, sample, view, purpose), so that a view is the same whichever
//! thread makes it, and a resumed run sees what the uninterrupted one would have seen.

mod colour;
mod crop;
mod pictures;

use percept_kernels::Cpu;
use percept_kernels::resize::{ImageShape, resize_u8_pillow_bilinear};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use colour::ColourJitter;
pub use crop::{RandomResizedCrop, Window};
pub use pictures::{LABELS, PictureViews};

use crate::SettingError;
use crate::images::RgbImage;
use crate::random::Draws;

/// The counters behind the random numbers of one view of one picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewKey {
    /// The seed of the run.
    pub seed: u64,
    /// The pass over the data.
    pub epoch: u64,
    /// The picture's place in its dataset.
    pub sample: u64,
    /// Which of the views of this picture, where a network takes several.
    pub view: u64,
}

impl ViewKey {
    /// The numbers for one purpose; what draws for one purpose leaves the others alone.
    pub fn draws(&self, purpose: u64) -> Draws {
        Draws::of(&[self.seed, self.epoch, self.sample, self.view, purpose])
    }
}

/// What makes a network's input of a decoded picture.
pub trait Transform: Send + Sync {
    /// Height and width of what it makes.
    fn size(&self) -> [usize; 2];

    /// Fills the planes [3, height, width].
    fn apply(
        &self,
        cpu: &Cpu,
        image: &RgbImage,
        key: &ViewKey,
        planes: &mut [f32],
    ) -> Result<(), TransformError>;
}

/// Why a picture could not be transformed.
#[derive(Debug, Error)]
pub enum TransformError {
    /// There is nothing to crop from.
    #[error("an image of {width}x{height} has no pixels")]
    Empty {
        /// Its width.
        width: usize,
        /// Its height.
        height: usize,
    },
    /// A transform from elsewhere refused.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Settings of [`Augment`]; the defaults are torchvision's for ImageNet, without colour jitter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentConfig {
    /// What is cut out before it is resized.
    pub crop: RandomResizedCrop,
    /// The probability that left and right change places.
    pub flip: f64,
    /// Changes of colour.
    pub jitter: ColourJitter,
}

impl Default for AugmentConfig {
    fn default() -> Self {
        Self {
            crop: RandomResizedCrop::default(),
            flip: 0.5,
            jitter: ColourJitter::default(),
        }
    }
}

/// Mean and standard deviation of each colour, in shares of full brightness.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Normalise {
    pub mean: [f32; 3],
    pub std: [f32; 3],
}

/// The usual augmentation of training pictures: random resized crop (bilinear, as Pillow resizes), horizontal flip,
/// colour jitter, normalisation.
#[derive(Clone, Debug)]
pub struct Augment {
    config: AugmentConfig,
    size: [usize; 2],
    normalise: Normalise,
}

/// More pixels a side than any network takes.
const MOST_SIDE: usize = 1 << 15;

/// What random numbers are drawn for. The numbers behind the names are part of what a seed means.
enum Purpose {
    Crop = 0,
    Flip = 1,
    Colour = 2,
}

impl Augment {
    /// Views of `size`, [height, width].
    pub fn new(
        config: AugmentConfig,
        size: [usize; 2],
        normalise: Normalise,
    ) -> Result<Self, SettingError> {
        config.crop.check()?;
        config.jitter.check()?;
        let is_fine = (0.0..=1.0).contains(&config.flip);
        SettingError::unless(is_fine, "flip", config.flip, "0 to 1")?;
        for side in size {
            let is_fine = (1..=MOST_SIDE).contains(&side);
            SettingError::unless(is_fine, "size", side, format!("1 to {MOST_SIDE}"))?;
        }
        Ok(Self {
            config,
            size,
            normalise,
        })
    }
}

impl Transform for Augment {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn apply(
        &self,
        cpu: &Cpu,
        image: &RgbImage,
        key: &ViewKey,
        planes: &mut [f32],
    ) -> Result<(), TransformError> {
        let &RgbImage { width, height, .. } = image;
        if image.pixels.is_empty() {
            return Err(TransformError::Empty { width, height });
        }
        let mut draws = key.draws(Purpose::Crop as u64);
        let window = self.config.crop.window([height, width], &mut draws);
        let cut = window.cut(image);
        let mut pixels = vec![0; 3 * self.size[0] * self.size[1]];
        let shape = ImageShape {
            channels: 3,
            input: [window.height, window.width],
            output: self.size,
        };
        resize_u8_pillow_bilinear(cpu, &shape, &cut, &mut pixels);
        let is_flipped = key.draws(Purpose::Flip as u64).chance(self.config.flip);
        to_planes(&pixels, self.size[1], is_flipped, planes);
        let mut draws = key.draws(Purpose::Colour as u64);
        self.config.jitter.apply(&mut draws, planes);
        normalise(&self.normalise, planes);
        Ok(())
    }
}

/// Interleaved bytes as planes of shares of full brightness, rows reversed if asked.
fn to_planes(pixels: &[u8], width: usize, is_flipped: bool, planes: &mut [f32]) {
    let area = pixels.len() / 3;
    assert_eq!(planes.len(), 3 * area, "length of the planes");
    for channel in 0..3 {
        let plane = &mut planes[channel * area..][..area];
        let rows = plane.chunks_mut(width.max(1));
        for (to, from) in rows.zip(pixels.chunks(3 * width.max(1))) {
            let values = from[channel..].iter().step_by(3);
            let values = values.map(|&value| f32::from(value) / 255.0);
            if is_flipped {
                to.iter_mut()
                    .rev()
                    .zip(values)
                    .for_each(|(to, value)| *to = value);
            } else {
                to.iter_mut()
                    .zip(values)
                    .for_each(|(to, value)| *to = value);
            }
        }
    }
}

fn normalise(by: &Normalise, planes: &mut [f32]) {
    let area = planes.len() / 3;
    for channel in 0..3 {
        let (mean, std) = (by.mean[channel], by.std[channel]);
        for value in &mut planes[channel * area..][..area] {
            *value = (*value - mean) / std;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Normalise = Normalise {
        mean: [0.0; 3],
        std: [1.0; 3],
    };

    fn picture([height, width]: [usize; 2]) -> RgbImage {
        let byte = |i: usize| ((i * 7) ^ (i / width * 13)) as u8;
        RgbImage {
            width,
            height,
            pixels: (0..3 * height * width).map(byte).collect(),
        }
    }

    fn whole(flip: f64) -> AugmentConfig {
        AugmentConfig {
            crop: RandomResizedCrop {
                scale: [1.0, 1.0],
                ratio: [1.0, 1.0],
            },
            flip,
            jitter: ColourJitter::default(),
        }
    }

    fn run(
        config: AugmentConfig,
        normalise: Normalise,
        image: &RgbImage,
        key: &ViewKey,
    ) -> Vec<f32> {
        let size = [16, 16];
        let augment = Augment::new(config, size, normalise).unwrap();
        let mut planes = vec![f32::NAN; 3 * size[0] * size[1]];
        let cpu = Cpu::new(1).unwrap();
        augment.apply(&cpu, image, key, &mut planes).unwrap();
        planes
    }

    #[test]
    fn without_any_change_it_is_the_picture() {
        let image = picture([16, 16]);
        let planes = run(whole(0.0), PLAIN, &image, &ViewKey::default());
        let flipped = run(whole(1.0), PLAIN, &image, &ViewKey::default());
        for (i, &byte) in image.pixels.iter().enumerate() {
            let (channel, y, x) = (i % 3, i / 3 / 16, i / 3 % 16);
            let expected = f32::from(byte) / 255.0;
            assert_eq!(planes[(channel * 16 + y) * 16 + x], expected);
            assert_eq!(flipped[(channel * 16 + y) * 16 + 15 - x], expected);
        }
    }

    #[test]
    fn colours_are_normalised_one_by_one() {
        let by = Normalise {
            mean: [0.1, 0.2, 0.3],
            std: [0.5, 0.25, 2.0],
        };
        let image = picture([16, 16]);
        let plain = run(whole(0.0), PLAIN, &image, &ViewKey::default());
        let normal = run(whole(0.0), by, &image, &ViewKey::default());
        for (i, (plain, normal)) in plain.iter().zip(normal).enumerate() {
            let channel = i / 256;
            assert_eq!(normal, (plain - by.mean[channel]) / by.std[channel]);
        }
    }

    #[test]
    fn each_counter_changes_the_view_and_the_same_ones_repeat_it() {
        let config = AugmentConfig {
            jitter: ColourJitter {
                brightness: 0.4,
                contrast: 0.4,
                saturation: 0.4,
                hue: 0.1,
            },
            ..AugmentConfig::default()
        };
        let image = picture([40, 60]);
        let view = |key| run(config, PLAIN, &image, &key);
        let base = ViewKey {
            seed: 1,
            epoch: 2,
            sample: 3,
            view: 0,
        };
        let others = [
            ViewKey { seed: 2, ..base },
            ViewKey { epoch: 3, ..base },
            ViewKey { sample: 4, ..base },
            ViewKey { view: 1, ..base },
        ];
        assert_eq!(view(base), view(base));
        for other in others {
            assert_ne!(view(base), view(other), "{other:?}");
        }
        assert!(view(base).iter().all(|value| (0.0..=1.0).contains(value)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |change: fn(&mut AugmentConfig)| {
            let mut config = AugmentConfig::default();
            change(&mut config);
            Augment::new(config, [8, 8], PLAIN).unwrap_err().to_string()
        };
        assert_eq!(error(|c| c.flip = 1.5), "flip is 1.5: expected 0 to 1");
        assert!(error(|c| c.flip = f64::NAN).starts_with("flip is NaN"));
        assert!(error(|c| c.crop.scale = [0.5, 0.1]).starts_with("crop.scale is [0.5, 0.1]"));
        assert!(error(|c| c.crop.scale = [0.5, 2.0]).starts_with("crop.scale"));
        assert!(error(|c| c.crop.ratio = [0.0, 1.0]).starts_with("crop.ratio"));
        assert!(error(|c| c.jitter.hue = 0.6).starts_with("jitter.hue is 0.6"));
        assert!(error(|c| c.jitter.contrast = -1.0).starts_with("jitter.contrast"));
        let huge = Augment::new(AugmentConfig::default(), [8, 1 << 40], PLAIN);
        let huge = huge.unwrap_err().to_string();
        assert_eq!(huge, "size is 1099511627776: expected 1 to 32768");
        let augment = Augment::new(AugmentConfig::default(), [8, 8], PLAIN).unwrap();
        let nothing = RgbImage {
            width: 0,
            height: 4,
            pixels: Vec::new(),
        };
        let cpu = Cpu::new(1).unwrap();
        let applied = augment.apply(&cpu, &nothing, &ViewKey::default(), &mut [0.0; 192]);
        assert_eq!(
            applied.unwrap_err().to_string(),
            "an image of 0x4 has no pixels"
        );
    }
}
