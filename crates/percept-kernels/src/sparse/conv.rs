//! The convolution: gather rows, multiply with a tap's weights, add to rows.

use crate::aligned::{AlignedBuf, SharedMut};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::wide::{self, ScatteredRow, Wide};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Rows of a register tile: with two vectors of columns, 12 sums hide the latency of the multiply-adds.
const TILE_ROWS: usize = 6;
/// Vectors of columns of a register tile.
const TILE_VECTORS: usize = 2;
/// Columns of a packed panel of weights.
const PANEL: usize = TILE_VECTORS * LANES;

/// Sizes of a sparse convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct SparseConvShape {
    pub in_channels: usize,
    pub out_channels: usize,
    /// Taps of the kernel.
    pub taps: usize,
    /// Output rows of a block of the rulebook.
    pub block_rows: usize,
}

impl SparseConvShape {
    /// Length of the weights `[out_channels][taps][in_channels]`.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.taps * self.in_channels
    }
}

/// Weights as the kernel reads them: `[tap][panel of 16 output channels][input channel][16]`, zero past the last channel.
#[derive(Debug)]
pub struct PackedSparseConv {
    shape: SparseConvShape,
    weights: AlignedBuf,
}

impl PackedSparseConv {
    /// Packs weights `[out_channels][taps][in_channels]`.
    pub fn pack(shape: &SparseConvShape, weight: &[f32]) -> Self {
        let SparseConvShape {
            in_channels,
            out_channels,
            taps,
            ..
        } = *shape;
        assert_eq!(weight.len(), shape.weight_len(), "length of the weights");
        let panels = out_channels.div_ceil(PANEL);
        let mut packed = AlignedBuf::zeroed_floats(taps * panels * in_channels * PANEL);
        let floats = packed.floats_mut();
        for (row, values) in weight.chunks_exact(in_channels.max(1)).enumerate() {
            let (output, tap) = (row / taps, row % taps);
            let panel = (tap * panels + output / PANEL) * in_channels * PANEL;
            for (input, &value) in values.iter().enumerate() {
                floats[panel + input * PANEL + output % PANEL] = value;
            }
        }
        Self {
            shape: *shape,
            weights: packed,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.weights.len()
    }
}

/// y[o] = activation(bias + residual[o] + Σ over pairs (o, i) of a tap: weight[tap] · x[i]).
///
/// `x` is `[sites][in_channels]`, `y` `[output sites][out_channels]`; `pairs` and `starts` are a rulebook's for these rows.
pub fn sparse_conv(
    cpu: &Cpu,
    packed: &PackedSparseConv,
    x: &[f32],
    pairs: &[i32],
    starts: &[i32],
    epilogue: Epilogue,
    y: &mut [f32],
) {
    let shape = &packed.shape;
    let rows = y.len() / shape.out_channels.max(1);
    assert_eq!(rows * shape.out_channels, y.len(), "length of y");
    epilogue.check(shape.out_channels, y.len());
    epilogue.check_apart();
    let (pairs, rest) = pairs.as_chunks::<2>();
    assert!(rest.is_empty(), "a pair has two rows");
    let blocks = rows.div_ceil(shape.block_rows);
    assert_eq!(starts.len(), blocks * shape.taps + 1, "length of starts");
    let y = SharedMut::new(y);
    cpu.parallel(blocks, &|block, _| {
        let first = block * shape.block_rows;
        let block_rows = first..rows.min(first + shape.block_rows);
        let channels = shape.out_channels;
        // SAFETY: blocks have disjoint rows.
        let y = unsafe { y.slice(block_rows.start * channels..block_rows.end * channels) };
        cpu.isa().run(Block {
            packed,
            x,
            pairs,
            starts: &starts[block * shape.taps..][..=shape.taps],
            first_row: first,
            epilogue,
            y,
        });
    });
}

/// One block of output rows.
struct Block<'a> {
    packed: &'a PackedSparseConv,
    x: &'a [f32],
    pairs: &'a [[i32; 2]],
    starts: &'a [i32],
    first_row: usize,
    epilogue: Epilogue<'a>,
    y: &'a mut [f32],
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            packed,
            x,
            pairs,
            starts,
            first_row,
            epilogue,
            y,
        } = self;
        let SparseConvShape {
            in_channels,
            out_channels,
            ..
        } = packed.shape;
        start_rows(s, &epilogue, first_row, out_channels, y);
        let panel_len = in_channels * PANEL;
        let mut panels = packed.weights.floats().chunks_exact(panel_len.max(1));
        for tap in starts.windows(2) {
            let pairs = &pairs[tap[0] as usize..tap[1] as usize];
            for column in (0..out_channels).step_by(PANEL) {
                let Some(panel) = panels.next() else { break };
                let columns = (out_channels - column).min(PANEL);
                let tile = |group| Tile {
                    group,
                    panel,
                    x,
                    in_channels,
                    out_channels,
                    column,
                    columns,
                    first_row,
                };
                if let Some(wide) = s.wide() {
                    for group in pairs.chunks(wide::ROWS) {
                        tile(group).add_wide(wide, y);
                    }
                    continue;
                }
                for group in pairs.chunks(TILE_ROWS) {
                    let tile = tile(group);
                    match group.len() {
                        6 => tile.add::<S, 6>(s, y),
                        5 => tile.add::<S, 5>(s, y),
                        4 => tile.add::<S, 4>(s, y),
                        3 => tile.add::<S, 3>(s, y),
                        2 => tile.add::<S, 2>(s, y),
                        _ => tile.add::<S, 1>(s, y),
                    }
                }
            }
        }
        finish_rows(s, &epilogue, y);
    }
}

