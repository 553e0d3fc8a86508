//! The gradient of a convolution by its weight: dw[k, (c, u, v)] = Σ over samples and pixels of dy[k] · x[window of (c, u, v)].
//!
//! A product of two matrices whose common depth is the pixels of all samples. Blocks of weights are independent; where there
//! are too few of them to share, the depth is cut too, and the parts are added in their order.

use std::ops::Range;

use super::conv_weight_depthwise;
use super::conv_window::gather_window;
use crate::aligned::SharedMut;
use crate::conv::{ConvAlgorithm, ConvShape, Mode, supports, winograd};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::blocking::Parts;
use crate::gemm::columns::{PackedPanels, multiply_columns};
use crate::gemm::pack::{groups_len, pack_groups, pack_panels_transposed, panels_len};
use crate::gemm::product::{BiasAxis, DepthPart, Output};
use crate::gemm::{TILE_COLUMNS, TILE_ROWS};
use crate::isa::Kernel;
use crate::simd::Simd;

/// Output channels of a block: with [`DEPTH`] they fill half of a 512 KB second-level cache.
const ROWS: usize = 256;
/// Window positions of a block, enough to make packing dy cheap.
const COLUMNS: usize = 16 * TILE_COLUMNS;
/// Pixels of one pass: a panel of them stays in the first-level cache.
const DEPTH: usize = 256;
/// Blocks to cut the work into at least, when there are the pixels.
const BLOCKS: usize = 8;

/// Fewer channels do not pay for the transforms.
const WINOGRAD_CHANNELS: usize = 16;

/// dweight (OIHW) from x [batch, in_channels, height, width] and dy [batch, out_channels, out_height, out_width].
pub fn conv2d_weight_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    mode: Mode,
    x: &[f32],
    dy: &[f32],
    dweight: &mut [f32],
) {
    shape.check(Some(dweight.len()), x.len(), dy.len());
    if dy.is_empty() || x.is_empty() {
        return dweight.fill(0.0);
    }
    let fewest = shape.in_channels.min(shape.out_channels);
    if mode == Mode::Fast
        && supports(shape, ConvAlgorithm::Winograd4)
        && fewest >= WINOGRAD_CHANNELS
    {
        return winograd::weight_gradient(cpu, shape, x, dy, dweight);
    }
    if shape.is_depthwise() {
        return conv_weight_depthwise::weight_gradient(cpu, shape, x, dy, dweight);
    }
    let product = Product::new(shape, x, dy);
    let splits = product.splits();
    if splits == 1 {
        return product.run(cpu, 1, dweight);
    }
    let len = dweight.len();
    let mut shared = cpu.shared_scratch();
    let [parts] = shared.floats([splits * len]);
    product.run(cpu, splits, parts);
    for (index, sum) in dweight.iter_mut().enumerate() {
        *sum = (0..splits).map(|part| parts[part * len + index]).sum();
    }
}

/// How the product is cut.
struct Product<'a> {
    shape: &'a ConvShape,
    x: &'a [f32],
    dy: &'a [f32],
    rows: Parts,
    columns: Parts,
    /// Samples that pass together: several of them where one has few pixels.
    samples: Parts,
    /// Pixels of one sample.
    pixels: Parts,
}

impl<'a> Product<'a> {
    fn new(shape: &'a ConvShape, x: &'a [f32], dy: &'a [f32]) -> Self {
        Self {
            shape,
            x,
            dy,
            rows: Parts::at_most(ROWS, shape.group_out(), TILE_ROWS),
            columns: Parts::at_most(COLUMNS, shape.group_in() * shape.taps(), TILE_COLUMNS),
            samples: Parts::at_most((DEPTH / shape.out_pixels()).max(1), shape.batch, 1),
            pixels: Parts::at_most(DEPTH, shape.out_pixels(), 1),
        }
    }

    fn weight_blocks(&self) -> usize {
        self.shape.groups * self.rows.count() * self.columns.count()
    }

