//! Matrix products of two operands that are both computed at run time.

use super::blocking::Parts;
use super::columns::{PackedPanels, multiply_columns};
use super::pack::{
    groups_len, pack_groups, pack_groups_transposed, pack_panels, pack_panels_transposed,
    panels_len,
};
use super::product::{BiasAxis, DepthPart, Output};
use super::{TILE_COLUMNS, TILE_ROWS};
use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
use crate::simd::Simd;

/// Rows of a block: with [`DEPTH`] their groups fill half of a 512 KB second-level cache.
const ROWS: usize = 144;
/// Columns of a block, enough to make packing the rows cheap.
const COLUMNS: usize = 16 * TILE_COLUMNS;
/// Depth of one pass: a panel of it stays in the first-level cache.
const DEPTH: usize = 384;

/// `y[batch, m, n] = a[batch, m, k] b[batch, k, n]`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// Independent products.
    pub batch: usize,
    /// Rows of a and y.
    pub m: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// Columns of b and y.
    pub n: usize,
    /// Whether a is stored as `[batch, k, m]`.
    pub transpose_a: bool,
    /// Whether b is stored as `[batch, n, k]`.
    pub transpose_b: bool,
}

/// The product of two matrices, or of a batch of pairs.
pub fn matmul(cpu: &Cpu, shape: &MatmulShape, a: &[f32], b: &[f32], y: &mut [f32]) {
    let MatmulShape { batch, m, k, n, .. } = *shape;
    assert_eq!(a.len(), batch * m * k, "length of a");
    assert_eq!(b.len(), batch * k * n, "length of b");
    assert_eq!(y.len(), batch * m * n, "length of y");
    if k == 0 {
        return y.fill(0.0);
    }
    let y = SharedMut::new(y);
    let output = Output {
        y: y.as_mut_ptr(),
        row_stride: n,
        epilogue: Epilogue::default(),
        bias_axis: BiasAxis::Columns,
    };
    let row_blocks = Parts::at_most(ROWS, m, TILE_ROWS);
    let column_blocks = Parts::at_most(COLUMNS, n, TILE_COLUMNS);
    let blocks = row_blocks.count() * column_blocks.count();
    cpu.parallel(batch * blocks, &|block, scratch| {
        let (item, block) = (block / blocks, block % blocks);
        cpu.isa().run(Block {
            shape,
            a: &a[item * m * k..][..m * k],
            b: &b[item * k * n..][..k * n],
            rows: row_blocks.range(block / column_blocks.count()),
            columns: column_blocks.range(block % column_blocks.count()),
            offset: item * m * n,
            output: &output,
            scratch,
        });
    });
}

struct Block<'a> {
    shape: &'a MatmulShape,
    a: &'a [f32],
    b: &'a [f32],
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    offset: usize,
    output: &'a Output<'a>,
    scratch: &'a mut Scratch,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block {
            shape,
            a,
            b,
            rows,
            columns,
            offset,
            output,
            scratch,
        } = self;
        let MatmulShape { m, k, n, .. } = *shape;
        let depths = Parts::at_most(DEPTH, k, 1);
        let [groups, panels] = scratch.floats([
            groups_len(rows.len(), depths.longest()),
            panels_len(columns.len(), depths.longest()),
        ]);
        for depth in depths.ranges() {
            let part = DepthPart {
                depth: depth.len(),
                first: depth.start == 0,
                last: depth.end == k,
            };
            if shape.transpose_a {
                pack_groups_transposed(
                    &a[depth.start * m + rows.start..],
                    m,
                    rows.len(),
                    depth.len(),
                    groups,
                );
            } else {
                pack_groups(
                    s,
                    &a[rows.start * k + depth.start..],
                    k,
                    rows.len(),
                    depth.len(),
                    groups,
                );
            }
            if shape.transpose_b {
                pack_panels_transposed(
                    s,
                    &b[columns.start * k + depth.start..],
                    k,
                    columns.len(),
                    depth.len(),
                    panels,
                );
            } else {
                pack_panels(
                    s,
                    &b[depth.start * n + columns.start..],
                    n,
                    columns.len(),
                    depth.len(),
                    panels,
                );
            }
            let panels = PackedPanels {
                values: panels,
                columns: columns.len(),
                depth: depth.len(),
                start: 0,
                distant: false,
            };
            // SAFETY: operands are packed just above; blocks write disjoint parts of y.
            unsafe {
                multiply_columns(
                    s,
                    groups,
                    rows.len(),
                    &panels,
                    0..columns.len(),
                    part,
                    output,
                    rows.start,
                    (offset + columns.start, columns.start),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};
    use proptest::prelude::*;

    fn compare(shape: &MatmulShape) {
        let MatmulShape { batch, m, k, n, .. } = *shape;
        let (a, b) = (numbers(1, batch * m * k), numbers(2, batch * k * n));
        let mut expected = vec![0.0; batch * m * n];
        reference::matmul(shape, &widen(&a), &widen(&b), &mut expected);
        check(&expected, 1e-5, |cpu, y| matmul(cpu, shape, &a, &b, y));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn equals_the_reference(
            batch in 0usize..3, m in 0usize..30, k in 0usize..50, n in 0usize..60,
            transpose_a in any::<bool>(), transpose_b in any::<bool>(),
        ) {
            compare(&MatmulShape { batch, m, k, n, transpose_a, transpose_b });
        }
    }

    #[test]
    fn several_blocks_on_every_axis() {
        compare(&MatmulShape {
            batch: 1,
            m: 150,
            k: 401,
            n: 390,
            transpose_a: false,
            transpose_b: true,
        });
    }
}
