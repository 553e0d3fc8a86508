//! The gradient of a 3x3 stride-1 convolution by its weight.
//!
//! The forward pass is y = A^T [(G g G^T) ⊙ (B^T d B)] A, tile by tile. So dg = G^T [Σ (A dy A^T) ⊙ (B^T d B)] G, summed over
//! tiles: a product of matrices at each of the 36 positions, whose depth is the tiles, with a quarter of the multiplications.
//! Here the lanes of a vector are channels, which is the order that the product reads.

mod operand;

use std::marker::PhantomData;
use std::ops::Range;

use operand::{Gradients, Inputs, Maps, Operand, TransformTiles};

use super::block::odd_lines;
use super::tile::{F4, Tile};
use crate::aligned::SharedMut;
use crate::conv::{ConvAlgorithm, ConvShape};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::gemm::TILE_COLUMNS;
use crate::gemm::blocking::Parts;
use crate::gemm::columns::{PackedPanels, multiply_columns};
use crate::gemm::pack::panels_len;
use crate::gemm::product::{BiasAxis, DepthPart, Output};
use crate::isa::Kernel;
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// Rows and columns of dy in a tile.
const OUT: usize = 4;
/// Rows and columns of x under it.
const IN: usize = 6;
const POSITIONS: usize = IN * IN;
/// Tiles of one pass at most: a panel of them stays in the first-level cache.
const MOST_TILES: usize = 256;
/// Floats that each operand and the sums may take, so that all stay in a third-level cache.
const BUFFER: usize = 5 << 18;

/// dweight (OIHW) from x and dy, which have numbers.
pub(crate) fn weight_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    dweight: &mut [f32],
) {
    assert!(
        super::supports(shape, ConvAlgorithm::Winograd4),
        "Winograd computes 3x3 stride-1 convolutions"
    );
    shape.check(Some(dweight.len()), x.len(), dy.len());
    let plan = Plan::new(shape);
    let mut shared = cpu.shared_scratch();
    let buffers = shared.floats([plan.inputs, plan.gradients, plan.sums].map(|s| POSITIONS * s));
    let [inputs, gradients, sums] = buffers.map(SharedMut::new);
    let x = Maps {
        data: x,
        channels: shape.in_channels,
        height: shape.height,
        width: shape.width,
        padding: shape.padding,
    };
    let dy = Maps {
        data: dy,
        channels: shape.out_channels,
        height: shape.out_height(),
        width: shape.out_width(),
        padding: [0, 0],
    };
    let passes = plan.passes();
    for (block, outputs) in plan.outputs.ranges().enumerate() {
        for pass in 0..passes {
            let tiles = plan.pass(pass);
            if block == 0 || passes > 1 {
                let channels = 0..shape.in_channels;
                transform::<Inputs, IN>(cpu, &x, channels, &tiles, &inputs, plan.inputs);
            }
            let target = (&gradients, plan.gradients);
            transform::<Gradients, OUT>(cpu, &dy, outputs.clone(), &tiles, target.0, target.1);
            cpu.parallel(POSITIONS, &|position, _| {
                let part = |stride: usize| position * stride..position * stride + stride;
                // SAFETY: each position has its own part of every buffer.
                unsafe {
                    cpu.isa().run(Multiply {
                        inputs: inputs.slice(part(plan.inputs)),
                        gradients: gradients.slice(part(plan.gradients)),
                        sums: sums.slice(part(plan.sums)),
                        outputs: outputs.len(),
                        channels: shape.in_channels,
                        depth: tiles.count(),
                        first: pass == 0,
                    });
                }
            });
        }
        let filters = shape.in_channels * 9;
        let target = &mut dweight[outputs.start * filters..outputs.end * filters];
        // SAFETY: the sums are finished, and from here on only read.
        let sums: &[f32] = unsafe { sums.slice(0..sums.len()) };
        let work = POSITIONS * shape.in_channels;
        for_each_block(cpu, outputs.len(), work, filters, target, |rows, target| {
            cpu.isa().run(Finish {
                sums,
                stride: plan.sums,
                channels: shape.in_channels,
                rows,
                target,
            });
        });
    }
}

/// How the work is cut: blocks of output channels, and passes of some tiles of some samples.
struct Plan {
    outputs: Parts,
    samples: Parts,
    /// Rows of tiles.
    rows: Parts,
    /// Tiles in a row.
    columns: usize,
    /// Floats of one position of x, of dy and of the sums.
    inputs: usize,
    gradients: usize,
    sums: usize,
}

impl Plan {
    fn new(shape: &ConvShape) -> Self {
        let (rows, columns) = (
            shape.out_height().div_ceil(OUT),
            shape.out_width().div_ceil(OUT),
        );
        let channels = shape.in_channels.next_multiple_of(LANES);
        let most = (BUFFER / POSITIONS / channels).max(1);
        let tiles = most.clamp(LANES, MOST_TILES);
        let samples = Parts::at_most((tiles / (rows * columns).max(1)).max(1), shape.batch, 1);
        let rows = Parts::at_most((tiles / columns.max(1)).max(1), rows, 1);
        let depth = samples.longest() * rows.longest() * columns;
        let outputs = Parts::at_most(most.next_multiple_of(LANES), shape.out_channels, LANES);
        let longest = outputs.longest().next_multiple_of(LANES);
        Self {
            outputs,
            samples,
            rows,
            columns,
            inputs: odd_lines(panels_len(channels, depth)),
            gradients: odd_lines(longest * depth),
            sums: odd_lines(longest * channels),
        }
    }

    fn passes(&self) -> usize {
        self.samples.count() * self.rows.count()
    }

