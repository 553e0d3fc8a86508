//! Antialiased resizing of 8-bit images exactly as Pillow does it, which is what torchvision's transforms run on images.
//!
//! Weights are fixed-point numbers of 22 bits; columns come first, are rounded to 8 bits, then rows. An axis that keeps its
//! size is not touched.

use super::{ANTIALIASED_BICUBIC_A, Interpolation, Taps};
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::for_each_block;
use crate::simd::Simd;

/// Sizes of a resize of a [height, width, channels] image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// Channels, interleaved.
    pub channels: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
}

/// Pillow's `Image.resize` with `BILINEAR`.
pub fn resize_u8_pillow_bilinear(cpu: &Cpu, shape: &ImageShape, x: &[u8], y: &mut [u8]) {
    resize(cpu, Interpolation::Bilinear, shape, x, y);
}

/// Pillow's `Image.resize` with `BICUBIC`.
pub fn resize_u8_pillow_bicubic(cpu: &Cpu, shape: &ImageShape, x: &[u8], y: &mut [u8]) {
    resize(
        cpu,
        Interpolation::Bicubic {
            a: ANTIALIASED_BICUBIC_A,
        },
        shape,
        x,
        y,
    );
}

fn resize(cpu: &Cpu, curve: Interpolation, shape: &ImageShape, x: &[u8], y: &mut [u8]) {
    let &ImageShape {
        channels,
        input: [height, width],
        output: [out_height, out_width],
    } = shape;
    assert_eq!(x.len(), height * width * channels, "length of x");
    assert_eq!(y.len(), out_height * out_width * channels, "length of y");
    if y.is_empty() {
        return;
    }
    assert!(height > 0 && width > 0, "an empty image cannot be resized");
    let columns = (width != out_width).then(|| FixedTaps::of_axis(curve, width, out_width));
    let rows = (height != out_height).then(|| FixedTaps::of_axis(curve, height, out_height));
    match (columns, rows) {
        (None, None) => y.copy_from_slice(x),
        (Some(columns), None) => resize_columns(cpu, &columns, channels, width, x, y),
        (None, Some(rows)) => resize_rows(cpu, &rows, out_width * channels, x, y),
        (Some(columns), Some(rows)) => {
            let mut narrowed = vec![0; height * out_width * channels];
            resize_columns(cpu, &columns, channels, width, x, &mut narrowed);
            resize_rows(cpu, &rows, out_width * channels, &narrowed, y);
        }
    }
}

/// Bits behind the point of a weight: what an i32 leaves beside 8 bits of pixel and room for overshoot.
const WEIGHT_BITS: u32 = 22;
const HALF: i32 = 1 << (WEIGHT_BITS - 1);

/// The taps of an output pixel as fixed-point numbers.
struct FixedTaps {
    start: usize,
    weights: Vec<i32>,
}

impl FixedTaps {
    fn of_axis(curve: Interpolation, input: usize, output: usize) -> Vec<Self> {
        let step = input as f64 / output as f64;
        let fixed = |weight: f64| {
            // Half away from zero, as Pillow rounds.
            (weight * f64::from(1 << WEIGHT_BITS)).round() as i32
        };
        (0..output)
            .map(|index| {
                let taps = Taps::antialiased(curve, index, step, input);
                Self {
                    start: taps.start,
                    weights: taps.weights.into_iter().map(fixed).collect(),
                }
            })
            .collect()
    }
}

#[inline(always)]
fn to_pixel(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// Resizes rows of `width` pixels.
fn resize_columns(
    cpu: &Cpu,
    taps: &[FixedTaps],
    channels: usize,
    width: usize,
    x: &[u8],
    y: &mut [u8],
) {
    let (row_len, out_len) = (width * channels, taps.len() * channels);
    for_each_block(
        cpu,
        x.len() / row_len,
        row_len.max(out_len),
        out_len,
        y,
        |rows, y| {
            for (row, y) in rows.zip(y.chunks_exact_mut(out_len)) {
                let x = &x[row * row_len..][..row_len];
                match channels {
                    3 => resize_row::<3>(taps, x, y),
                    1 => resize_row::<1>(taps, x, y),
                    4 => resize_row::<4>(taps, x, y),
                    _ => resize_row_of_any(taps, channels, x, y),
                }
            }
        },
    );
}

fn resize_row<const CHANNELS: usize>(taps: &[FixedTaps], x: &[u8], y: &mut [u8]) {
    let (x, y) = (x.as_chunks::<CHANNELS>().0, y.as_chunks_mut::<CHANNELS>().0);
    for (taps, y) in taps.iter().zip(y) {
        let mut sums = [HALF; CHANNELS];
        for (pixel, &weight) in x[taps.start..].iter().zip(&taps.weights) {
            for c in 0..CHANNELS {
                sums[c] += i32::from(pixel[c]) * weight;
            }
        }
        *y = sums.map(to_pixel);
    }
}

fn resize_row_of_any(taps: &[FixedTaps], channels: usize, x: &[u8], y: &mut [u8]) {
    for (taps, y) in taps.iter().zip(y.chunks_exact_mut(channels)) {
        for (c, y) in y.iter_mut().enumerate() {
            let values = x[taps.start * channels + c..].iter().step_by(channels);
            let products = values
                .zip(&taps.weights)
                .map(|(&x, &weight)| i32::from(x) * weight);
            *y = to_pixel(HALF + products.sum::<i32>());
        }
    }
}

/// Mixes rows of `row_len` numbers.
fn resize_rows(cpu: &Cpu, taps: &[FixedTaps], row_len: usize, x: &[u8], y: &mut [u8]) {
    for_each_block(cpu, taps.len(), row_len * 4, row_len, y, |rows, y| {
        for (taps, y) in taps[rows].iter().zip(y.chunks_exact_mut(row_len)) {
            cpu.isa().run(MixRows {
                taps,
                x: &x[taps.start * row_len..],
                y,
            });
        }
    });
}

/// One output row.
struct MixRows<'a> {
    taps: &'a FixedTaps,
    x: &'a [u8],
    y: &'a mut [u8],
}

