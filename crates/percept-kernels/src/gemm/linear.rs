//! Fully connected layers: `y[M, N] = activation(x[M, K] W^T + bias + residual)`.

use super::blocking::Parts;
use super::columns::{PackedPanels, multiply_columns};
use super::narrow::{self, NarrowWeights};
use super::pack::{groups_len, pack_groups, pack_panels_transposed, panel_width, panels_len};
use super::product::{BiasAxis, DepthPart, Output};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::aligned::{AlignedBuf, SharedMut};
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Rows of x that a block packs: with [`DEPTH`] they fill a third of a 512 KB second-level cache.
const ROWS: usize = 144;
/// Depth of one pass: a panel of it stays in a 32 KB first-level cache, beside the rows that meet it.
const DEPTH: usize = 256;
/// Columns whose partial sums stay in the second-level cache from one pass to the next.
const COLUMNS: usize = 16 * TILE_COLUMNS;
/// Blocks to cut a product into at least, when it has the columns, so that threads share the work evenly.
const BLOCKS: usize = 16;
/// Columns that are worth a block of their own.
const BLOCK_COLUMNS: usize = 4 * TILE_COLUMNS;

/// The weights of a linear layer, packed once.
#[derive(Debug)]
pub struct PackedLinear {
    outputs: usize,
    inputs: usize,
    packed: Packed,
}

#[derive(Debug)]
enum Packed {
    /// Few inputs: see [`narrow`].
    Narrow(NarrowWeights),
    Panels(AlignedBuf),
}

impl PackedLinear {
    /// Packs row-major weights `[outputs, inputs]`, PyTorch's layout of `Linear.weight`.
    pub fn pack(cpu: &Cpu, weight: &[f32], outputs: usize, inputs: usize) -> PackedLinear {
        assert_eq!(weight.len(), outputs * inputs, "length of the weights");
        let packed = if inputs <= narrow::MOST_INPUTS {
            Packed::Narrow(NarrowWeights::pack(weight, outputs, inputs))
        } else {
            Packed::Panels(PackedLinear::panels(cpu, weight, outputs, inputs))
        };
        PackedLinear {
            outputs,
            inputs,
            packed,
        }
    }

    fn panels(cpu: &Cpu, weight: &[f32], outputs: usize, inputs: usize) -> AlignedBuf {
        let mut panels = AlignedBuf::zeroed_floats(panels_len(outputs, inputs));
        let packed = SharedMut::new(panels.floats_mut());
        cpu.parallel(outputs.div_ceil(TILE_COLUMNS), &|panel, _| {
            let column = panel * TILE_COLUMNS;
            let columns = (outputs - column).min(TILE_COLUMNS);
            let start = column * inputs;
            // SAFETY: each panel has its own part.
            let panel =
                unsafe { packed.slice(start..start + panel_width(column, outputs) * inputs) };
            cpu.isa().run(PackPanel {
                source: &weight[start..],
                columns,
                depth: inputs,
                panel,
            });
        });
        panels
    }

    /// Output columns, N.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Input columns, K.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match &self.packed {
            Packed::Narrow(weights) => weights.bytes(),
            Packed::Panels(panels) => panels.len(),
        }
    }
}

struct PackPanel<'a> {
    source: &'a [f32],
    columns: usize,
    depth: usize,
    panel: &'a mut [f32],
}

impl Kernel for PackPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        pack_panels_transposed(
            s,
            self.source,
            self.depth,
            self.columns,
            self.depth,
            self.panel,
        );
    }
}

/// `y[M, N] = activation(x[M, K] W^T + bias[N] + residual[M, N])`, with as many rows M as x holds.
pub fn linear(cpu: &Cpu, weights: &PackedLinear, x: &[f32], epilogue: Epilogue<'_>, y: &mut [f32]) {
    let (n, k) = (weights.outputs, weights.inputs);
    assert!(k > 0, "a linear layer has inputs");
    let m = x.len() / k;
    assert_eq!(x.len(), m * k, "length of the input");
    assert_eq!(y.len(), m * n, "length of the output");
    epilogue.check(n, y.len());
    let panels = match &weights.packed {
        Packed::Narrow(weights) => return narrow::linear(cpu, weights, x, epilogue, y),
        Packed::Panels(panels) => panels.floats(),
    };
    let y = SharedMut::new(y);
    let output = Output {
        y: y.as_mut_ptr(),
        row_stride: n,
        epilogue,
        bias_axis: BiasAxis::Columns,
    };
    let row_blocks = Parts::at_most(ROWS, m, TILE_ROWS);
    let column_blocks = Parts::exactly(
        BLOCKS
            .div_ceil(row_blocks.count().max(1))
            .min(n.div_ceil(BLOCK_COLUMNS)),
        n,
        TILE_COLUMNS,
    );
    cpu.parallel(
        row_blocks.count() * column_blocks.count(),
        &|block, scratch| {
            let rows = row_blocks.range(block / column_blocks.count());
            let columns = column_blocks.range(block % column_blocks.count());
            cpu.isa().run(Block {
                n,
                k,
                panels,
                x,
                rows,
                columns,
                output: &output,
                scratch,
            });
        },
    );
}

