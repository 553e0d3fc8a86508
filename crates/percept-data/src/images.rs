//! JPEG and PNG images as 8-bit RGB.
//!
//! As with torchvision's PIL loader, EXIF orientation is ignored, alpha is dropped, grey and palette images become RGB.

use std::io::Cursor;
use std::path::Path;

use image::error::{DecodingError, ImageError, LimitError, LimitErrorKind};
use image::{ImageFormat, ImageReader, Limits};
use thiserror::Error;

use crate::error::{FaultKind, FileError, describe_content};

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

/// Reads and decodes an image file.
pub fn read_image(path: &Path) -> Result<RgbImage, FileError> {
    let file = std::fs::read(path).map_err(|error| FileError::new(path, error))?;
    decode_image(&file).map_err(|fault| FileError::new(path, fault))
}

/// Decodes a JPEG or PNG image.
pub fn decode_image(file: &[u8]) -> Result<RgbImage, ImageFault> {
    let (format, name) = match image::guess_format(file) {
        Ok(ImageFormat::Jpeg) => (ImageFormat::Jpeg, "JPEG"),
        Ok(ImageFormat::Png) => (ImageFormat::Png, "PNG"),
        _ => {
            return Err(ImageFault::NotAnImage {
                found: describe_content(file),
            });
        }
    };
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let (width, height) = match format {
        // The decoder refuses an absurd size without telling it.
        ImageFormat::Png => png_dimensions(file).ok_or(ImageFault::Truncated { format: name })?,
        _ => ImageReader::with_format(Cursor::new(file), format)
            .into_dimensions()
            .map_err(|error| fault(error, name))?,
    };
    if width.max(height) > MAX_SIDE_PIXELS || u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(ImageFault::TooLarge { width, height });
    }
    // The decoder would fill the missing part with grey.
    if format == ImageFormat::Jpeg && !jpeg_is_complete(file) {
        return Err(ImageFault::Truncated { format: name });
    }
    let mut limits = Limits::default();
    // 16 bits of RGBA, and as much again for the decoder's own.
    limits.max_alloc = Some(u64::from(width) * u64::from(height) * 16 + (16 << 20));
    reader.limits(limits);
    let decoded = reader.decode().map_err(|error| fault(error, name))?;
    Ok(RgbImage {
        width: decoded.width() as usize,
        height: decoded.height() as usize,
        pixels: decoded.into_rgb8().into_raw(),
    })
}

/// The size that the first chunk of a PNG file claims.
fn png_dimensions(file: &[u8]) -> Option<(u32, u32)> {
    let width = file.get(16..)?.first_chunk()?;
    let height = file.get(20..)?.first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}

/// Whether a JPEG file's segments lead to its end marker.
fn jpeg_is_complete(file: &[u8]) -> bool {
    const START_OF_SCAN: u8 = 0xda;
    const END_OF_IMAGE: u8 = 0xd9;
    let mut at = 2;
    while let Some(&[first, marker]) = file.get(at..).and_then(|rest| rest.first_chunk()) {
        match (first, marker) {
            (0xff, END_OF_IMAGE) => return true,
            // Padding, stuffed zeros, restart markers and entropy-coded bytes.
            (0xff, 0xff) => at += 1,
            (0xff, 0x00 | 0x01 | 0xd0..=0xd8) => at += 2,
            (0xff, _) => {
                let Some(length) = file.get(at + 2..).and_then(|rest| rest.first_chunk()) else {
                    return false;
                };
                at += 2 + usize::from(u16::from_be_bytes(*length)).max(2);
                if marker == START_OF_SCAN && at >= file.len() {
                    return false;
                }
            }
            _ => at += 1,
        }
    }
    false
}

fn fault(error: ImageError, format: &'static str) -> ImageFault {
    let corrupt = |reason: String| ImageFault::Corrupt { format, reason };
    match error {
        ImageError::IoError(_) => ImageFault::Truncated { format },
        ImageError::Decoding(error) if ends_early(&error) => ImageFault::Truncated { format },
        ImageError::Limits(error) if is_memory(&error) => {
            corrupt("it needs more memory than its size explains".into())
        }
        ImageError::Unsupported(error) => ImageFault::Unsupported {
            format,
            reason: error.to_string(),
        },
        error => corrupt(error.to_string()),
    }
}

fn is_memory(error: &LimitError) -> bool {
    matches!(error.kind(), LimitErrorKind::InsufficientMemory)
}

/// The PNG decoder reports an early end as an error of the stream, or in words.
fn ends_early(error: &DecodingError) -> bool {
    let text = error.to_string().to_lowercase();
    ["unexpected end", "eof", "not enough", "no more bytes"]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
pub(crate) mod tests {
    use image::codecs::jpeg::JpegEncoder;
    use image::{DynamicImage, GrayImage, Luma, Rgb, Rgba, RgbaImage};
    use proptest::prelude::*;

    use super::*;

    fn gradient() -> image::RgbImage {
        image::RgbImage::from_fn(37, 23, |x, y| Rgb([x as u8 * 6, y as u8 * 10, 128]))
    }

    /// A small PNG file of 37x23 pixels.
    pub(crate) fn png() -> Vec<u8> {
        png_of(&gradient().into())
    }

    fn png_of(image: &DynamicImage) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, ImageFormat::Png).unwrap();
        file.into_inner()
    }

    /// A small JPEG file of 37x23 pixels.
    pub(crate) fn jpeg() -> Vec<u8> {
        let mut file = Vec::new();
        JpegEncoder::new_with_quality(&mut file, 95)
            .encode_image(&gradient())
            .unwrap();
        file
    }

    #[test]
    fn png_of_every_kind_becomes_rgb() {
        let image = decode_image(&png()).unwrap();
        assert_eq!((image.width, image.height), (37, 23));
        assert_eq!(image.pixels, gradient().into_raw());
        let grey = GrayImage::from_pixel(2, 1, Luma([9])).into();
        assert_eq!(decode_image(&png_of(&grey)).unwrap().pixels, [9; 6]);
        let transparent = RgbaImage::from_pixel(1, 1, Rgba([1, 2, 3, 0])).into();
        assert_eq!(
            decode_image(&png_of(&transparent)).unwrap().pixels,
            [1, 2, 3]
        );
    }

    #[test]
    fn jpeg_is_close_to_what_was_encoded() {
        let image = decode_image(&jpeg()).unwrap();
        let differences = image
            .pixels
            .iter()
            .zip(gradient().into_raw())
            .map(|(&a, b)| a.abs_diff(b));
        assert!(differences.max().unwrap() < 24);
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

    #[test]
    fn absurd_sizes_are_refused_before_memory_is_taken() {
        let mut file = png();
        // Width and height stand in the first chunk, which its checksum covers.
        file[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        let mut crc = flate2::Crc::new();
        crc.update(&file[12..29]);
        file[29..33].copy_from_slice(&crc.sum().to_be_bytes());
        let fault = decode_image(&file).unwrap_err();
        assert!(
            matches!(
                fault,
                ImageFault::TooLarge {
                    width: 0x7fff_ffff,
                    ..
                }
            ),
            "{fault}"
        );
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
