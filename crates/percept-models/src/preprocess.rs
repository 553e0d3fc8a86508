//! From a decoded image to a network's input, as the authors of the public weights evaluate them.

use percept_graph::Tensor;
use percept_kernels::resize::{ImageShape, resize_u8_pillow_bicubic, resize_u8_pillow_bilinear};
use percept_kernels::{Cpu, CpuError};
use thiserror::Error;

/// The mean of each colour over ImageNet, as a share of full brightness.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Their standard deviation.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// An image of more pixels is refused after resizing: a thin strip can grow without bound.
const MOST_PIXELS: usize = 1 << 27;

/// A filter of Pillow's `Image.resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PillowFilter {
    Bilinear,
    Bicubic,
}

impl PillowFilter {
    /// Resizes an interleaved RGB image, `[height, width]`, to exactly the bytes that Pillow gives.
    fn resize(
        self,
        pixels: &[u8],
        input: [usize; 2],
        output: [usize; 2],
    ) -> Result<Vec<u8>, CpuError> {
        let cpu = Cpu::new(1)?;
        let shape = ImageShape {
            channels: 3,
            input,
            output,
        };
        let mut resized = vec![0; 3 * output[0] * output[1]];
        match self {
            Self::Bilinear => resize_u8_pillow_bilinear(&cpu, &shape, pixels, &mut resized),
            Self::Bicubic => resize_u8_pillow_bicubic(&cpu, &shape, pixels, &mut resized),
        }
        Ok(resized)
    }
}

/// How an image is brought to a network's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Scaled until it covers the network's size with a margin, then cut out of the middle: torchvision's
    /// evaluation transform, for which the shorter side becomes `covered` when `kept` is cut out.
    CoverAndCrop {
        /// Side that the image must cover.
        covered: usize,
        /// Side that is kept.
        kept: usize,
    },
    /// Stretched to the asked size, or to the multiples of a patch nearest to its own.
    Stretch {
        /// Sides are multiples of this.
        multiple_of: usize,
    },
}

/// What to do with an image in front of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Preprocess {
    pub fit: Fit,
    pub filter: PillowFilter,
}

/// Why an image cannot be preprocessed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum PreprocessError {
    #[error("{bytes} bytes are no RGB image of {width}x{height}")]
    WrongLength {
        bytes: usize,
        width: usize,
        height: usize,
    },
    #[error("an image of {width}x{height} has no pixels to resize")]
    Empty { width: usize, height: usize },
    #[error("an image of {width}x{height} would become {to_width}x{to_height}, which is too large")]
    TooLarge {
        width: usize,
        height: usize,
        to_width: usize,
        to_height: usize,
    },
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("{model} takes no images")]
    NoImages { model: &'static str },
}

impl Preprocess {
    /// An RGB image (rows of pixels, `[height, width]`) as a normalised batch of one, [1, 3, H, W]. `size` is
    /// [H, W]; without it the network's usual size is taken.
    pub fn apply(
        &self,
        pixels: &[u8],
        [height, width]: [usize; 2],
        size: Option<[usize; 2]>,
    ) -> Result<Tensor<'static>, PreprocessError> {
        if height
            .checked_mul(width)
            .and_then(|area| area.checked_mul(3))
            != Some(pixels.len())
        {
            let bytes = pixels.len();
            return Err(PreprocessError::WrongLength {
                bytes,
                width,
                height,
            });
        }
        if pixels.is_empty() {
            return Err(PreprocessError::Empty { width, height });
        }
        let (resized, kept) = self.sizes([height, width], size);
        if resized[0].saturating_mul(resized[1]) > MOST_PIXELS {
            return Err(PreprocessError::TooLarge {
                width,
                height,
                to_width: resized[1],
                to_height: resized[0],
            });
        }
        let pixels = self.filter.resize(pixels, [height, width], resized)?;
        Ok(normalised_crop(&pixels, resized, kept))
    }

    /// The size that the whole image gets, and the size that is kept of it.
    fn sizes(&self, image: [usize; 2], asked: Option<[usize; 2]>) -> ([usize; 2], [usize; 2]) {
        match self.fit {
            Fit::Stretch { multiple_of } => {
                let nearest =
                    |side: usize| ((side + multiple_of / 2) / multiple_of).max(1) * multiple_of;
                let size = asked.unwrap_or(image.map(nearest));
                (size, size)
            }
            Fit::CoverAndCrop { covered, kept } => {
                let size = asked.unwrap_or([kept; 2]);
                let cover = size.map(|side| (side * covered + kept / 2) / kept);
                (covering(image, cover), size)
            }
        }
    }
}

/// The smallest size of the image's proportions that covers `cover`; the free side is rounded down, as
/// torchvision does.
fn covering([height, width]: [usize; 2], cover: [usize; 2]) -> [usize; 2] {
    let scaled =
        |side: usize, to: usize, from: usize| (to as u128 * side as u128 / from as u128) as usize;
    // The side that must grow more to cover sets the scale.
    if cover[0] as u128 * width as u128 >= cover[1] as u128 * height as u128 {
        [cover[0], scaled(width, cover[0], height)]
    } else {
        [scaled(height, cover[1], width), cover[1]]
    }
}