    fn pass(&self, pass: usize) -> Tiles {
        Tiles {
            samples: self.samples.range(pass / self.rows.count()),
            rows: self.rows.range(pass % self.rows.count()),
            columns: self.columns,
        }
    }
}

/// The tiles of a pass.
struct Tiles {
    samples: Range<usize>,
    rows: Range<usize>,
    columns: usize,
}

impl Tiles {
    fn count(&self) -> usize {
        self.samples.len() * self.rows.len() * self.columns
    }
}

/// Transforms some channels of the tiles into an operand of the product.
fn transform<T: Operand<N>, const N: usize>(
    cpu: &Cpu,
    maps: &Maps<'_>,
    channels: Range<usize>,
    tiles: &Tiles,
    target: &SharedMut<'_, f32>,
    stride: usize,
) {
    let panels = channels.len().div_ceil(TILE_COLUMNS);
    cpu.parallel(
        panels * tiles.samples.len(),
        &|block, scratch: &mut Scratch| {
            let (sample, panel) = (block / panels, block % panels);
            cpu.isa().run(TransformTiles::<T, N> {
                maps,
                tiles,
                sample: tiles.samples.start + sample,
                channels: channels.clone(),
                panel: panel * TILE_COLUMNS..channels.len().min((panel + 1) * TILE_COLUMNS),
                target: target.as_mut_ptr(),
                stride,
                scratch,
                operand: PhantomData,
            });
        },
    );
}

/// One position: sums += gradients · inputs.
struct Multiply<'a> {
    inputs: &'a [f32],
    gradients: &'a [f32],
    sums: &'a mut [f32],
    outputs: usize,
    channels: usize,
    depth: usize,
    first: bool,
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.channels.next_multiple_of(LANES);
        let output = Output {
            y: self.sums.as_mut_ptr(),
            row_stride: width,
            epilogue: Epilogue::default(),
            bias_axis: BiasAxis::Columns,
        };
        let part = DepthPart {
            depth: self.depth,
            first: self.first,
            last: true,
        };
        let panels = PackedPanels {
            values: self.inputs,
            columns: width,
            depth: self.depth,
            start: 0,
            distant: true,
        };
        // SAFETY: both operands are packed to this depth, and the sums have room for whole vectors of channels.
        unsafe {
            multiply_columns(
                s,
                self.gradients,
                self.outputs,
                &panels,
                0..width,
                part,
                &output,
                0,
                (0, 0),
            );
        }
    }
}

/// G^T sums G of some output channels.
struct Finish<'a> {
    sums: &'a [f32],
    stride: usize,
    channels: usize,
    rows: Range<usize>,
    target: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.channels.next_multiple_of(LANES);
        let lines = self.target.chunks_exact_mut(self.channels * 9);
        for (row, line) in self.rows.zip(lines) {
            for (first, filters) in (0..).step_by(LANES).zip(line.chunks_mut(LANES * 9)) {
                let taps = taps_of_eight(s, self.sums, self.stride, row * width + first);
                for (lane, filter) in filters.chunks_exact_mut(9).enumerate() {
                    for (tap, value) in filter.iter_mut().enumerate() {
                        *value = taps[tap][lane];
                    }
                }
            }
        }
    }
}

/// The taps of eight filters side by side, whose sums begin at `at` in each position.
#[inline(always)]
fn taps_of_eight<S: Simd>(s: S, sums: &[f32], stride: usize, at: usize) -> [[f32; LANES]; 9] {
    let mut half = [[s.splat(0.0); IN]; 3];
    for j in 0..IN {
        for i in 0..IN {
            let sum = s.read(&sums[(i * IN + j) * stride + at..]);
            for y in 0..3 {
                let factor = s.splat(F4::FILTER[i][y] as f32);
                half[y][j] = s.mul_add(factor, sum, half[y][j]);
            }
        }
    }
    let mut taps = [[0.0; LANES]; 9];
    for y in 0..3 {
        for x in 0..3 {
            let mut tap = s.splat(0.0);
            for j in 0..IN {
                let factor = s.splat(F4::FILTER[j][x] as f32);
                tap = s.mul_add(factor, half[y][j], tap);
            }
            taps[3 * y + x] = s.to_array(tap);
        }
    }
    taps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    fn compare(batch: usize, channels: [usize; 2], size: [usize; 2], padding: [usize; 2]) {
        let shape = ConvShape {
            batch,
            in_channels: channels[0],
            height: size[0],
            width: size[1],
            out_channels: channels[1],
            kernel: [3, 3],
            stride: [1, 1],
            padding,
            dilation: [1, 1],
            groups: 1,
        };
        let (x, dy) = (numbers(1, shape.in_len()), numbers(2, shape.out_len()));
        let mut expected = vec![0.0; shape.weight_len()];
        gradient::conv2d_weight_gradient(&shape, &widen(&x), &widen(&dy), &mut expected);
        // Sums of so many products spread by their number's root.
        let spread = ((batch * shape.out_pixels()) as f64).sqrt();
        check(&expected, 2e-5 * spread.max(1.0), |cpu, dweight| {
            weight_gradient(cpu, &shape, &x, &dy, dweight);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_reference(
            batch in 1usize..4, channels in [1usize..40, 1usize..40], size in [3usize..20, 3usize..20],
            padding in [0usize..3, 0usize..3],
        ) {
            compare(batch, channels, size, padding);
        }
    }

    #[test]
    fn several_passes_and_blocks() {
        compare(3, [20, 12], [70, 66], [1, 1]);
        compare(20, [9, 30], [13, 9], [1, 1]);
        compare(2, [520, 90], [5, 7], [1, 1]);
        compare(2, [900, 50], [30, 5], [1, 1]);
    }
}
