//! The tile transforms of Winograd's minimal filtering F(m x m, 3 x 3), on eight tiles at once.
//!
//! A vector lane is a tile, and the eight tiles of a vector are horizontal neighbours, so NCHW is read and
//! written in place: only the columns of a row have to be sorted by their place within the tile.
//! Constants from Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).

use std::mem::MaybeUninit;

use crate::simd::Simd;

/// A tile size: `OUT` x `OUT` outputs from `IN` x `IN` inputs, `IN = OUT + 2`.
pub(crate) trait Tile<const OUT: usize, const IN: usize>: Copy + Send + Sync {
    /// G: takes a filter row to its `IN` positions.
    const FILTER: [[f64; 3]; IN];

    /// B^T d: takes `IN` neighbouring inputs to their positions.
    fn input<S: Simd>(s: S, d: [S::V; IN]) -> [S::V; IN];

    /// A^T m: takes the products at the positions to the `OUT` neighbouring outputs.
    fn output<S: Simd>(s: S, m: [S::V; IN]) -> [S::V; OUT];

    /// Reads a row of eight tiles; vector `j` holds column `j` of every tile.
    ///
    /// # Safety
    /// `8 * OUT + 2` floats are readable at `row`.
    unsafe fn load_columns<S: Simd>(s: S, row: *const f32) -> [S::V; IN];

    /// The inverse for outputs: from vectors of one column each to `8 * OUT` floats in row order.
    fn merge_columns<S: Simd>(s: S, columns: [S::V; OUT]) -> [S::V; OUT];
}

/// F(4x4, 3x3): a quarter of the multiplications, four times the weight memory.
#[derive(Clone, Copy)]
pub(crate) struct F4;

