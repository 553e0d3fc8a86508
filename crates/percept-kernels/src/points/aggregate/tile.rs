//! Small products for the rows of a few points: register tiles of 6 x 16, or 12 x 8 where there are 8 columns only.

use crate::gemm::wide::{self, ScatteredRow, Wide};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Rows come in multiples of this; those past the last one hold numbers that nobody reads.
pub(super) const ROW_UNIT: usize = wide::ROWS;
/// Columns of a packed panel; the last one may have half of them.
pub(super) const PANEL: usize = 2 * LANES;
/// Rows of a tile of a full panel.
const TILE_ROWS: usize = 6;

/// Packs a matrix `[depth][columns]` as panels `[depth][16]`. There are whole vectors of columns.
pub(super) fn pack_panels(
    depth: usize,
    columns: usize,
    value: impl Fn(usize, usize) -> f32,
) -> Vec<f32> {
    let mut panels = Vec::with_capacity(depth * columns);
    for first in (0..columns).step_by(PANEL) {
        for step in 0..depth {
            let panel = first..columns.min(first + PANEL);
            panels.extend(panel.map(|column| value(step, column)));
        }
    }
    panels
}

/// `sums + A B` for one tile: rows of A are `a_row` apart and its steps `a_step`, rows of B `b_step`.
///
/// # Safety
/// The tile's rows and columns must lie in A and B for the whole depth.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, const ROWS: usize, const VECTORS: usize>(
    s: S,
    mut sums: [[S::V; VECTORS]; ROWS],
    (a, a_row, a_step): (*const f32, usize, usize),
    (b, b_step): (*const f32, usize),
    depth: usize,
) -> [[S::V; VECTORS]; ROWS] {
    for step in 0..depth {
        let mut columns = [s.splat(0.0); VECTORS];
        for j in 0..VECTORS {
            // SAFETY: the caller vouches for the tile.
            columns[j] = unsafe { s.load(b.add(step * b_step + j * LANES)) };
        }
        for i in 0..ROWS {
            // SAFETY: as above.
            let row = s.splat(unsafe { *a.add(i * a_row + step * a_step) });
            for j in 0..VECTORS {
                sums[i][j] = s.settle(s.mul_add(row, columns[j], sums[i][j]));
            }
        }
    }
    sums
}

/// The 8 floats at a place.
#[inline(always)]
pub(super) fn read_at<S: Simd>(s: S, from: &[f32], at: usize) -> S::V {
    s.read(&from[at..at + LANES])
}

/// x, or slope * x below 0, for slopes from 0 to 1.
#[inline(always)]
pub(super) fn leaky<S: Simd>(s: S, slope: S::V, x: S::V) -> S::V {
    s.max(x, s.mul(slope, x))
}

/// `Y = leaky(Y0 + A B)`: rows of A, row-major, with packed panels. `Y0` is the bias, or what Y holds.
pub(super) struct RowProduct<'a> {
    /// `[rows][depth]`, the rows a multiple of [`ROW_UNIT`].
    pub(super) a: &'a [f32],
    pub(super) depth: usize,
    /// Of [`pack_panels`].
    pub(super) panels: &'a [f32],
    pub(super) columns: usize,
    pub(super) bias: Option<&'a [f32]>,
    /// 1 for no activation.
    pub(super) slope: f32,
    /// `[rows][columns]`
    pub(super) y: &'a mut [f32],
}

impl Kernel for RowProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let rows = self.a.len() / self.depth;
        assert!(rows.is_multiple_of(ROW_UNIT) && self.columns.is_multiple_of(LANES));
        assert_eq!(self.y.len(), rows * self.columns, "length of y");
        assert_eq!(self.panels.len(), self.depth * self.columns);
        assert!(self.bias.is_none_or(|bias| bias.len() == self.columns));
        for first in (0..self.columns).step_by(PANEL) {
            let full = self.columns - first >= PANEL;
            if let (true, Some(wide)) = (full, s.wide()) {
                for row in (0..rows).step_by(wide::ROWS) {
                    let (at, b) = (row * self.columns + first, first * self.depth);
                    // SAFETY: lengths were checked above, and rows are a multiple of `ROW_UNIT`.
                    unsafe {
                        wide.multiply_rows(
                            self.depth,
                            (self.a.as_ptr().add(row * self.depth), self.depth),
                            self.panels.as_ptr().add(b),
                            self.bias.map(|bias| bias.as_ptr().add(first)),
                            self.slope,
                            (self.y.as_mut_ptr().add(at), self.columns),
                        );
                    }
                }
            } else if full {
                for row in (0..rows).step_by(TILE_ROWS) {
                    // SAFETY: lengths were checked above.
                    unsafe { self.tile::<S, TILE_ROWS, 2>(s, row, first) };
                }
            } else {
                for row in (0..rows).step_by(ROW_UNIT) {
                    // SAFETY: as above.
                    unsafe { self.tile::<S, ROW_UNIT, 1>(s, row, first) };
                }
            }
        }
    }
}