/// The middle of an image as planes, (x / 255 - mean) / std of each channel.
fn normalised_crop(pixels: &[u8], size: [usize; 2], kept: [usize; 2]) -> Tensor<'static> {
    let [top, left] = [0, 1].map(|axis| half_to_even(size[axis] - kept[axis]));
    let mut data = Vec::with_capacity(3 * kept[0] * kept[1]);
    for (channel, (mean, std)) in IMAGENET_MEAN.into_iter().zip(IMAGENET_STD).enumerate() {
        for row in top..top + kept[0] {
            let start = (row * size[1] + left) * 3;
            let row = &pixels[start..start + kept[1] * 3];
            let channel = row.iter().skip(channel).step_by(3);
            data.extend(channel.map(|&pixel| (f32::from(pixel) / 255.0 - mean) / std));
        }
    }
    Tensor::from_values([1, 3, kept[0], kept[1]], data).expect("three planes of the kept size")
}

/// Half of a margin, rounded as Python does: 16.5 is 16, 17.5 is 18.
fn half_to_even(margin: usize) -> usize {
    let half = margin / 2;
    half + usize::from(margin % 2 == 1 && half % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSIFIER: Preprocess = Preprocess {
        fit: Fit::CoverAndCrop {
            covered: 256,
            kept: 224,
        },
        filter: PillowFilter::Bilinear,
    };

    fn picture([height, width]: [usize; 2]) -> Vec<u8> {
        let pixel = |i: usize| {
            let (y, x, c) = (i / 3 / width, i / 3 % width, i % 3);
            ((x * 7 + y * 13 + c * 50) ^ (x * y / 3 + c * 11)) as u8
        };
        (0..height * width * 3).map(pixel).collect()
    }

    /// Sums and samples that torchvision's `ImageClassification` transform gives on Pillow images.
    #[test]
    fn equals_torchvision_on_pillow_images() {
        use PillowFilter::{Bicubic, Bilinear};
        let rows = [
            ([300, 420], Bilinear, 19208879, [183, 146, 188]),
            ([300, 420], Bicubic, 19209581, [203, 157, 195]),
            ([500, 333], Bilinear, 19188913, [172, 162, 97]),
            ([500, 333], Bicubic, 19190350, [192, 172, 90]),
            ([97, 131], Bilinear, 19118682, [92, 41, 196]),
            ([97, 131], Bicubic, 19125812, [94, 35, 201]),
            ([256, 256], Bicubic, 19192570, [96, 185, 254]),
        ];
        for (size, filter, sum, sample) in rows {
            let preprocess = Preprocess {
                filter,
                ..CLASSIFIER
            };
            let tensor = preprocess.apply(&picture(size), size, None).unwrap();
            assert_eq!(tensor.shape(), [1, 3, 224, 224]);
            let values = tensor.values::<f32>().unwrap();
            let pixel = |i: usize| {
                let channel = i / (224 * 224);
                ((values[i] * IMAGENET_STD[channel] + IMAGENET_MEAN[channel]) * 255.0).round()
                    as i64
            };
            let got: i64 = (0..values.len()).map(pixel).sum();
            assert_eq!(got, sum, "{size:?} {filter:?}");
            let at = 111 * 224 + 57;
            assert_eq!(
                [0, 1, 2].map(|c| pixel(c * 224 * 224 + at)),
                sample,
                "{size:?} {filter:?}"
            );
        }
        let tensor = CLASSIFIER
            .apply(&picture([300, 420]), [300, 420], None)
            .unwrap();
        assert!((tensor.values::<f32>().unwrap()[111 * 224 + 57] - 1.015_926).abs() < 1e-6);
    }

    #[test]
    fn sizes_follow_the_rule() {
        let sizes = |image, asked| CLASSIFIER.sizes(image, asked);
        assert_eq!(sizes([300, 420], None), ([256, 358], [224, 224]));
        assert_eq!(sizes([500, 333], None), ([384, 256], [224, 224]));
        assert_eq!(
            sizes([100, 400], Some([224, 448])),
            ([256, 1024], [224, 448])
        );
        assert_eq!(
            sizes([400, 100], Some([224, 448])),
            ([2048, 512], [224, 448])
        );
        let stretch = Preprocess {
            fit: Fit::Stretch { multiple_of: 14 },
            ..CLASSIFIER
        };
        assert_eq!(stretch.sizes([704, 540], None), ([700, 546], [700, 546]));
        assert_eq!(stretch.sizes([3, 3], None), ([14, 14], [14, 14]));
        assert_eq!(stretch.sizes([3, 3], Some([28, 42])), ([28, 42], [28, 42]));
        assert_eq!([0, 1, 2, 3, 5].map(half_to_even), [0, 0, 1, 2, 2]);
    }

    #[test]
    fn impossible_images_are_refused() {
        let apply = |bytes: usize, size| CLASSIFIER.apply(&vec![0; bytes], size, None);
        assert!(matches!(
            apply(10, [2, 2]),
            Err(PreprocessError::WrongLength { .. })
        ));
        assert!(matches!(
            apply(0, [0, 5]),
            Err(PreprocessError::Empty { .. })
        ));
        assert!(matches!(
            apply(0, [usize::MAX, 5]),
            Err(PreprocessError::WrongLength { .. })
        ));
        assert!(matches!(
            apply(3_000_000, [1, 1_000_000]),
            Err(PreprocessError::TooLarge { .. })
        ));
    }
}
