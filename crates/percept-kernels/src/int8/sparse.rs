//! Sparse convolution on rows of bytes: gather rows, multiply with a tap's weights, add to a block of sums.

use super::finish::{ByteEpilogue, ByteOutput, Finish, FinishRows};
use super::map::row_len;
use super::tile::{PanelSums, ROW_OUTPUTS, ROW_PANELS, ROW_TILE, RowTiles, lift};
use super::weights::{ByteWeights, QuadOrder};
use crate::aligned::AlignedBuf;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::Simd;
use crate::sparse::SparseConvShape;

/// The weights of a sparse convolution as bytes, packed once.
#[derive(Debug)]
pub struct ByteSparseConv {
    shape: SparseConvShape,
    order: QuadOrder,
    tiles: RowTiles,
    panels: AlignedBuf,
    starts: Vec<i32>,
    scales: Vec<f32>,
}

impl ByteSparseConv {
    /// Packs weights `[out_channels][taps][in_channels]` for inputs that are signed or not.
    pub fn pack(
        cpu: &Cpu,
        shape: &SparseConvShape,
        weights: &ByteWeights,
        signed: bool,
    ) -> ByteSparseConv {
        let order = QuadOrder::rows(shape.in_channels, shape.taps);
        assert_eq!(weights.scales.len(), shape.out_channels, "rows of weights");
        let tiles = RowTiles::new(cpu.isa(), weights.operands(&order, signed));
        ByteSparseConv {
            shape: *shape,
            order,
            tiles,
            panels: weights.pack_panels(&order, tiles.width),
            starts: weights.starts(&order, tiles.start_factor(), ROW_OUTPUTS),
            scales: weights.scales.clone(),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.panels.len() + size_of_val(&self.starts[..]) + size_of_val(&self.scales[..])
    }
}

/// [`sparse_conv`](crate::sparse::sparse_conv) on rows of bytes, for `rows` output rows.
pub fn byte_sparse_conv(
    cpu: &Cpu,
    weights: &ByteSparseConv,
    rows: usize,
    x: &[i8],
    pairs: &[i32],
    starts: &[i32],
    epilogue: ByteEpilogue<'_>,
    output: ByteOutput<'_>,
) {
    let shape = &weights.shape;
    let outputs = shape.out_channels;
    epilogue.check(&output, outputs, rows * outputs, rows * row_len(outputs));
    let (pairs, rest) = pairs.as_chunks::<2>();
    assert!(rest.is_empty(), "a pair has two rows");
    let blocks = rows.div_ceil(shape.block_rows);
    assert_eq!(starts.len(), blocks * shape.taps + 1, "length of starts");
    let finish = Finish::new(&epilogue, &weights.scales, ROW_OUTPUTS, output);
    let width = outputs.next_multiple_of(ROW_OUTPUTS);
    let mut shared = cpu.shared_scratch();
    let [lifted] = shared.bytes([if weights.tiles.lifts { x.len() } else { 0 }]);
    let x = match weights.tiles.lifts {
        true => {
            lifted.copy_from_slice(x);
            lift(lifted);
            &*lifted
        }
        false => x,
    };
    cpu.parallel(blocks, &|block, scratch| {
        let first = block * shape.block_rows;
        let count = (rows - first).min(shape.block_rows);
        let [sums] = scratch.floats([count * width]);
        let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
        sums.fill(0);
        let starts = &starts[block * shape.taps..][..=shape.taps];
        for (tap, range) in starts.windows(2).enumerate() {
            let pairs = &pairs[range[0] as usize..range[1] as usize];
            for group in pairs.chunks(ROW_TILE) {
                multiply(cpu, weights, x, tap, group, first, sums);
            }
        }
        cpu.isa().run(FinishRows {
            finish: &finish,
            sums,
            stride: width,
            row: first,
            rows: count,
            column: 0,
            columns: outputs,
            width: outputs,
        });
    });
}

/// Adds the products of some pairs of one tap.
fn multiply(
    cpu: &Cpu,
    weights: &ByteSparseConv,
    x: &[i8],
    tap: usize,
    group: &[[i32; 2]],
    first_row: usize,
    sums: &mut [i32],
) {
    let shape = &weights.shape;
    let depth = weights.order.run_len();
    let width = shape.out_channels.next_multiple_of(ROW_OUTPUTS);
    let panel_bytes = depth * ROW_OUTPUTS * weights.tiles.width.quad_bytes();
    let panels = &weights.panels.bytes()[tap * width / ROW_OUTPUTS * panel_bytes..];
    let starts = &weights.starts[tap * width..][..width];
    let row_bytes = row_len(shape.in_channels);
    let mut rows = [x.as_ptr().cast::<u8>(); ROW_TILE];
    for (i, row) in rows.iter_mut().enumerate() {
        let [_, input] = group[i.min(group.len() - 1)];
        *row = x[input as usize * row_bytes..][..row_bytes].as_ptr().cast();
    }
    let mut products = [[0; ROW_TILE * ROW_OUTPUTS]; ROW_PANELS];
    let mut column = 0;
    while column < width {
        let left = (width - column) / ROW_OUTPUTS;
        let (tile, count) = weights.tiles.get(group.len(), left);
        let b = &panels[column / ROW_OUTPUTS * panel_bytes..][..count * panel_bytes];
        let start = &starts[column..][..count * ROW_OUTPUTS];
        // SAFETY: this CPU has the tile's instructions; rows and panels are `depth` quads deep, with sums for each.
        unsafe {
            tile(
                depth,
                &rows,
                b.as_ptr(),
                start.as_ptr(),
                products.as_mut_ptr(),
            )
        };
        for (index, products) in products[..count].iter().enumerate() {
            cpu.isa().run(Add {
                group,
                products,
                first_row,
                width,
                column: column + index * ROW_OUTPUTS,
                sums,
            });
        }
        column += count * ROW_OUTPUTS;
    }
}

/// Adds products to the sums of their rows.
struct Add<'a> {
    group: &'a [[i32; 2]],
    products: &'a PanelSums,
    first_row: usize,
    width: usize,
    column: usize,
    sums: &'a mut [i32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let rows = self.group.iter().zip(self.products.as_chunks().0);
        for (&[output, _], products) in rows {
            let products: &[i32; ROW_OUTPUTS] = products;
            let start = (output as usize - self.first_row) * self.width + self.column;
            let sums = &mut self.sums[start..][..ROW_OUTPUTS];
            for (sum, product) in sums.iter_mut().zip(products) {
                *sum += product;
            }
        }
    }
}
