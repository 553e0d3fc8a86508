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
    let reader = || ImageReader::with_format(Cursor::new(file), format);
    let (width, height) = reader()
        .into_dimensions()
        .map_err(|error| fault(error, name))?;
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
    let mut reader = reader();
    reader.limits(limits);
    let decoded = reader.decode().map_err(|error| fault(error, name))?;
    Ok(RgbImage {
        width: width as usize,
        height: height as usize,
        pixels: decoded.into_rgb8().into_raw(),
    })
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
