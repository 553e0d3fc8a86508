//! Images of 8-bit RGB, and PNG files of them.

use thiserror::Error;

use crate::colours::Colour;

/// Longest side of an image or a picture.
const MAX_SIDE: u32 = 32_768;

/// An image: rows from the top, red, green, blue of each pixel in turn.
///
/// ```
/// use percept_picture::Pixels;
///
/// let image = Pixels::new(2, 1, vec![255, 0, 0, 0, 0, 255])?;
/// assert_eq!(image.at(1, 0), Some([0, 0, 255]));
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

/// Why bytes are no image.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{bytes} bytes are no image of {width}x{height} with 3 bytes per pixel")]
pub struct PixelsError {
    width: u32,
    height: u32,
    bytes: usize,
}

impl Pixels {
    /// An image of `width * height * 3` bytes; no side may be 0 or longer than 32,768.
    pub fn new(width: u32, height: u32, rgb: Vec<u8>) -> Result<Self, PixelsError> {
        let sides_fit = [width, height]
            .iter()
            .all(|side| (1..=MAX_SIDE).contains(side));
        if sides_fit && rgb.len() as u64 == 3 * u64::from(width) * u64::from(height) {
            return Ok(Self { width, height, rgb });
        }
        Err(PixelsError {
            width,
            height,
            bytes: rgb.len(),
        })
    }

    /// An image of one colour.
    pub(crate) fn filled(width: u32, height: u32, colour: Colour) -> Self {
        let (width, height) = (width.clamp(1, MAX_SIDE), height.clamp(1, MAX_SIDE));
        Self {
            width,
            height,
            rgb: colour.repeat(width as usize * height as usize),
        }
    }

    /// Pixels in a row.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// All bytes.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// The pixel in column `x` and row `y`; none outside.
    pub fn at(&self, x: u32, y: u32) -> Option<Colour> {
        (x < self.width && y < self.height)
            .then(|| self.rgb.as_chunks::<3>().0[y as usize * self.width as usize + x as usize])
    }

    /// Mixes `colour` into a pixel, when there is such a pixel; `opacity` 0..=1.
    pub(crate) fn blend(&mut self, x: i64, y: i64, colour: Colour, opacity: f64) {
        if !(0..i64::from(self.width)).contains(&x) || !(0..i64::from(self.height)).contains(&y) {
            return;
        }
        let pixel =
            &mut self.rgb.as_chunks_mut::<3>().0[y as usize * self.width as usize + x as usize];
        for (channel, new) in pixel.iter_mut().zip(colour) {
            let old = f64::from(*channel);
            *channel = (old + (f64::from(new) - old) * opacity).round() as u8;
        }
    }

    /// The image at another size: the means of the parts that its pixels cover, or, where it grows, what lies between pixels.
    pub(crate) fn resized(&self, width: u32, height: u32) -> Self {
        let (width, height) = (width.clamp(1, MAX_SIDE), height.clamp(1, MAX_SIDE));
        if (width, height) == (self.width, self.height) {
            return self.clone();
        }
        let (columns, rows) = (covers(self.width, width), covers(self.height, height));
        let source = self.rgb.as_chunks::<3>().0;
        let mut narrow = Vec::with_capacity(self.height as usize * width as usize);
        for row in source.chunks_exact(self.width as usize) {
            narrow.extend(
                columns
                    .iter()
                    .map(|cover| cover.mean(|x| row[x].map(f32::from))),
            );
        }
        let mut rgb = Vec::with_capacity(3 * width as usize * height as usize);
        for cover in &rows {
            for x in 0..width as usize {
                let mean = cover.mean(|y| narrow[y * width as usize + x]);
                rgb.extend(mean.map(|channel| channel.round() as u8));
            }
        }
        Self { width, height, rgb }
    }

    /// The bytes of a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // A tenth of the time of the default, for files a sixth larger: folders of sweeps are drawn one after the other.
        encoder.set_compression(png::Compression::Fast);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&self.rgb))
            .expect("memory takes all bytes, and they are as many as the sides say");
        file
    }
}