impl Tile<4, 6> for F4 {
    const FILTER: [[f64; 3]; 6] = [
        [1.0 / 4.0, 0.0, 0.0],
        [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        [0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6] {
        let (two, four, five) = (s.splat(2.0), s.splat(4.0), s.splat(5.0));
        let even = s.neg_mul_add(four, d[2], d[4]);
        let odd = s.neg_mul_add(four, d[1], d[3]);
        let even_step = s.sub(d[4], d[2]);
        let odd_step = s.sub(d[3], d[1]);
        [
            s.mul_add(four, d[0], s.neg_mul_add(five, d[2], d[4])),
            s.add(even, odd),
            s.sub(even, odd),
            s.mul_add(two, odd_step, even_step),
            s.neg_mul_add(two, odd_step, even_step),
            s.mul_add(four, d[1], s.neg_mul_add(five, d[3], d[5])),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::V; 6]) -> [S::V; 4] {
        let (two, four, eight) = (s.splat(2.0), s.splat(4.0), s.splat(8.0));
        let (sum_one, diff_one) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (sum_two, diff_two) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        [
            s.add(s.add(m[0], sum_one), sum_two),
            s.mul_add(two, diff_two, diff_one),
            s.mul_add(four, sum_two, sum_one),
            s.add(s.mul_add(eight, diff_two, diff_one), m[5]),
        ]
    }

    #[inline(always)]
    unsafe fn load_columns<S: Simd>(s: S, row: *const f32) -> [S::V; 6] {
        // SAFETY: the caller vouches for 34 floats at `row`.
        unsafe {
            let [c0, c1, c2, c3] = s.load_split4(row);
            // The last two columns of a tile are the first two of its right neighbour.
            let c4 = s.shift_down(c0, *row.add(32));
            let c5 = s.shift_down(c1, *row.add(33));
            [c0, c1, c2, c3, c4, c5]
        }
    }

    #[inline(always)]
    fn merge_columns<S: Simd>(s: S, columns: [S::V; 4]) -> [S::V; 4] {
        s.merge4(columns)
    }
}

/// F(2x2, 3x3): 4/9 of the multiplications, 16/9 of the weight memory; wastes less on small maps.
#[derive(Clone, Copy)]
pub(crate) struct F2;

impl Tile<2, 4> for F2 {
    const FILTER: [[f64; 3]; 4] = [
        [1.0, 0.0, 0.0],
        [0.5, 0.5, 0.5],
        [0.5, -0.5, 0.5],
        [0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::V; 4]) -> [S::V; 4] {
        [
            s.sub(d[0], d[2]),
            s.add(d[1], d[2]),
            s.sub(d[2], d[1]),
            s.sub(d[1], d[3]),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::V; 4]) -> [S::V; 2] {
        [
            s.add(s.add(m[0], m[1]), m[2]),
            s.sub(s.sub(m[1], m[2]), m[3]),
        ]
    }

    #[inline(always)]
    unsafe fn load_columns<S: Simd>(s: S, row: *const f32) -> [S::V; 4] {
        // SAFETY: the caller vouches for 18 floats at `row`.
        unsafe {
            let [c0, c1] = s.load_split2(row);
            let c2 = s.shift_down(c0, *row.add(16));
            let c3 = s.shift_down(c1, *row.add(17));
            [c0, c1, c2, c3]
        }
    }

    #[inline(always)]
    fn merge_columns<S: Simd>(s: S, columns: [S::V; 2]) -> [S::V; 2] {
        s.merge2(columns)
    }
}

/// Transforms eight neighbouring tiles of one channel: position `p` is stored at `to + p * position_stride`.
///
/// # Safety
/// `IN` rows of `8 * OUT + 2` floats, `row_stride` apart, are readable at `from`;
/// eight floats at each of the `IN * IN` positions are writable.
#[inline(always)]
pub(super) unsafe fn input_tiles<S: Simd, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: S,
    from: *const f32,
    row_stride: usize,
    to: *mut f32,
    position_stride: usize,
) {
    // Uninitialised on purpose: clearing it would cost as much as the transform.
    let mut half_done = MaybeUninit::<[[S::V; IN]; IN]>::uninit();
    let half = half_done.as_mut_ptr().cast::<S::V>();
    // SAFETY: the caller vouches for the rows and positions; `half` is written in full before it is read.
    unsafe {
        for i in 0..IN {
            let row = T::input(s, T::load_columns(s, from.add(i * row_stride)));
            for j in 0..IN {
                half.add(i * IN + j).write(row[j]);
            }
        }
        for j in 0..IN {
            let mut column = [half.add(j).read(); IN];
            for i in 1..IN {
                column[i] = half.add(i * IN + j).read();
            }
            let column = T::input(s, column);
            for i in 0..IN {
                s.store(to.add((i * IN + j) * position_stride), column[i]);
            }
        }
    }
}

/// Takes the finished outputs of eight tiles.
pub(super) trait Sink<S: Simd, const OUT: usize> {
    /// Row `row` of all tiles: `8 * OUT` neighbouring outputs.
    fn row(&mut self, s: S, row: usize, outputs: [S::V; OUT]);
}

/// Transforms the products of eight neighbouring tiles back.
///
/// # Safety
/// Eight floats at each of the `IN * IN` positions are readable at `from`.
#[inline(always)]
pub(super) unsafe fn output_tiles<S: Simd, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: S,
    from: *const f32,
    position_stride: usize,
    sink: &mut impl Sink<S, OUT>,
) {
    let mut half_done = MaybeUninit::<[[S::V; IN]; OUT]>::uninit();
    let half = half_done.as_mut_ptr().cast::<S::V>();
    // SAFETY: the caller vouches for the positions; `half` is written in full before it is read.
    unsafe {
        for j in 0..IN {
            let mut column = [s.load(from.add(j * position_stride)); IN];
            for i in 1..IN {
                column[i] = s.load(from.add((i * IN + j) * position_stride));
            }
            let column = T::output(s, column);
            for i in 0..OUT {
                half.add(i * IN + j).write(column[i]);
            }
        }
        for i in 0..OUT {
            let mut row = [half.add(i * IN).read(); IN];
            for j in 1..IN {
                row[j] = half.add(i * IN + j).read();
            }
            sink.row(s, i, T::merge_columns(s, T::output(s, row)));
        }
    }
}
