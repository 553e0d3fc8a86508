//! dweight of a sparse convolution: for each tap, the rows of its pairs are copied side by side, some at a time, and
//! multiplied as matrices, a tile of sums in registers.

use super::SparseConvShape;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::wide::{ScatteredRow, Wide};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Output channels of a register tile: with two vectors of input channels, 12 sums hide the latency of the multiply-adds.
const TILE_ROWS: usize = 6;
/// Vectors of input channels of a register tile.
const TILE_VECTORS: usize = 2;
/// Input channels of a register tile.
const PANEL: usize = TILE_VECTORS * LANES;
/// Pairs whose rows are copied at a time: of 64 channels they stay in the nearest cache.
const CHUNK: usize = 64;

/// dweight `[out_channels][taps][in_channels]` from x and dy. Each tap is summed by one thread, in the rulebook's order.
pub fn weight_gradient(
    cpu: &Cpu,
    shape: &SparseConvShape,
    x: &[f32],
    dy: &[f32],
    pairs: &[i32],
    starts: &[i32],
    dweight: &mut [f32],
) {
    let SparseConvShape {
        in_channels,
        out_channels,
        taps,
        ..
    } = *shape;
    assert_eq!(dweight.len(), shape.weight_len(), "length of the weights");
    let (pairs, rest) = pairs.as_chunks::<2>();
    assert!(rest.is_empty(), "a pair has two rows");
    let target = SharedMut::new(dweight);
    cpu.parallel(taps, &|tap, _| {
        let sums = cpu.isa().run(Tap {
            shape,
            tap,
            x,
            dy,
            pairs,
            starts,
        });
        for output in 0..out_channels {
            let start = (output * taps + tap) * in_channels;
            // SAFETY: each tap has its own weights.
            let weights = unsafe { target.slice(start..start + in_channels) };
            for (input, weight) in weights.iter_mut().enumerate() {
                *weight = sums.0[sums.1.place(output, input)];
            }
        }
    });
}

/// Where the sums of a tap lie: tile by tile, `[tile of outputs][panel of inputs][6][16]`.
#[derive(Clone, Copy)]
struct Tiling {
    /// Channels, filled up to whole tiles.
    inputs: usize,
    outputs: usize,
}

impl Tiling {
    fn new(shape: &SparseConvShape) -> Self {
        Self {
            inputs: shape.in_channels.next_multiple_of(PANEL),
            outputs: shape.out_channels.next_multiple_of(TILE_ROWS),
        }
    }

    fn place(&self, output: usize, input: usize) -> usize {
        let tile = output / TILE_ROWS * (self.inputs / PANEL) + input / PANEL;
        (tile * TILE_ROWS + output % TILE_ROWS) * PANEL + input % PANEL
    }
}

/// All pairs of one tap.
struct Tap<'a> {
    shape: &'a SparseConvShape,
    tap: usize,
    x: &'a [f32],
    dy: &'a [f32],
    pairs: &'a [[i32; 2]],
    starts: &'a [i32],
}

impl Kernel for Tap<'_> {
    type Output = (Vec<f32>, Tiling);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let SparseConvShape {
            in_channels,
            out_channels,
            taps,
            ..
        } = *self.shape;
        let tiling = Tiling::new(self.shape);
        let mut sums = vec![0.0; tiling.outputs * tiling.inputs];
        let mut xs = vec![0.0; CHUNK * tiling.inputs];
        let mut dys = vec![0.0; CHUNK * tiling.outputs];
        let mut copied = 0;
        let spans = self.starts.windows(2).skip(self.tap).step_by(taps.max(1));
        for span in spans {
            for &[output, input] in &self.pairs[span[0] as usize..span[1] as usize] {
                let x = &self.x[input as usize * in_channels..][..in_channels];
                copy(s, x, &mut xs[copied * tiling.inputs..]);
                let dy = &self.dy[output as usize * out_channels..][..out_channels];
                copy(s, dy, &mut dys[copied * tiling.outputs..]);
                copied += 1;
                if copied == CHUNK {
                    add_products(s, &tiling, &xs, &dys, copied, &mut sums);
                    copied = 0;
                }
            }
        }
        add_products(s, &tiling, &xs, &dys, copied, &mut sums);
        (sums, tiling)
    }
}

/// A row into the beginning of a longer one.
#[inline(always)]
fn copy<S: Simd>(s: S, from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks(LANES).zip(to.chunks_mut(LANES)) {
        s.write(&mut to[..from.len()], s.read(from));
    }
}

/// sums += dysᵀ · xs over `rows` rows.
#[inline(always)]
fn add_products<S: Simd>(
    s: S,
    tiling: &Tiling,
    xs: &[f32],
    dys: &[f32],
    rows: usize,
    sums: &mut [f32],
) {
    let Tiling { inputs, outputs } = *tiling;
    assert!(rows * inputs <= xs.len() && rows * outputs <= dys.len());
    if let Some(wide) = s.wide() {
        return add_products_wide(wide, tiling, xs, dys, rows, sums);
    }
    let mut tiles = sums.chunks_exact_mut(TILE_ROWS * PANEL);
    for output in (0..outputs).step_by(TILE_ROWS) {
        for input in (0..inputs).step_by(PANEL) {
            let Some(tile) = tiles.next() else { return };
            let mut held = [[s.splat(0.0); TILE_VECTORS]; TILE_ROWS];
            for row in 0..rows {
                // SAFETY: the rows are `inputs` and `outputs` long, and the tile ends within both.
                unsafe {
                    let x = xs.as_ptr().add(row * inputs + input);
                    let dy = dys.as_ptr().add(row * outputs + output);
                    let columns = [s.load(x), s.load(x.add(LANES))];
                    for i in 0..TILE_ROWS {
                        let value = s.splat(*dy.add(i));
                        for j in 0..TILE_VECTORS {
                            // Settled, or else the compiler loads ahead into registers that it does not have.
                            held[i][j] = s.settle(s.mul_add(value, columns[j], held[i][j]));
                        }
                    }
                }
            }
            let parts = tile.chunks_exact_mut(LANES);
            for (part, held) in parts.zip(held.as_flattened()) {
                s.write(part, s.add(s.read(part), *held));
            }
        }
    }
}

/// The same for two tiles of outputs at a time.
fn add_products_wide(
    wide: Wide,
    tiling: &Tiling,
    xs: &[f32],
    dys: &[f32],
    rows: usize,
    sums: &mut [f32],
) {
    let Tiling { inputs, outputs } = *tiling;
    assert_eq!(sums.len(), inputs * outputs, "length of the sums");
    let sums = sums.as_mut_ptr();
    for output in (0..outputs).step_by(2 * TILE_ROWS) {
        let tile_rows = (outputs - output).min(2 * TILE_ROWS);
        for input in (0..inputs).step_by(PANEL) {
            let tile: [ScatteredRow; 2 * TILE_ROWS] = std::array::from_fn(|i| ScatteredRow {
                from: dys.as_ptr().wrapping_add(output + i),
                to: sums.wrapping_add(tiling.place(output + i, input)),
            });
            let panel = (xs[input..].as_ptr(), inputs);
            // SAFETY: there are `rows` rows of both, as was checked; each row of the tile has 16 sums of its own.
            unsafe {
                wide.add_scattered_rows(rows, &tile[..tile_rows], outputs, panel, PANEL);
            }
        }
    }
}
