//! JPEG and PNG images as 8-bit RGB.
//!
//! As with torchvision's PIL loader, EXIF orientation is ignored, alpha is dropped, grey and palette images become RGB.

mod jpeg;
mod png;

use std::path::Path;

use thiserror::Error;

use crate::error::{FaultKind, FileError, describe_content};

pub use jpeg::encode_jpeg;
pub use png::{encode_grey_png, encode_png};

/// Longest side that is decoded, in pixels.
pub const MAX_SIDE_PIXELS: u32 = 32_768;
/// Most pixels that are decoded: 0.5 GB of RGB.
pub const MAX_PIXELS: u64 = 178_956_970;

/// What is wrong with an image.
#[derive(Debug, Error)]
pub enum ImageFault {
    /// Neither JPEG nor PNG.
    #[error("not an image: expected JPEG or PNG, found {found}")]
    NotAnImage {
        /// What it looks like.
        found: String,
    },
    /// The file ends before the picture does.
    #[error("the {format} image is truncated")]
    Truncated {
        /// The format.
        format: &'static str,
    },
    /// More pixels than percept decodes.
    #[error(
        "the image is too large: {width}x{height}, at most {MAX_PIXELS} pixels and {MAX_SIDE_PIXELS} a side"
    )]
    TooLarge {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
    },
    /// The decoder cannot make sense of it.
    #[error("corrupt {format} image: {reason}")]
    Corrupt {
        /// The format.
        format: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// Valid, but of a kind that the decoder does not take.
    #[error("{format} image: {reason} is not supported")]
    Unsupported {
        /// The format.
        format: &'static str,
        /// What the decoder says.
        reason: String,
    },
}

impl ImageFault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::NotAnImage { .. } | Self::TooLarge { .. } | Self::Unsupported { .. } => {
                FaultKind::Unsupported
            }
            Self::Truncated { .. } | Self::Corrupt { .. } => FaultKind::Corrupt,
        }
    }

    /// What a decoder says of a file that it gives up on. Some tell an early end in words only.
    fn of_decoder(format: &'static str, reason: String) -> ImageFault {
        let words = reason.to_lowercase();
        let ends_early = ["unexpected end", "eof", "not enough", "no more bytes"]
            .iter()
            .any(|early| words.contains(early));
        if ends_early {
            ImageFault::Truncated { format }
        } else {
            ImageFault::Corrupt { format, reason }
        }
    }
}

/// A decoded image: rows from the top, red, green, blue of each pixel in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `height * width * 3` bytes.
    pub pixels: Vec<u8>,
}

impl RgbImage {
    /// An image of one colour.
    pub fn filled(width: usize, height: usize, colour: [u8; 3]) -> RgbImage {
        RgbImage {
            width,
            height,
            pixels: colour.repeat(width * height),
        }
    }

    /// The pixel in column `x` of row `y`, where there is one.
    pub fn pixel_mut(&mut self, x: usize, y: usize) -> Option<&mut [u8; 3]> {
        let (pixels, _) = self.pixels.as_chunks_mut();
        (x < self.width).then(|| pixels.get_mut(y * self.width + x))?
    }
}

/// Reads and decodes an image file.
pub fn read_image(path: &Path) -> Result<RgbImage, FileError> {
    let file = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    decode_image(&file).map_err(|fault| FileError::new(path, fault))
}

/// Decodes a JPEG or PNG image.
pub fn decode_image(file: &[u8]) -> Result<RgbImage, ImageFault> {
    if file.starts_with(jpeg::SIGNATURE) {
        jpeg::decode(file)
    } else if file.starts_with(png::SIGNATURE) {
        png::decode(file)
    } else {
        Err(ImageFault::NotAnImage {
            found: describe_content(file),
        })
    }
}

/// Refuses what a header claims before memory is taken for it.
fn check_size(width: u32, height: u32) -> Result<(), ImageFault> {
    if width.max(height) > MAX_SIDE_PIXELS || u64::from(width) * u64::from(height) > MAX_PIXELS {
        Err(ImageFault::TooLarge { width, height })
    } else {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn gradient() -> RgbImage {
        let pixels = (0..23).flat_map(|y| (0..37).flat_map(move |x| [x * 6, y * 10, 128]));
        RgbImage {
            width: 37,
            height: 23,
            pixels: pixels.collect(),
        }
    }

    /// A small PNG file of 37x23 pixels.
    pub(crate) fn png() -> Vec<u8> {
        encode_png(&gradient()).unwrap()
    }

    /// A small JPEG file of 37x23 pixels.
    pub(crate) fn jpeg() -> Vec<u8> {
        encode_jpeg(&gradient(), 95).unwrap()
    }

    #[test]
    fn pixels_beyond_an_image_are_none() {
        let mut image = RgbImage::filled(3, 2, [7, 8, 9]);
        *image.pixel_mut(2, 1).unwrap() = [1, 2, 3];
        assert_eq!(image.pixels[15..], [1, 2, 3]);
        assert_eq!(image.pixels[12..15], [7, 8, 9]);
        assert!(image.pixel_mut(3, 0).is_none() && image.pixel_mut(0, 2).is_none());
    }

    #[test]
    fn truncated_files_are_told_as_such() {
        for file in [jpeg(), png()] {
            for kept in [file.len() / 2, file.len() * 9 / 10] {
                let fault = decode_image(&file[..kept]).unwrap_err();
                assert!(
                    matches!(fault, ImageFault::Truncated { .. }),
                    "{kept}: {fault}"
                );
            }
        }
    }

    #[test]
    fn other_files_are_no_images() {
        for (file, expected) in [
            (&b""[..], "an empty file"),
            (b"GIF89a......", "a GIF image"),
            (b"text text", "unknown content"),
        ] {
            let fault = decode_image(file).unwrap_err();
            assert!(fault.to_string().contains(expected), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn damaged_files_give_an_error_or_a_picture(
            as_png in any::<bool>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = if as_png { png() } else { jpeg() };
            for (at, byte) in flips {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            if let Ok(image) = decode_image(&file) {
                prop_assert_eq!(image.pixels.len(), image.width * image.height * 3);
            }
        }
    }
}