struct Block<'a> {
    /// Columns, and how many numbers they sum.
    n: usize,
    k: usize,
    panels: &'a [f32],
    x: &'a [f32],
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    output: &'a Output<'a>,
    scratch: &'a mut Scratch,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            n,
            k,
            panels,
            x,
            rows,
            columns,
            output,
            scratch,
        } = self;
        let depths = Parts::at_most(DEPTH, k, 1);
        let [groups] = scratch.floats([groups_len(rows.len(), k)]);
        // Each pass has its own part, so that the groups that a panel meets lie side by side.
        for depth in depths.ranges() {
            let packed = &mut groups[groups_len(rows.len(), depth.start)..];
            pack_groups(
                s,
                &x[rows.start * k + depth.start..],
                k,
                rows.len(),
                depth.len(),
                packed,
            );
        }
        let chunks = Parts::at_most(COLUMNS, columns.len(), TILE_COLUMNS);
        for chunk in chunks.ranges() {
            for depth in depths.ranges() {
                let part = DepthPart {
                    depth: depth.len(),
                    first: depth.start == 0,
                    last: depth.end == k,
                };
                let groups = &groups[groups_len(rows.len(), depth.start)..];
                let panels = PackedPanels {
                    values: panels,
                    columns: n,
                    depth: k,
                    start: depth.start,
                    distant: true,
                };
                // SAFETY: operands are packed above and in `pack`; blocks write disjoint rows and columns of y.
                unsafe {
                    multiply_columns(
                        s,
                        groups,
                        rows.len(),
                        &panels,
                        columns.start + chunk.start..columns.start + chunk.end,
                        part,
                        output,
                        rows.start,
                        (0, 0),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::isa::Isa;
    use crate::reference;
    use crate::testing::{check, numbers, residual_in_place, widen};
    use proptest::prelude::*;

    fn compare(m: usize, k: usize, n: usize, bias: bool, residual: bool, activation: Activation) {
        let (x, weight) = (numbers(1, m * k), numbers(2, n * k));
        let (bias, residual) = (
            bias.then(|| numbers(3, n)),
            residual.then(|| numbers(4, m * n)),
        );
        let mut expected = vec![0.0; m * n];
        let wide_bias = bias.as_deref().map(widen);
        reference::linear(
            [m, k, n],
            &widen(&x),
            &widen(&weight),
            wide_bias.as_deref(),
            &mut expected,
        );
        for (index, y) in expected.iter_mut().enumerate() {
            *y += residual
                .as_ref()
                .map_or(0.0, |residual| f64::from(residual[index]));
            *y = reference::activate(activation, *y);
        }
        let epilogue = Epilogue {
            bias: bias.as_deref(),
            residual: residual.as_deref(),
            residual_in_place: false,
            activation,
        };
        let run = |cpu: &Cpu, epilogue, y: &mut [f32]| {
            let weights = PackedLinear::pack(cpu, &weight, n, k);
            linear(cpu, &weights, &x, epilogue, y);
        };
        check(&expected, 1e-5, |cpu, y| run(cpu, epilogue, y));
        check(&expected, 1e-5, |cpu, y| {
            run(cpu, residual_in_place(epilogue, y), y)
        });
    }

    fn activations() -> impl Strategy<Value = Activation> {
        prop_oneof![
            Just(Activation::Identity),
            Just(Activation::Relu),
            Just(Activation::LeakyRelu(0.1)),
            Just(Activation::Gelu)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn equals_the_reference(
            m in 0usize..20, k in 1usize..50, n in 0usize..60,
            bias in any::<bool>(), residual in any::<bool>(), activation in activations(),
        ) {
            compare(m, k, n, bias, residual, activation);
        }
    }

    #[test]
    fn no_outputs_from_few_and_many_inputs() {
        compare(1, 1, 0, false, false, Activation::Identity);
        compare(3, 40, 0, true, true, Activation::Relu);
    }

    #[test]
    fn several_blocks_on_every_axis() {
        compare(77, 400, 430, true, true, Activation::Gelu);
        compare(3, 800, 410, true, false, Activation::Relu);
    }

    #[test]
    #[should_panic(expected = "length of the bias")]
    fn a_short_bias_is_refused() {
        let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
        let weights = PackedLinear::pack(&cpu, &[0.0; 6], 3, 2);
        linear(
            &cpu,
            &weights,
            &[0.0; 2],
            Epilogue {
                bias: Some(&[0.0]),
                ..Epilogue::default()
            },
            &mut [0.0; 3],
        );
    }
}