    fn passes(&self) -> usize {
        self.samples.count() * self.pixels.count()
    }

    /// The pixels of one pass.
    fn pass(&self, pass: usize) -> PassPixels<'a> {
        PassPixels {
            shape: self.shape,
            samples: self.samples.range(pass / self.pixels.count()),
            pixels: self.pixels.range(pass % self.pixels.count()),
        }
    }

    /// Parts of the depth, so that there are blocks enough.
    fn splits(&self) -> usize {
        BLOCKS.div_ceil(self.weight_blocks()).min(self.passes())
    }

    /// Writes `splits` copies of the weights' length, which sum to the gradient.
    fn run(&self, cpu: &Cpu, splits: usize, target: &mut [f32]) {
        let depth = Parts::exactly(splits, self.passes(), 1);
        let blocks = self.weight_blocks();
        let (rows, columns) = (self.rows.count(), self.columns.count());
        let len = self.shape.weight_len();
        let target = SharedMut::new(target);
        cpu.parallel(splits * blocks, &|block, scratch| {
            let (split, block) = (block / blocks, block % blocks);
            let (group, block) = (block / (rows * columns), block % (rows * columns));
            let group_len = self.shape.group_out() * self.shape.group_in() * self.shape.taps();
            cpu.isa().run(Block {
                product: self,
                group,
                rows: self.rows.range(block / columns),
                columns: self.columns.range(block % columns),
                passes: depth.range(split),
                output: Output {
                    y: target
                        .as_mut_ptr()
                        .wrapping_add(split * len + group * group_len),
                    row_stride: self.shape.group_in() * self.shape.taps(),
                    epilogue: Epilogue::default(),
                    bias_axis: BiasAxis::Columns,
                },
                scratch,
            });
        });
    }
}

/// Some pixels of some samples: the depth of one pass.
struct PassPixels<'a> {
    shape: &'a ConvShape,
    samples: Range<usize>,
    pixels: Range<usize>,
}

impl PassPixels<'_> {
    fn depth(&self) -> usize {
        self.samples.len() * self.pixels.len()
    }

    /// dy of `count` channels, a channel a row, and the distance between rows: where it lies, or gathered in `strip`.
    #[inline(always)]
    fn gradients<'s>(
        &self,
        dy: &'s [f32],
        first: usize,
        count: usize,
        strip: &'s mut [f32],
    ) -> (&'s [f32], usize) {
        let area = self.shape.out_pixels();
        let start = |sample: usize, channel: usize| {
            (sample * self.shape.out_channels + channel) * area + self.pixels.start
        };
        if self.samples.len() == 1 {
            return (&dy[start(self.samples.start, first)..], area);
        }
        let rows = strip.chunks_exact_mut(self.depth()).take(count);
        for (channel, row) in (first..).zip(rows) {
            let parts = row.chunks_exact_mut(self.pixels.len());
            for (sample, part) in self.samples.clone().zip(parts) {
                part.copy_from_slice(&dy[start(sample, channel)..][..part.len()]);
            }
        }
        (strip, self.depth())
    }

    /// x under `count` window positions of a group, a position a row, and the distance between rows.
    #[inline(always)]
    fn windows<'s, S: Simd>(
        &self,
        s: S,
        x: &'s [f32],
        group: usize,
        first: usize,
        count: usize,
        strip: &'s mut [f32],
    ) -> (&'s [f32], usize) {
        let shape = self.shape;
        let area = shape.in_pixels();
        let map = |sample: usize| {
            let first = sample * shape.in_channels + group * shape.group_in();
            &x[first * area..][..shape.group_in() * area]
        };
        let is_plain = shape.taps() == 1 && shape.stride == [1, 1] && shape.padding == [0, 0];
        if is_plain && self.samples.len() == 1 {
            let map = map(self.samples.start);
            return (&map[first * area + self.pixels.start..], area);
        }
        let rows = strip.chunks_exact_mut(self.depth()).take(count);
        for (position, row) in (first..).zip(rows) {
            let parts = row.chunks_exact_mut(self.pixels.len());
            for (sample, part) in self.samples.clone().zip(parts) {
                gather_window(s, shape, map(sample), position, self.pixels.clone(), part);
            }
        }
        (strip, self.depth())
    }
}

