//! Resizing of images and maps.

mod pillow;
mod taps;

pub use pillow::{ImageShape, resize_u8_pillow_bicubic, resize_u8_pillow_bilinear};
pub use taps::Taps;

use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// The cubic parameter that PyTorch uses without antialiasing.
pub const TORCH_BICUBIC_A: f64 = -0.75;
/// The cubic parameter of antialiased resizing, in PyTorch and Pillow alike.
pub const ANTIALIASED_BICUBIC_A: f64 = -0.5;

/// The curve that weighs the input pixels near an output pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// The pixel at floor(o * step).
    Nearest,
    /// A triangle, two pixels wide.
    Bilinear,
    /// A piecewise cubic, four pixels wide.
    Bicubic {
        /// The slope at distance 1: -0.75 and -0.5 are usual.
        a: f64,
    },
}

/// How output pixels map to input coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Pixels are areas: (o + 1/2) * step - 1/2, and indices outside are clamped.
    HalfPixel,
    /// Pixels are points and the corner points coincide: o * (input - 1) / (output - 1).
    AlignCorners,
    /// As `HalfPixel`, with the curve widened by the step when shrinking, cut at the edge and normalised.
    Antialiased,
}

/// How to resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// The curve.
    pub interpolation: Interpolation,
    /// The coordinates; nearest ignores them.
    pub sampling: Sampling,
    /// Input pixels per output pixel, down and to the right, when that is not input / output.
    pub step: Option<[f64; 2]>,
}

impl Resize {
    /// PyTorch's `nearest`.
    pub const NEAREST: Self = Self::new(Interpolation::Nearest, Sampling::HalfPixel);
    /// PyTorch's `bilinear`.
    pub const BILINEAR: Self = Self::new(Interpolation::Bilinear, Sampling::HalfPixel);
    /// PyTorch's `bicubic`.
    pub const BICUBIC: Self = Self::new(
        Interpolation::Bicubic { a: TORCH_BICUBIC_A },
        Sampling::HalfPixel,
    );
    /// PyTorch's `bilinear` with `antialias`.
    pub const ANTIALIASED_BILINEAR: Self =
        Self::new(Interpolation::Bilinear, Sampling::Antialiased);
    /// PyTorch's `bicubic` with `antialias`.
    pub const ANTIALIASED_BICUBIC: Self = Self::new(
        Interpolation::Bicubic {
            a: ANTIALIASED_BICUBIC_A,
        },
        Sampling::Antialiased,
    );

    /// A curve and coordinates, with a step of input / output.
    pub const fn new(interpolation: Interpolation, sampling: Sampling) -> Self {
        Self {
            interpolation,
            sampling,
            step: None,
        }
    }

    /// The same with an explicit step: the inverse of PyTorch's `scale_factor`.
    pub const fn with_step(self, step: [f64; 2]) -> Self {
        Self {
            step: Some(step),
            ..self
        }
    }
}

/// Sizes of a resize of [planes, height, width].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResizeShape {
    /// Maps: batch * channels.
    pub planes: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
}

impl ResizeShape {
    /// How many numbers the input has.
    pub fn in_len(&self) -> usize {
        self.planes * self.input[0] * self.input[1]
    }

    /// How many numbers the output has.
    pub fn out_len(&self) -> usize {
        self.planes * self.output[0] * self.output[1]
    }
}

/// Resizes each plane of x to y: rows first, then columns, with weights computed in f64.
pub fn resize(cpu: &Cpu, resize: &Resize, shape: &ResizeShape, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), shape.in_len(), "length of x");
    assert_eq!(y.len(), shape.out_len(), "length of y");
    if y.is_empty() {
        return;
    }
    let rows = AxisTable::new(&Taps::of_axis(resize, shape, 0));
    let columns = AxisTable::new(&Taps::of_axis(resize, shape, 1));
    let [height, width] = shape.input;
    let [out_height, out_width] = shape.output;
    let strips = out_height.div_ceil(STRIP_ROWS);
    let y = SharedMut::new(y);
    cpu.parallel(shape.planes * strips, &|index, scratch| {
        let (plane, strip) = (index / strips, index % strips);
        let first = strip * STRIP_ROWS;
        let count = STRIP_ROWS.min(out_height - first);
        let start = (plane * out_height + first) * out_width;
        // SAFETY: each strip of rows of each plane belongs to one block.
        let y = unsafe { y.slice(start..start + count * out_width) };
        let x = &x[plane * height * width..][..height * width];
        cpu.isa().run(Strip {
            rows: &rows,
            columns: &columns,
            first,
            width,
            x,
            y,
            scratch,
        });
    });
}