/// A register tile: some pairs of one tap, by one panel of output channels.
struct Tile<'a> {
    group: &'a [[i32; 2]],
    panel: &'a [f32],
    x: &'a [f32],
    in_channels: usize,
    out_channels: usize,
    column: usize,
    columns: usize,
    first_row: usize,
}

impl Tile<'_> {
    /// The numbers of x that a pair reads, and where in y it is added.
    #[inline(always)]
    fn operands(&self, [output, input]: [i32; 2]) -> (&[f32], usize) {
        let input = &self.x[input as usize * self.in_channels..][..self.in_channels];
        let output = (output as usize - self.first_row) * self.out_channels + self.column;
        (input, output)
    }

    #[inline(always)]
    fn add_wide(&self, wide: Wide, y: &mut [f32]) {
        let nowhere = ScatteredRow {
            from: std::ptr::null(),
            to: std::ptr::null_mut(),
        };
        let mut rows = [nowhere; wide::ROWS];
        let (len, y) = (y.len(), y.as_mut_ptr());
        for (row, &pair) in rows.iter_mut().zip(self.group) {
            let (input, output) = self.operands(pair);
            assert!(output + self.columns <= len, "a row of y");
            *row = ScatteredRow {
                from: input.as_ptr(),
                to: y.wrapping_add(output),
            };
        }
        let rows = &rows[..self.group.len()];
        let panel = (self.panel.as_ptr(), PANEL);
        // SAFETY: each row has `in_channels` floats, the panel 16 for each of them, and no two pairs of a tap one output.
        unsafe { wide.add_scattered_rows(self.in_channels, rows, 1, panel, self.columns) };
    }

    #[inline(always)]
    fn add<S: Simd, const ROWS: usize>(&self, s: S, y: &mut [f32]) {
        let mut inputs = [std::ptr::null(); ROWS];
        let mut outputs = [0; ROWS];
        for i in 0..ROWS {
            let (input, output) = self.operands(self.group[i]);
            inputs[i] = input.as_ptr();
            outputs[i] = output;
        }
        // SAFETY: each row has `in_channels` floats, and the panel 16 for each of them.
        let sums = unsafe { multiply::<S, ROWS>(s, inputs, self.panel.as_ptr(), self.in_channels) };
        for i in 0..ROWS {
            let y = &mut y[outputs[i]..][..self.columns];
            if self.columns == PANEL {
                let (low, high) = y.split_at_mut(LANES);
                s.write(low, s.add(s.read(low), sums[i][0]));
                s.write(high, s.add(s.read(high), sums[i][1]));
            } else {
                for (part, sum) in y.chunks_mut(LANES).zip(sums[i]) {
                    s.write(part, s.add(s.read(part), sum));
                }
            }
        }
    }
}

/// Rows times a panel.
///
/// # Safety
/// Each of `rows` must be valid for reading `depth` floats, and `panel` for 16 · `depth`.
#[inline(always)]
unsafe fn multiply<S: Simd, const ROWS: usize>(
    s: S,
    rows: [*const f32; ROWS],
    mut panel: *const f32,
    depth: usize,
) -> [[S::V; TILE_VECTORS]; ROWS] {
    const UNROLL: usize = 4;
    let mut sums = [[s.splat(0.0); TILE_VECTORS]; ROWS];
    let whole = depth / UNROLL * UNROLL;
    let mut k = 0;
    while k < whole {
        for step in 0..UNROLL {
            // SAFETY: k + step < depth.
            unsafe { rank_one(s, &rows, k + step, panel.add(step * PANEL), &mut sums) };
        }
        k += UNROLL;
        // SAFETY: at most one past the end.
        panel = unsafe { panel.add(UNROLL * PANEL) };
    }
    while k < depth {
        // SAFETY: k < depth.
        unsafe {
            rank_one(s, &rows, k, panel, &mut sums);
            panel = panel.add(PANEL);
        }
        k += 1;
    }
    sums
}

#[inline(always)]
unsafe fn rank_one<S: Simd, const ROWS: usize>(
    s: S,
    rows: &[*const f32; ROWS],
    k: usize,
    panel: *const f32,
    sums: &mut [[S::V; TILE_VECTORS]; ROWS],
) {
    // SAFETY: the caller gives 16 floats at `panel` and more than `k` floats a row.
    unsafe {
        let columns = [s.load(panel), s.load(panel.add(LANES))];
        for i in 0..ROWS {
            let value = s.splat(*rows[i].add(k));
            for j in 0..TILE_VECTORS {
                // Settled, or else the compiler loads ahead into registers that it does not have.
                sums[i][j] = s.settle(s.mul_add(value, columns[j], sums[i][j]));
            }
        }
    }
}

/// What rows hold before the pairs are added: bias and residual.
#[inline(always)]
fn start_rows<S: Simd>(
    s: S,
    epilogue: &Epilogue,
    first_row: usize,
    channels: usize,
    y: &mut [f32],
) {
    for (row, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
        let start = (first_row + row) * channels;
        for (part, y) in y.chunks_mut(LANES).enumerate() {
            let column = part * LANES;
            let n = y.len();
            let mut sum = s.splat(0.0);
            if let Some(bias) = epilogue.bias {
                sum = s.read(&bias[column..][..n]);
            }
            if let Some(residual) = epilogue.residual {
                sum = s.add(sum, s.read(&residual[start + column..][..n]));
            }
            s.write(y, sum);
        }
    }
}

/// The activation, while the block is in the cache.
#[inline(always)]
fn finish_rows<S: Simd>(s: S, epilogue: &Epilogue, y: &mut [f32]) {
    if epilogue.activation != crate::Activation::Identity {
        for y in y.chunks_mut(LANES) {
            s.write(y, epilogue.activation.apply(s, s.read(y)));
        }
    }
}