impl Kernel for MixRows<'_> {
    type Output = ();

    /// Plain loops over short pieces, which the compiler vectorises.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const PIECE: usize = 64;
        let row_len = self.y.len();
        for (i, y) in self.y.chunks_mut(PIECE).enumerate() {
            let mut sums = [HALF; PIECE];
            for (row, &weight) in self.taps.weights.iter().enumerate() {
                let pixels = &self.x[row * row_len + i * PIECE..][..y.len()];
                for (sum, &pixel) in sums.iter_mut().zip(pixels) {
                    *sum += i32::from(pixel) * weight;
                }
            }
            for (y, sum) in y.iter_mut().zip(sums) {
                *y = to_pixel(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resize::{Resize, ResizeShape};
    use crate::{Isa, reference, testing};

    fn run(shape: &ImageShape, x: &[u8], bicubic: bool) -> Vec<u8> {
        let run = |isa, threads| {
            let mut y = vec![0; shape.output[0] * shape.output[1] * shape.channels];
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            if bicubic {
                resize_u8_pillow_bicubic(&cpu, shape, x, &mut y);
            } else {
                resize_u8_pillow_bilinear(&cpu, shape, x, &mut y);
            }
            y
        };
        let one = run(Isa::Portable, 1);
        for isa in Isa::available() {
            assert_eq!(run(isa, 3), one, "{isa}");
        }
        one
    }

    fn image(len: usize) -> Vec<u8> {
        testing::numbers(7, len)
            .iter()
            .map(|v| (v * 127.9 + 128.0) as u8)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn is_the_exact_resize_rounded_twice(
            channels in 1usize..6,
            input in prop::array::uniform2(1usize..60),
            output in prop::array::uniform2(0usize..40),
            bicubic in any::<bool>(),
        ) {
            let shape = ImageShape { channels, input, output };
            let x = image(input[0] * input[1] * channels);
            let y = run(&shape, &x, bicubic);
            let resize = if bicubic { Resize::ANTIALIASED_BICUBIC } else { Resize::ANTIALIASED_BILINEAR };
            let plane = ResizeShape { planes: 1, input, output };
            let mut exact = vec![0.0; plane.out_len()];
            for c in 0..channels {
                let channel: Vec<f64> = x[c..].iter().step_by(channels).map(|&v| v.into()).collect();
                reference::resize(&resize, &plane, &channel, &mut exact);
                for (&got, exact) in y.iter().skip(c).step_by(channels).zip(&exact) {
                    // Rounding to 8 bits between the axes costs up to half a step times the weights' absolute sum.
                    let away = (f64::from(got) - exact.clamp(0.0, 255.0)).abs();
                    prop_assert!(away < if bicubic { 30.0 } else { 1.01 }, "{got} instead of {exact}");
                }
            }
        }
    }

    #[test]
    fn sizes_that_stay_are_copied() {
        let x = image(5 * 4 * 3);
        let shape = ImageShape {
            channels: 3,
            input: [5, 4],
            output: [5, 4],
        };
        assert_eq!(run(&shape, &x, false), x);
    }

    fn adler32(bytes: &[u8]) -> u32 {
        let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65_521;
            (a, (b + a) % 65_521)
        });
        b << 16 | a
    }

    /// Checksums of what Pillow 13.0 makes of the same pixels: height, width, new height, new width, bilinear, bicubic.
    #[test]
    fn equals_pillow_bit_for_bit() {
        let cases = [
            (37, 53, 16, 20, 0xa4e9_de4e, 0xb586_de53),
            (20, 16, 45, 33, 0xfe03_ac1b, 0x0f81_abab),
            (64, 48, 64, 20, 0xf080_785f, 0xc14c_782e),
            (9, 70, 31, 70, 0x0f72_a6e2, 0x0286_a6e4),
            (480, 640, 256, 341, 0x1c6c_9e26, 0x2963_9d3a),
        ];
        for (height, width, out_height, out_width, bilinear, bicubic) in cases {
            let shape = ImageShape {
                channels: 3,
                input: [height, width],
                output: [out_height, out_width],
            };
            let x: Vec<u8> = (0..(height * width * 3) as u64)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect();
            assert_eq!(
                adler32(&run(&shape, &x, false)),
                bilinear,
                "bilinear {shape:?}"
            );
            assert_eq!(
                adler32(&run(&shape, &x, true)),
                bicubic,
                "bicubic {shape:?}"
            );
        }
    }
}