impl RowProduct<'_> {
    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        s: S,
        row: usize,
        first: usize,
    ) {
        let mut sums = [[s.splat(0.0); VECTORS]; ROWS];
        let y = self.y.as_mut_ptr();
        // SAFETY: the caller gives a tile of the product.
        unsafe {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    let column = first + j * LANES;
                    sums[i][j] = s.load(match self.bias {
                        Some(bias) => bias.as_ptr().add(column),
                        None => y.add((row + i) * self.columns + column),
                    });
                }
            }
            let a = self.a.as_ptr().add(row * self.depth);
            let b = self.panels.as_ptr().add(first * self.depth);
            sums = accumulate(
                s,
                sums,
                (a, self.depth, 1),
                (b, VECTORS * LANES),
                self.depth,
            );
            let slope = s.splat(self.slope);
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    let at = (row + i) * self.columns + first + j * LANES;
                    s.store(y.add(at), leaky(s, slope, sums[i][j]));
                }
            }
        }
    }
}

/// `Y += Aᵀ B` over some rows: what a product's weights get from a block of rows.
pub(super) struct WeightProduct<'a> {
    /// `[rows][outputs]`
    pub(super) a: &'a [f32],
    /// A multiple of 8.
    pub(super) outputs: usize,
    /// `[rows][inputs]`
    pub(super) b: &'a [f32],
    /// A multiple of 8.
    pub(super) inputs: usize,
    pub(super) rows: usize,
    /// `[outputs][inputs]`
    pub(super) y: &'a mut [f32],
}

impl Kernel for WeightProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (outputs, inputs) = (self.outputs, self.inputs);
        assert!(outputs.is_multiple_of(LANES) && inputs.is_multiple_of(LANES));
        assert!(self.a.len() >= self.rows * outputs && self.b.len() >= self.rows * inputs);
        assert_eq!(self.y.len(), outputs * inputs, "length of y");
        for first in (0..inputs).step_by(PANEL) {
            if let (true, Some(wide)) = (inputs - first >= PANEL, s.wide()) {
                // SAFETY: as below.
                unsafe { self.wide_panel(wide, first) };
            } else if inputs - first >= PANEL {
                for output in (0..outputs).step_by(4) {
                    // SAFETY: lengths were checked above.
                    unsafe { self.tile::<S, 4, 2>(s, output, first) };
                }
            } else {
                for output in (0..outputs).step_by(8) {
                    // SAFETY: as above.
                    unsafe { self.tile::<S, 8, 1>(s, output, first) };
                }
            }
        }
    }
}

impl WeightProduct<'_> {
    /// All outputs of 16 inputs.
    #[inline(always)]
    unsafe fn wide_panel(&mut self, wide: Wide, first: usize) {
        for output in (0..self.outputs).step_by(wide::ROWS) {
            let count = (self.outputs - output).min(wide::ROWS);
            // SAFETY: the caller gives a panel of the product.
            unsafe {
                let mut rows = [ScatteredRow {
                    from: self.a.as_ptr().add(output),
                    to: self.y.as_mut_ptr().add(output * self.inputs + first),
                }; wide::ROWS];
                for row in 1..count {
                    rows[row].from = rows[0].from.add(row);
                    rows[row].to = rows[0].to.add(row * self.inputs);
                }
                let b = (self.b.as_ptr().add(first), self.inputs);
                wide.add_scattered_rows(self.rows, &rows[..count], self.outputs, b, PANEL);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        s: S,
        output: usize,
        first: usize,
    ) {
        let mut sums = [[s.splat(0.0); VECTORS]; ROWS];
        // SAFETY: the caller gives a tile of the product.
        unsafe {
            let y = self.y.as_mut_ptr().add(output * self.inputs + first);
            let a = self.a.as_ptr().add(output);
            let b = self.b.as_ptr().add(first);
            sums = accumulate(s, sums, (a, 1, self.outputs), (b, self.inputs), self.rows);
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    let to = y.add(i * self.inputs + j * LANES);
                    s.store(to, s.add(s.load(to), sums[i][j]));
                }
            }
        }
    }
}
