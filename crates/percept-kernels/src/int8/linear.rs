//! Linear layers on rows of bytes.

use std::ops::Range;

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishRows};
use super::map::row_len;
use super::tile::{PanelSums, ROW_OUTPUTS, ROW_PANELS, ROW_TILE, RowTiles, lift};
use super::weights::{ByteWeights, QuadOrder};
use crate::aligned::AlignedBuf;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;

/// Rows of a block: with a thousand inputs they stay in a second-level cache.
const ROWS: usize = 96;
/// Bytes of weights that pass by all rows of a block before the next ones come.
const WEIGHTS: usize = 24 * 1024;
/// Blocks to cut a product into at least, when it has the outputs.
const BLOCKS: usize = 16;
/// Outputs that are worth a block of their own.
const BLOCK_OUTPUTS: usize = 4 * ROW_OUTPUTS;

/// The weights of a linear layer as bytes, packed once.
#[derive(Debug)]
pub struct ByteLinear {
    order: QuadOrder,
    tiles: RowTiles,
    panels: AlignedBuf,
    starts: Vec<i32>,
    scales: Vec<f32>,
}

impl ByteLinear {
    /// Packs weights `[outputs, inputs]` for inputs that are signed or not.
    pub fn pack(cpu: &Cpu, weights: &ByteWeights, inputs: usize, signed: bool) -> ByteLinear {
        let order = QuadOrder::rows(inputs, 1);
        let tiles = RowTiles::new(cpu.isa(), weights.operands(&order, signed));
        ByteLinear {
            order,
            tiles,
            panels: weights.pack_panels(&order, tiles.width),
            starts: weights.starts(&order, tiles.start_factor(), ROW_OUTPUTS),
            scales: weights.scales.clone(),
        }
    }

