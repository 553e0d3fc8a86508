//! What a size of tile is to Winograd's minimal filtering, and the tiles F(m x m, 3 x 3) of stride one.
//!
//! Constants from Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).

use super::lanes::Lanes;

/// A size of tile: `OUT` x `OUT` outputs from a patch of `IN` x `IN` inputs. Along an axis `IN` neighbouring inputs become
/// `IN` terms, each of which belongs to one of the positions at which inputs and filters are multiplied.
pub(crate) trait Tile<const OUT: usize, const IN: usize>: Copy + Send + Sync {
    /// Inputs from one output to the next.
    const STRIDE: usize;
    /// Taps of a filter row.
    const TAPS: usize;
    /// Positions along an axis.
    const POSITIONS: usize;
    /// Where the terms belong.
    const PLACES: [Place; IN];
    /// G: takes a filter row to its terms, a factor for each tap.
    const FILTER: [&'static [f64]; IN];

    /// B^T d: takes neighbouring inputs to their terms.
    fn input<L: Lanes>(s: L, d: [L::V; IN]) -> [L::V; IN];

    /// A^T m: takes the products at the positions, which come first in `m`, to the `OUT` neighbouring outputs.
    fn output<L: Lanes>(s: L, m: [L::V; IN]) -> [L::V; OUT];

    /// Reads a row of tiles; vector `j` holds column `j` of every tile.
    ///
    /// # Safety
    /// A row of as many tiles as a vector has ([`Tile::row_of`]) is readable.
    unsafe fn load_columns<L: Lanes>(s: L, row: *const f32) -> [L::V; IN];

    /// The inverse for outputs: from vectors of one column each to floats in row order.
    fn merge_columns<L: Lanes>(s: L, columns: [L::V; OUT]) -> [L::V; OUT];

    /// Inputs of a row of tiles.
    #[inline(always)]
    fn row_of(tiles: usize) -> usize {
        (tiles - 1) * OUT * Self::STRIDE + IN
    }

    /// Terms at a position of an axis: their products are summed.
    #[inline(always)]
    fn terms_at(position: usize) -> usize {
        let here = |place: &&Place| place.position == position;
        Self::PLACES.iter().filter(here).count()
    }

    /// The place of term `j` of row `i` of terms, among the positions and terms of both axes.
    #[inline(always)]
    fn place(i: usize, j: usize) -> Place {
        let [i, j] = [Self::PLACES[i], Self::PLACES[j]];
        Place {
            position: i.position * Self::POSITIONS + j.position,
            term: i.term * Self::terms_at(j.position) + j.term,
        }
    }
}

/// Where a term belongs: at a position, among the terms there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) position: usize,
    pub(crate) term: usize,
}

/// The first terms of their positions, one each.
const fn first_terms<const COUNT: usize>() -> [Place; COUNT] {
    let mut places = [Place {
        position: 0,
        term: 0,
    }; COUNT];
    let mut position = 0;
    while position < COUNT {
        places[position].position = position;
        position += 1;
    }
    places
}

/// F(4x4, 3x3): a quarter of the multiplications, four times the weight memory.
#[derive(Clone, Copy)]
pub(crate) struct F4;

impl Tile<4, 6> for F4 {
    const STRIDE: usize = 1;
    const TAPS: usize = 3;
    const POSITIONS: usize = 6;
    const PLACES: [Place; 6] = first_terms();
    const FILTER: [&'static [f64]; 6] = [
        &[1.0 / 4.0, 0.0, 0.0],
        &[-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        &[-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        &[1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        &[1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        &[0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<L: Lanes>(s: L, d: [L::V; 6]) -> [L::V; 6] {
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
    fn output<L: Lanes>(s: L, m: [L::V; 6]) -> [L::V; 4] {
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
    unsafe fn load_columns<L: Lanes>(s: L, row: *const f32) -> [L::V; 6] {
        let next = row.wrapping_add(4 * L::TILES);
        // SAFETY: the caller vouches for two floats more than whole tiles.
        unsafe {
            let [c0, c1, c2, c3] = s.load_split4(row);
            // The last two columns of a tile are the first two of its right neighbour.
            let c4 = s.shift_down(c0, *next);
            let c5 = s.shift_down(c1, *next.add(1));
            [c0, c1, c2, c3, c4, c5]
        }
    }

    #[inline(always)]
    fn merge_columns<L: Lanes>(s: L, columns: [L::V; 4]) -> [L::V; 4] {
        s.merge4(columns)
    }
}

/// F(2x2, 3x3): 4/9 of the multiplications, 16/9 of the weight memory; wastes less on small maps.
#[derive(Clone, Copy)]
pub(crate) struct F2;

impl Tile<2, 4> for F2 {
    const STRIDE: usize = 1;
    const TAPS: usize = 3;
    const POSITIONS: usize = 4;
    const PLACES: [Place; 4] = first_terms();
    const FILTER: [&'static [f64]; 4] = [
        &[1.0, 0.0, 0.0],
        &[0.5, 0.5, 0.5],
        &[0.5, -0.5, 0.5],
        &[0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<L: Lanes>(s: L, d: [L::V; 4]) -> [L::V; 4] {
        [
            s.sub(d[0], d[2]),
            s.add(d[1], d[2]),
            s.sub(d[2], d[1]),
            s.sub(d[1], d[3]),
        ]
    }

    #[inline(always)]
    fn output<L: Lanes>(s: L, m: [L::V; 4]) -> [L::V; 2] {
        [
            s.add(s.add(m[0], m[1]), m[2]),
            s.sub(s.sub(m[1], m[2]), m[3]),
        ]
    }

    #[inline(always)]
    unsafe fn load_columns<L: Lanes>(s: L, row: *const f32) -> [L::V; 4] {
        let next = row.wrapping_add(2 * L::TILES);
        // SAFETY: the caller vouches for two floats more than whole tiles.
        unsafe {
            let [c0, c1] = s.load_split2(row);
            let c2 = s.shift_down(c0, *next);
            let c3 = s.shift_down(c1, *next.add(1));
            [c0, c1, c2, c3]
        }
    }

    #[inline(always)]
    fn merge_columns<L: Lanes>(s: L, columns: [L::V; 2]) -> [L::V; 2] {
        s.merge2(columns)
    }
}