/// The neighbours that a pixel of a resized line covers, with their shares.
pub(crate) struct Cover {
    first: usize,
    shares: Vec<f32>,
}

impl Cover {
    pub(crate) fn mean<const N: usize>(&self, value: impl Fn(usize) -> [f32; N]) -> [f32; N] {
        let mut mean = [0.0; N];
        for (place, share) in self.shares.iter().enumerate() {
            for (sum, value) in mean.iter_mut().zip(value(self.first + place)) {
                *sum += share * value;
            }
        }
        mean
    }
}

/// What each of `to` pixels takes of a line of `from` pixels: all that it covers, or, where there are fewer than pixels to
/// make, the two that it lies between.
pub(crate) fn covers(from: u32, to: u32) -> Vec<Cover> {
    let step = f64::from(from) / f64::from(to);
    let last = from as usize - 1;
    let covered = |pixel: u32| {
        let (low, high) = (f64::from(pixel) * step, f64::from(pixel + 1) * step);
        let first = (low.floor() as usize).min(last);
        let end = (high.ceil() as usize).clamp(first + 1, last + 1);
        let shares = (first..end)
            .map(|place| {
                let part = high.min((place + 1) as f64) - low.max(place as f64);
                (part.max(0.0) / step) as f32
            })
            .collect();
        Cover { first, shares }
    };
    let between = |pixel: u32| {
        let at = ((f64::from(pixel) + 0.5) * step - 0.5).clamp(0.0, last as f64);
        let first = (at.floor() as usize).min(last);
        let share = (at - first as f64) as f32;
        let shares = match share {
            0.0 => vec![1.0],
            _ => vec![1.0 - share, share],
        };
        Cover { first, shares }
    };
    match to > from {
        true => (0..to).map(between).collect(),
        false => (0..to).map(covered).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fit_the_sides_are_refused() {
        for (width, height, bytes) in [
            (2, 2, 11),
            (0, 4, 0),
            (1, 40_000, 120_000),
            (u32::MAX, 2, 6),
        ] {
            let error = Pixels::new(width, height, vec![0; bytes]).expect_err("no image");
            assert!(
                error.to_string().contains(&format!("{bytes} bytes")),
                "{error}"
            );
        }
    }

    #[test]
    fn resizing_keeps_the_mean_and_flat_colours() {
        let gradient = Pixels::new(4, 2, (0..24).map(|v| v * 10).collect()).expect("an image");
        let half = gradient.resized(2, 1);
        // The mean of pixels 0, 1 of both rows: red 0, 30, 120, 150.
        assert_eq!(half.at(0, 0), Some([75, 85, 95]));
        let flat = Pixels::filled(5, 3, [9, 99, 199]);
        for (width, height) in [(1, 1), (3, 7), (11, 2), (5, 3)] {
            assert_eq!(
                flat.resized(width, height),
                Pixels::filled(width, height, [9, 99, 199])
            );
        }
    }

    #[test]
    fn a_growing_image_is_smooth() {
        let edge = Pixels::new(2, 1, vec![0, 0, 0, 200, 200, 200]).expect("an image");
        let grown = edge.resized(8, 1);
        let reds: Vec<u8> = (0..8)
            .filter_map(|x| grown.at(x, 0))
            .map(|[red, ..]| red)
            .collect();
        assert_eq!(reds, [0, 0, 25, 75, 125, 175, 200, 200]);
    }

    #[test]
    fn a_png_holds_the_pixels() {
        let image = Pixels::new(3, 2, (0..18).collect()).expect("an image");
        let file = image.to_png();
        let decoder = png::Decoder::new(std::io::Cursor::new(&file));
        let mut reader = decoder.read_info().expect("a PNG file");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let frame = reader.next_frame(&mut pixels).expect("an image");
        assert_eq!((frame.width, frame.height), (3, 2));
        assert_eq!(pixels, image.rgb());
    }
}