    /// The exact sums of up to six rows, `stride` bytes apart, with all outputs. `hear` gets those of 16 outputs at a time with the
    /// number of the first; what stands behind the last row or output means nothing. `lifted` is room for a copy of the rows.
    pub(crate) fn sums(
        &self,
        rows: &[i8],
        stride: usize,
        lifted: &mut Vec<i8>,
        mut hear: impl FnMut(usize, &PanelSums),
    ) {
        let rows = match self.tiles.lifts {
            true => {
                lifted.clear();
                lifted.extend_from_slice(rows);
                lift(lifted);
                &lifted[..]
            }
            false => rows,
        };
        let depth = self.order.run_len();
        let count = (rows.len() / stride.max(1)).clamp(1, ROW_TILE);
        // Missing rows are the last one again.
        let pointers = std::array::from_fn(|i| {
            let row = &rows[i.min(count - 1) * stride..][..4 * depth];
            row.as_ptr().cast()
        });
        let panel_bytes = depth * ROW_OUTPUTS * self.tiles.width.quad_bytes();
        let all = self.starts.len() / ROW_OUTPUTS;
        let mut sums = [[0; ROW_TILE * ROW_OUTPUTS]; ROW_PANELS];
        let mut panel = 0;
        while panel < all {
            let (tile, panels) = self.tiles.get(count, all - panel);
            let b = &self.panels.bytes()[panel * panel_bytes..][..panels * panel_bytes];
            let start = &self.starts[panel * ROW_OUTPUTS..][..panels * ROW_OUTPUTS];
            // SAFETY: this CPU has the tile's instructions; rows and panels are `depth` quads deep, with sums for each.
            unsafe {
                tile(
                    depth,
                    &pointers,
                    b.as_ptr(),
                    start.as_ptr(),
                    sums.as_mut_ptr(),
                )
            };
            for (index, sums) in sums[..panels].iter().enumerate() {
                hear((panel + index) * ROW_OUTPUTS, sums);
            }
            panel += panels;
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.panels.len() + size_of_val(&self.starts[..]) + size_of_val(&self.scales[..])
    }
}

/// `y[M, N] = activation(x[M, K] W^T + bias + residual)` on rows of bytes, `rows` of them.
pub fn byte_linear(
    cpu: &Cpu,
    weights: &ByteLinear,
    rows: usize,
    x: &[i8],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    let (inputs, outputs) = (weights.order.len(), weights.scales.len());
    assert_eq!(x.len(), rows * row_len(inputs), "length of the input");
    epilogue.check(&output, outputs, rows * outputs, rows * row_len(outputs));
    let finish = Finish::new(&epilogue, &weights.scales, ROW_OUTPUTS, output);
    let row_blocks = Parts::at_most(ROWS, rows, ROW_TILE);
    let column_blocks = Parts::exactly(
        BLOCKS
            .div_ceil(row_blocks.count().max(1))
            .min(outputs.div_ceil(BLOCK_OUTPUTS)),
        outputs,
        ROW_OUTPUTS,
    );
    cpu.parallel(
        row_blocks.count() * column_blocks.count(),
        &|block, scratch| {
            let rows = row_blocks.range(block / column_blocks.count());
            let columns = column_blocks.range(block % column_blocks.count());
            let mut x = &x[rows.start * row_len(inputs)..rows.end * row_len(inputs)];
            let [lifted] = scratch.bytes([if weights.tiles.lifts { x.len() } else { 0 }]);
            if weights.tiles.lifts {
                lifted.copy_from_slice(x);
                lift(lifted);
                x = lifted;
            }
            multiply(cpu, weights, x, rows, columns, &finish);
        },
    );
}

/// Multiplies the rows of a block, which `x` holds, with some columns.
fn multiply(
    cpu: &Cpu,
    weights: &ByteLinear,
    x: &[i8],
    rows: Range<usize>,
    columns: Range<usize>,
    finish: &Finish<'_>,
) {
    let (row_bytes, outputs) = (row_len(weights.order.len()), weights.scales.len());
    let depth = weights.order.run_len();
    let panel_bytes = depth * ROW_OUTPUTS * weights.tiles.width.quad_bytes();
    let chunk = (WEIGHTS / panel_bytes.max(1)).max(ROW_PANELS) * ROW_OUTPUTS;
    let mut sums = [[0; ROW_TILE * ROW_OUTPUTS]; ROW_PANELS];
    for chunk in Parts::at_most(chunk, columns.len(), ROW_OUTPUTS).ranges() {
        let chunk = columns.start + chunk.start..columns.start + chunk.end;
        for first in (0..rows.len()).step_by(ROW_TILE) {
            let count = (rows.len() - first).min(ROW_TILE);
            // Missing rows are the last one again.
            let pointers = std::array::from_fn(|i| {
                let row = first + i.min(count - 1);
                x[row * row_bytes..][..row_bytes].as_ptr().cast()
            });
            let mut column = chunk.start;
            while column < chunk.end {
                let left = (chunk.end - column).div_ceil(ROW_OUTPUTS);
                let (tile, panels) = weights.tiles.get(count, left);
                let b = &weights.panels.bytes()[column / ROW_OUTPUTS * panel_bytes..];
                let b = &b[..panels * panel_bytes];
                let start = &weights.starts[column..][..panels * ROW_OUTPUTS];
                // SAFETY: this CPU has the tile's instructions; rows and panels are `depth` quads deep, with sums for each.
                unsafe {
                    tile(
                        depth,
                        &pointers,
                        b.as_ptr(),
                        start.as_ptr(),
                        sums.as_mut_ptr(),
                    )
                };
                for (index, sums) in sums[..panels].iter().enumerate() {
                    let column = column + index * ROW_OUTPUTS;
                    cpu.isa().run(FinishRows {
                        finish,
                        sums,
                        stride: ROW_OUTPUTS,
                        row: rows.start + first,
                        rows: count,
                        column,
                        columns: (outputs - column).min(ROW_OUTPUTS),
                        width: outputs,
                    });
                }
                column += panels * ROW_OUTPUTS;
            }
        }
    }
}