/// Some weights of one group, summed over some passes.
struct Block<'a> {
    product: &'a Product<'a>,
    group: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    passes: Range<usize>,
    output: Output<'a>,
    scratch: &'a mut Scratch,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            product,
            group,
            rows,
            columns,
            passes,
            output,
            scratch,
        } = self;
        let shape = product.shape;
        let longest = product.samples.longest() * product.pixels.longest();
        let width = columns.len();
        let [groups, panels, strip] = scratch.floats([
            groups_len(rows.len(), longest),
            panels_len(width, longest),
            TILE_COLUMNS * longest,
        ]);
        let first_pass = passes.start;
        for pass in passes {
            let pass_pixels = product.pass(pass);
            let depth = pass_pixels.depth();
            for row in (0..rows.len()).step_by(TILE_ROWS) {
                let count = (rows.len() - row).min(TILE_ROWS);
                let target = &mut groups[row * depth..];
                let first = group * shape.group_out() + rows.start + row;
                let (source, stride) = pass_pixels.gradients(product.dy, first, count, strip);
                pack_groups(s, source, stride, count, depth, target);
            }
            for column in (0..width).step_by(TILE_COLUMNS) {
                let count = (width - column).min(TILE_COLUMNS);
                let target = &mut panels[column * depth..];
                let first = columns.start + column;
                let (source, stride) =
                    pass_pixels.windows(s, product.x, group, first, count, strip);
                pack_panels_transposed(s, source, stride, count, depth, target);
            }
            let part = DepthPart {
                depth,
                first: pass == first_pass,
                last: true,
            };
            let panels = PackedPanels {
                values: panels,
                columns: width,
                depth,
                start: 0,
                distant: false,
            };
            // SAFETY: operands are packed above; blocks write disjoint rows and columns of their own copy.
            unsafe {
                multiply_columns(
                    s,
                    groups,
                    rows.len(),
                    &panels,
                    0..width,
                    part,
                    &output,
                    rows.start,
                    (columns.start, 0),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::conv_shapes;
    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    fn compare(shape: &ConvShape) {
        compare_in(Mode::Exact, shape, 2e-5);
    }

    fn compare_in(mode: Mode, shape: &ConvShape, tolerance: f64) {
        let (x, dy) = (numbers(1, shape.in_len()), numbers(2, shape.out_len()));
        let mut expected = vec![0.0; shape.weight_len()];
        gradient::conv2d_weight_gradient(shape, &widen(&x), &widen(&dy), &mut expected);
        check(&expected, tolerance, |cpu, dweight| {
            conv2d_weight_gradient(cpu, shape, mode, &x, &dy, dweight);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_reference(shape in conv_shapes()) {
            compare(&shape);
        }

        #[test]
        fn depthwise_layers(
            shape in conv_shapes(), channels in 2usize..5, height in 1usize..30, width in 1usize..30,
        ) {
            compare(&ConvShape {
                in_channels: channels,
                out_channels: channels,
                groups: channels,
                height,
                width,
                ..shape
            });
        }
    }

    #[test]
    fn several_blocks_on_every_axis() {
        let shape = ConvShape {
            batch: 3,
            in_channels: 50,
            height: 23,
            width: 21,
            out_channels: 270,
            kernel: [3, 3],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        compare(&shape);
        compare_in(Mode::Fast, &shape, 1e-3);
        let pointwise = ConvShape {
            kernel: [1, 1],
            padding: [0, 0],
            ..shape
        };
        compare(&pointwise);
        compare(&ConvShape {
            stride: [2, 2],
            ..pointwise
        });
    }
}
