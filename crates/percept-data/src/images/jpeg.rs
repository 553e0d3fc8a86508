use std::io;
use std::panic::{self, AssertUnwindSafe};

use jpeg_encoder::{ColorType, Encoder};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::{ImageFault, RgbImage, check_size};

/// How a JPEG file begins.
pub(super) const SIGNATURE: &[u8] = &[0xff, 0xd8, 0xff];

const FORMAT: &str = "JPEG";

pub(super) fn decode(file: &[u8]) -> Result<RgbImage, ImageFault> {
    // Sizes are checked here, where both sides can be named.
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(fault)?;
    let header = decoder.info().ok_or_else(|| {
        ImageFault::of_decoder(FORMAT, "it has no header of a picture".to_owned())
    })?;
    check_size(header.width.into(), header.height.into())?;
    // The decoder would fill the missing part with grey.
    if !is_complete(file) {
        return Err(ImageFault::Truncated { format: FORMAT });
    }
    let (width, height) = (usize::from(header.width), usize::from(header.height));
    let mut pixels = vec![0; width * height * 3];
    // The decoder panics on some files whose components have odd resolutions.
    panic::catch_unwind(AssertUnwindSafe(|| decoder.decode_into(&mut pixels)))
        .map_err(|_| ImageFault::Corrupt {
            format: FORMAT,
            reason: "its decoder gave up".into(),
        })?
        .map_err(fault)?;
    Ok(RgbImage {
        width,
        height,
        pixels,
    })
}

/// Whether a JPEG file's segments lead to its end marker.
fn is_complete(file: &[u8]) -> bool {
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

fn fault(error: DecodeErrors) -> ImageFault {
    match error {
        DecodeErrors::ExhaustedData => ImageFault::Truncated { format: FORMAT },
        DecodeErrors::Unsupported(scheme) => ImageFault::Unsupported {
            format: FORMAT,
            reason: format!("{scheme:?}"),
        },
        error => ImageFault::of_decoder(FORMAT, error.to_string()),
    }
}

/// A picture as the bytes of a JPEG file, the same on every machine; `quality` is 1 to 100.
pub fn encode_jpeg(picture: &RgbImage, quality: u8) -> io::Result<Vec<u8>> {
    let side = |pixels: usize| u16::try_from(pixels).map_err(io::Error::other);
    let (width, height) = (side(picture.width)?, side(picture.height)?);
    let mut file = Vec::new();
    Encoder::new(&mut file, quality)
        .encode(&picture.pixels, width, height, ColorType::Rgb)
        .map_err(io::Error::other)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gradient, jpeg};
    use super::*;
    use jpeg_encoder::SamplingFactor;

    fn largest_difference(a: &[u8], b: &[u8]) -> u8 {
        assert_eq!(a.len(), b.len());
        let differences = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
        differences.max().unwrap_or(0)
    }

    #[test]
    fn a_picture_is_close_to_what_was_encoded() {
        let image = decode(&jpeg()).unwrap();
        assert!(largest_difference(&image.pixels, &gradient().pixels) < 24);
    }

    #[test]
    fn grey_becomes_rgb() {
        let values: Vec<u8> = (0..16 * 9).map(|i| 40 + i % 16).collect();
        let mut file = Vec::new();
        Encoder::new(&mut file, 95)
            .encode(&values, 16, 9, ColorType::Luma)
            .unwrap();
        let image = decode(&file).unwrap();
        assert_eq!((image.width, image.height), (16, 9));
        let rgb: Vec<u8> = values.iter().flat_map(|value| [*value; 3]).collect();
        assert!(largest_difference(&image.pixels, &rgb) < 8);
    }

    #[test]
    fn a_file_that_the_decoder_panics_on_is_refused() {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 50);
        encoder.set_sampling_factor(SamplingFactor::F_4_1);
        encoder
            .encode(&[100; 40 * 9 * 4], 40, 9, ColorType::Cmyk)
            .unwrap();
        let fault = decode(&file).unwrap_err();
        assert!(matches!(fault, ImageFault::Corrupt { .. }), "{fault}");
    }

    #[test]
    fn absurd_sizes_are_refused_before_memory_is_taken() {
        let mut file = jpeg();
        let frame = file
            .windows(2)
            .position(|bytes| bytes == [0xff, 0xc0])
            .unwrap();
        file[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
        let fault = decode(&file).unwrap_err();
        assert!(
            matches!(fault, ImageFault::TooLarge { width: 0xffff, .. }),
            "{fault}"
        );
    }

    #[test]
    fn sides_that_jpeg_cannot_hold_are_refused() {
        assert!(encode_jpeg(&RgbImage::filled(70_000, 1, [0; 3]), 90).is_err());
        assert!(encode_jpeg(&RgbImage::filled(0, 0, [0; 3]), 90).is_err());
    }
}