/// Output rows of one block.
const STRIP_ROWS: usize = 16;

/// The taps of an axis, rounded to f32 and laid end to end.
struct AxisTable {
    /// The first input pixel and the first weight of each output pixel, and behind them where the weights end.
    starts: Vec<(usize, usize)>,
    weights: Vec<f32>,
}

impl AxisTable {
    fn new(taps: &[Taps]) -> Self {
        let mut table = Self {
            starts: Vec::with_capacity(taps.len() + 1),
            weights: Vec::new(),
        };
        for tap in taps {
            table.starts.push((tap.start, table.weights.len()));
            table
                .weights
                .extend(tap.weights.iter().map(|&weight| weight as f32));
        }
        table.starts.push((0, table.weights.len()));
        table
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The first input pixel of an output pixel, and the weights from there on.
    #[inline(always)]
    fn taps(&self, index: usize) -> (usize, &[f32]) {
        let (pixel, start) = self.starts[index];
        (pixel, &self.weights[start..self.starts[index + 1].1])
    }
}

/// Some output rows of one plane.
struct Strip<'a> {
    rows: &'a AxisTable,
    columns: &'a AxisTable,
    first: usize,
    width: usize,
    x: &'a [f32],
    y: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for Strip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [mixed] = self.scratch.floats([self.width]);
        for (i, y) in self.y.chunks_exact_mut(self.columns.len()).enumerate() {
            let (pixel, weights) = self.rows.taps(self.first + i);
            mix_rows(s, &self.x[pixel * self.width..], weights, mixed);
            for (j, y) in y.iter_mut().enumerate() {
                let (pixel, weights) = self.columns.taps(j);
                let mut sum = 0.0;
                for (&value, &weight) in mixed[pixel..].iter().zip(weights) {
                    sum += value * weight;
                }
                *y = sum;
            }
        }
    }
}

/// mixed = the weighted sum of the first rows of x.
#[inline(always)]
fn mix_rows<S: Simd>(s: S, x: &[f32], weights: &[f32], mixed: &mut [f32]) {
    let width = mixed.len();
    for (i, mixed) in mixed.chunks_mut(LANES).enumerate() {
        let mut sum = s.splat(0.0);
        for (row, &weight) in weights.iter().enumerate() {
            let pixels = &x[row * width + i * LANES..][..mixed.len()];
            sum = s.mul_add(s.read(pixels), s.splat(weight), sum);
        }
        s.write(mixed, sum);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    fn resizes() -> impl Strategy<Value = Resize> {
        prop::sample::select(vec![
            Resize::NEAREST,
            Resize::BILINEAR,
            Resize::BICUBIC,
            Resize::ANTIALIASED_BILINEAR,
            Resize::ANTIALIASED_BICUBIC,
            Resize::new(Interpolation::Bilinear, Sampling::AlignCorners),
            Resize::BICUBIC.with_step([0.7, 1.3]),
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn planes(
            resize_as in resizes(),
            planes in 0usize..4,
            input in prop::array::uniform2(1usize..50),
            output in prop::array::uniform2(0usize..50),
        ) {
            let shape = ResizeShape { planes, input, output };
            let x = numbers(1, shape.in_len());
            let mut expected = vec![0.0; shape.out_len()];
            reference::resize(&resize_as, &shape, &widen(&x), &mut expected);
            check(&expected, 2e-6, |cpu, y| resize(cpu, &resize_as, &shape, &x, y));
        }
    }

    #[test]
    fn nearest_copies() {
        let shape = ResizeShape {
            planes: 1,
            input: [2, 2],
            output: [4, 4],
        };
        let expected = [
            1., 1., 2., 2., 1., 1., 2., 2., 3., 3., 4., 4., 3., 3., 4., 4.,
        ];
        check(&expected, 0.0, |cpu, y| {
            resize(cpu, &Resize::NEAREST, &shape, &[1.0, 2.0, 3.0, 4.0], y);
        });
    }
}
