use std::io::{self, Cursor};

use png::{
    BitDepth, ColorType, Compression, Decoder, DecodingError, Encoder, Limits, Transformations,
};

use super::{ImageFault, RgbImage, check_size};

/// How a PNG file begins.
pub(super) const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

const FORMAT: &str = "PNG";

pub(super) fn decode(file: &[u8]) -> Result<RgbImage, ImageFault> {
    // The decoder refuses an absurd size without telling it.
    let (width, height) = dimensions(file).ok_or(ImageFault::Truncated { format: FORMAT })?;
    check_size(width, height)?;
    // 16 bits of RGBA, and as much again for the decoder's own.
    let most_bytes = u64::from(width) * u64::from(height) * 16 + (16 << 20);
    let limits = Limits {
        bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX),
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_ignore_text_chunk(true);
    // Palettes and few bits become bytes; 16 bits stay, to be rounded below instead of cut.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(fault)?;
    let mut samples = vec![0; reader.output_buffer_size().ok_or_else(too_much_memory)?];
    let frame = reader.next_frame(&mut samples).map_err(fault)?;
    samples.truncate(frame.buffer_size());
    if frame.bit_depth == BitDepth::Sixteen {
        samples = rounded_to_bytes(&samples);
    }
    Ok(RgbImage {
        width: frame.width as usize,
        height: frame.height as usize,
        pixels: match frame.color_type {
            ColorType::Grayscale => samples.iter().flat_map(|grey| [*grey; 3]).collect(),
            ColorType::GrayscaleAlpha => {
                let pixels = samples.as_chunks().0.iter();
                pixels.flat_map(|&[grey, _]| [grey; 3]).collect()
            }
            ColorType::Rgba => {
                let pixels = samples.as_chunks().0.iter();
                pixels.flat_map(|&[r, g, b, _]| [r, g, b]).collect()
            }
            // Palettes were expanded to RGB.
            ColorType::Rgb | ColorType::Indexed => samples,
        },
    })
}

/// The size that the first chunk of a PNG file claims.
fn dimensions(file: &[u8]) -> Option<(u32, u32)> {
    let width = file.get(16..)?.first_chunk()?;
    let height = file.get(20..)?.first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}

/// Numbers of 16 bits, the larger byte first, as the nearest of 8.
fn rounded_to_bytes(samples: &[u8]) -> Vec<u8> {
    let samples = samples.as_chunks().0.iter();
    samples
        .map(|sample| ((u32::from(u16::from_be_bytes(*sample)) + 128) / 257) as u8)
        .collect()
}

fn fault(error: DecodingError) -> ImageFault {
    match error {
        DecodingError::IoError(_) => ImageFault::Truncated { format: FORMAT },
        DecodingError::LimitsExceeded => too_much_memory(),
        error => ImageFault::of_decoder(FORMAT, error.to_string()),
    }
}

fn too_much_memory() -> ImageFault {
    ImageFault::Corrupt {
        format: FORMAT,
        reason: "it needs more memory than its size explains".into(),
    }
}

/// A picture as the bytes of a PNG file.
pub fn encode_png(picture: &RgbImage) -> io::Result<Vec<u8>> {
    encode(
        picture.width,
        picture.height,
        &picture.pixels,
        ColorType::Rgb,
    )
}

/// A grey picture, a byte per pixel, as the bytes of a PNG file.
pub fn encode_grey_png(width: usize, height: usize, pixels: &[u8]) -> io::Result<Vec<u8>> {
    encode(width, height, pixels, ColorType::Grayscale)
}

fn encode(width: usize, height: usize, samples: &[u8], colours: ColorType) -> io::Result<Vec<u8>> {
    let side = |pixels: usize| u32::try_from(pixels).map_err(io::Error::other);
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_color(colours);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(samples)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gradient, png};
    use super::*;

    fn file_of(
        [width, height]: [u32; 2],
        (colours, depth): (ColorType, BitDepth),
        palette: &[u8],
        transparent: &[u8],
        samples: &[u8],
    ) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, width, height);
        encoder.set_color(colours);
        encoder.set_depth(depth);
        if !palette.is_empty() {
            encoder.set_palette(palette);
        }
        if !transparent.is_empty() {
            encoder.set_trns(transparent);
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(samples).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn an_encoded_picture_comes_back() {
        assert_eq!(decode(&png()).unwrap(), gradient());
        let grey = encode_grey_png(2, 1, &[9, 200]).unwrap();
        assert_eq!(decode(&grey).unwrap().pixels, [9, 9, 9, 200, 200, 200]);
    }

    #[test]
    fn every_kind_becomes_rgb() {
        use BitDepth::{Eight, Four, One, Sixteen, Two};
        use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
        let pixels = |size, kind, palette: &[u8], transparent: &[u8], samples: &[u8]| {
            let file = file_of(size, kind, palette, transparent, samples);
            decode(&file).unwrap().pixels
        };
        let palette = [1, 2, 3, 10, 20, 30];
        let one = [1, 1];
        assert_eq!(
            pixels([3, 1], (Grayscale, One), &[], &[], &[0b1010_0000]),
            [255, 255, 255, 0, 0, 0, 255, 255, 255]
        );
        assert_eq!(pixels(one, (Grayscale, Two), &[], &[], &[0x40]), [85; 3]);
        assert_eq!(pixels(one, (Grayscale, Four), &[], &[], &[0x20]), [34; 3]);
        assert_eq!(pixels(one, (Grayscale, Eight), &[], &[], &[77]), [77; 3]);
        // 0x1280 is 18.43 of 255, and 0x12ff is 18.92: rounded, not cut.
        assert_eq!(
            pixels([2, 1], (Grayscale, Sixteen), &[], &[], &[18, 128, 18, 255]),
            [18, 18, 18, 19, 19, 19]
        );
        assert_eq!(
            pixels(one, (GrayscaleAlpha, Eight), &[], &[], &[5, 0]),
            [5; 3]
        );
        assert_eq!(
            pixels(one, (Rgba, Eight), &[], &[], &[1, 2, 3, 0]),
            [1, 2, 3]
        );
        assert_eq!(
            pixels(one, (Rgba, Sixteen), &[], &[], &[1, 0, 2, 255, 3, 0, 0, 0]),
            [1, 3, 3]
        );
        assert_eq!(
            pixels(one, (Rgb, Eight), &[], &[0, 1, 0, 2, 0, 3], &[1, 2, 3]),
            [1, 2, 3]
        );
        assert_eq!(
            pixels([2, 1], (Indexed, Two), &palette, &[], &[0b0100_0000]),
            [10, 20, 30, 1, 2, 3]
        );
        assert_eq!(
            pixels([2, 1], (Indexed, Eight), &palette, &[0, 9], &[1, 0]),
            [10, 20, 30, 1, 2, 3]
        );
    }

    #[test]
    fn absurd_sizes_are_refused_before_memory_is_taken() {
        let mut file = png();
        // Width and height stand in the first chunk, which its checksum covers.
        file[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        let mut crc = flate2::Crc::new();
        crc.update(&file[12..29]);
        file[29..33].copy_from_slice(&crc.sum().to_be_bytes());
        let fault = decode(&file).unwrap_err();
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
}
