//! Resizing of 8-bit images with exactly Pillow's rounding: fixed-point weights, columns first, then rows.
//!
//! Classifiers are evaluated on images that Pillow resized, and a pixel that rounds the other way moves logits.

use percept_kernels::resize::{Resize, ResizeShape, Taps};

/// Pillow keeps 8 bits for the pixel and 2 for the overshoot of the bicubic curve.
const WEIGHT_BITS: u32 = 32 - 8 - 2;

/// A filter of Pillow's `Image.resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PillowFilter {
    /// `Image.BILINEAR`.
    Bilinear,
    /// `Image.BICUBIC`.
    Bicubic,
}

impl PillowFilter {
    fn resize(self) -> Resize {
        match self {
            Self::Bilinear => Resize::ANTIALIASED_BILINEAR,
            Self::Bicubic => Resize::ANTIALIASED_BICUBIC,
        }
    }
}

struct FixedTaps {
    start: usize,
    weights: Vec<i32>,
}

fn fixed_taps(filter: PillowFilter, input: usize, output: usize) -> Vec<FixedTaps> {
    let shape = ResizeShape {
        planes: 1,
        input: [input; 2],
        output: [output; 2],
    };
    let fixed = |weight: &f64| (weight * f64::from(1 << WEIGHT_BITS)).round() as i32;
    let taps = Taps::of_axis(&filter.resize(), &shape, 0).into_iter();
    taps.map(|taps| FixedTaps {
        start: taps.start,
        weights: taps.weights.iter().map(fixed).collect(),
    })
    .collect()
}

fn round_to_byte(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// Resizes an interleaved image [height, width, channels] of bytes, as Pillow does.
pub(crate) fn resize_u8_pillow(
    filter: PillowFilter,
    x: &[u8],
    input: [usize; 2],
    output: [usize; 2],
    channels: usize,
) -> Vec<u8> {
    assert_eq!(
        x.len(),
        input[0] * input[1] * channels,
        "x has height * width * channels bytes"
    );
    let half = 1 << (WEIGHT_BITS - 1);
    let mut wide = Vec::with_capacity(input[0] * output[1] * channels);
    if input[1] == output[1] {
        wide.extend_from_slice(x);
    } else {
        let columns = fixed_taps(filter, input[1], output[1]);
        for row in x.chunks_exact((input[1] * channels).max(1)) {
            for taps in &columns {
                for channel in 0..channels {
                    let pixels = row[taps.start * channels + channel..]
                        .iter()
                        .step_by(channels);
                    let products = pixels.zip(&taps.weights).map(|(&p, w)| i32::from(p) * w);
                    wide.push(round_to_byte(half + products.sum::<i32>()));
                }
            }
        }
    }
    if input[0] == output[0] {
        return wide;
    }
    let stride = output[1] * channels;
    let mut y = Vec::with_capacity(output[0] * stride);
    let mut sums = vec![0; stride];
    for taps in fixed_taps(filter, input[0], output[0]) {
        sums.fill(half);
        for (row, weight) in wide[taps.start * stride..]
            .chunks_exact(stride.max(1))
            .zip(&taps.weights)
        {
            for (sum, &pixel) in sums.iter_mut().zip(row) {
                *sum += i32::from(pixel) * weight;
            }
        }
        y.extend(sums.iter().map(|&sum| round_to_byte(sum)));
    }
    y
}
