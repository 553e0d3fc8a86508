//! Tiles of stride two.
//!
//! Every second input meets every second tap: the inputs from the patch's first on meet the even taps, those between them the
//! odd taps, and the sum of both convolutions, each of stride one, is the answer. Both are transformed to the same positions,
//! so their sum is part of the product, whose depth doubles along each axis. The odd taps are one fewer: what they have at
//! infinity, where a filter's last tap is, is nothing, so that position has the even ones' term alone. In all, 3x3 taps take
//! 81/144 of the multiplications, and 7x7 taps 169/784.

use super::lanes::Lanes;
use super::tile::{Place, Tile};

/// First the terms of the even taps at all positions, then those of the odd taps at all but the last.
const fn two_terms<const COUNT: usize>() -> [Place; COUNT] {
    let positions = COUNT.div_ceil(2);
    let mut places = [Place {
        position: 0,
        term: 0,
    }; COUNT];
    let mut index = 0;
    while index < COUNT {
        places[index] = Place {
            position: index % positions,
            term: index / positions,
        };
        index += 1;
    }
    places
}

/// Reads a row of tiles that are eight inputs apart.
///
/// # Safety
/// `IN - 8` floats more than whole tiles are readable at `row`, and `IN` is 8 to 16.
#[inline(always)]
unsafe fn load_columns<L: Lanes, const IN: usize>(s: L, row: *const f32) -> [L::V; IN] {
    // SAFETY: the caller vouches for whole tiles.
    let first = unsafe { s.load_split8(row) };
    let next = row.wrapping_add(8 * L::TILES);
    let mut columns = [first[0]; IN];
    columns[..8].copy_from_slice(&first);
    // The last columns of a tile are the first of its right neighbour.
    for j in 8..IN {
        // SAFETY: the caller vouches for these floats.
        columns[j] = s.shift_down(first[j - 8], unsafe { *next.add(j - 8) });
    }
    columns
}

/// F(4x4, 3x3) of stride two. Positions: 0, 1, -1, 2, infinity.
#[derive(Clone, Copy)]
pub(crate) struct Stride2;

impl Tile<4, 9> for Stride2 {
    const STRIDE: usize = 2;
    const TAPS: usize = 3;
    const POSITIONS: usize = 5;
    const PLACES: [Place; 9] = two_terms();
    const FILTER: [&'static [f64]; 9] = [
        &[1.0 / 2.0, 0.0, 0.0],
        &[-1.0 / 2.0, 0.0, -1.0 / 2.0],
        &[-1.0 / 6.0, 0.0, 1.0 / 6.0],
        &[1.0 / 6.0, 0.0, 1.0 / 3.0],
        &[0.0, 0.0, 1.0],
        &[0.0, 1.0 / 2.0, 0.0],
        &[0.0, -1.0 / 2.0, 0.0],
        &[0.0, -1.0 / 6.0, 0.0],
        &[0.0, 1.0 / 6.0, 0.0],
    ];

    #[inline(always)]
    fn input<L: Lanes>(s: L, d: [L::V; 9]) -> [L::V; 9] {
        let [e0, e1, e2, e3] = Self::finite(s, [d[0], d[2], d[4], d[6]]);
        let [o0, o1, o2, o3] = Self::finite(s, [d[1], d[3], d[5], d[7]]);
        let last = s.mul_add(s.splat(2.0), s.sub(d[2], d[6]), s.sub(d[8], d[4]));
        [e0, e1, e2, e3, last, o0, o1, o2, o3]
    }

    #[inline(always)]
    fn output<L: Lanes>(s: L, m: [L::V; 9]) -> [L::V; 4] {
        let (two, four, eight) = (s.splat(2.0), s.splat(4.0), s.splat(8.0));
        let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        [
            s.add(s.add(m[0], sum), m[3]),
            s.mul_add(two, m[3], difference),
            s.mul_add(four, m[3], sum),
            s.add(s.mul_add(eight, m[3], difference), m[4]),
        ]
    }

    #[inline(always)]
    unsafe fn load_columns<L: Lanes>(s: L, row: *const f32) -> [L::V; 9] {
        // SAFETY: passed on from the caller.
        unsafe { load_columns(s, row) }
    }

    #[inline(always)]
    fn merge_columns<L: Lanes>(s: L, columns: [L::V; 4]) -> [L::V; 4] {
        s.merge4(columns)
    }
}

impl Stride2 {
    /// Every second input at all positions but infinity.
    #[inline(always)]
    fn finite<L: Lanes>(s: L, d: [L::V; 4]) -> [L::V; 4] {
        let two = s.splat(2.0);
        let (step, wide) = (s.sub(d[3], d[1]), s.sub(d[3], d[2]));
        [
            s.mul_add(two, s.sub(d[0], d[2]), step),
            s.neg_mul_add(two, d[1], wide),
            s.mul_add(two, s.sub(d[1], d[2]), wide),
            step,
        ]
    }
}

/// F(4x4, 7x7) of stride two, for the first layer of many networks. Positions: 1, -1, 2, -2, 1/2, -1/2, infinity.
#[derive(Clone, Copy)]
pub(crate) struct Stem;

/// 1 / M'(a) at the positions a = 1, 2, 1/2 of M = (x^2 - 1)(x^2 - 4)(x^2 - 1/4); the negative ones have the negative.
const AT_ONE: f64 = -2.0 / 9.0;
const AT_TWO: f64 = 1.0 / 45.0;
const AT_HALF: f64 = 16.0 / 45.0;

impl Tile<4, 13> for Stem {
    const STRIDE: usize = 2;
    const TAPS: usize = 7;
    const POSITIONS: usize = 7;
    const PLACES: [Place; 13] = two_terms();
    const FILTER: [&'static [f64]; 13] = [
        &even_taps(1.0, AT_ONE),
        &even_taps(-1.0, -AT_ONE),
        &even_taps(2.0, AT_TWO),
        &even_taps(-2.0, -AT_TWO),
        &even_taps(0.5, AT_HALF),
        &even_taps(-0.5, -AT_HALF),
        &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        &odd_taps(1.0, AT_ONE),
        &odd_taps(-1.0, -AT_ONE),
        &odd_taps(2.0, AT_TWO),
        &odd_taps(-2.0, -AT_TWO),
        &odd_taps(0.5, AT_HALF),
        &odd_taps(-0.5, -AT_HALF),
    ];

    #[inline(always)]
    fn input<L: Lanes>(s: L, d: [L::V; 13]) -> [L::V; 13] {
        let [[e0, e1], [e2, e3], [e4, e5]] = Self::finite(s, [d[0], d[2], d[4], d[6], d[8], d[10]]);
        let [[o0, o1], [o2, o3], [o4, o5]] = Self::finite(s, [d[1], d[3], d[5], d[7], d[9], d[11]]);
        let last = s.mul_add(s.splat(5.25), s.sub(d[4], d[8]), s.sub(d[12], d[0]));
        [e0, e1, e2, e3, e4, e5, last, o0, o1, o2, o3, o4, o5]
    }

    #[inline(always)]
    fn output<L: Lanes>(s: L, m: [L::V; 13]) -> [L::V; 4] {
        let mut sums = [m[0]; 3];
        let mut differences = [m[0]; 3];
        for pair in 0..3 {
            sums[pair] = s.add(m[2 * pair], m[2 * pair + 1]);
            differences[pair] = s.sub(m[2 * pair], m[2 * pair + 1]);
        }
        let last = Self::at_powers(s, differences, 8.0);
        [
            s.add(s.add(sums[0], sums[1]), sums[2]),
            Self::at_powers(s, differences, 2.0),
            Self::at_powers(s, sums, 4.0),
            s.add(last, m[6]),
        ]
    }

    #[inline(always)]
    unsafe fn load_columns<L: Lanes>(s: L, row: *const f32) -> [L::V; 13] {
        // SAFETY: passed on from the caller.
        unsafe { load_columns(s, row) }
    }

    #[inline(always)]
    fn merge_columns<L: Lanes>(s: L, columns: [L::V; 4]) -> [L::V; 4] {
        s.merge4(columns)
    }
}

impl Stem {
    /// Every second input at all positions but infinity.
    #[inline(always)]
    fn finite<L: Lanes>(s: L, d: [L::V; 6]) -> [[L::V; 2]; 3] {
        [
            Self::pair(s, d, [4.25, 1.0], 1.0),
            Self::pair(s, d, [1.25, 0.25], 2.0),
            Self::pair(s, d, [5.0, 4.0], 0.5),
        ]
    }

    /// The inputs at a and -a, where M / (x^2 - a^2) is x^4 - middle x^2 + end: its product with x is odd, with a even, and
    /// both positions have these two's sum and difference.
    #[inline(always)]
    fn pair<L: Lanes>(s: L, d: [L::V; 6], [middle, end]: [f32; 2], a: f32) -> [L::V; 2] {
        let [middle, end, a] = [s.splat(middle), s.splat(end), s.splat(a)];
        let odd = s.mul_add(end, d[1], s.neg_mul_add(middle, d[3], d[5]));
        let even = s.mul_add(end, d[0], s.neg_mul_add(middle, d[2], d[4]));
        [s.mul_add(a, even, odd), s.neg_mul_add(a, even, odd)]
    }

    /// What 1, 2 and 1/2 have, times their power that 2 has as `power`.
    #[inline(always)]
    fn at_powers<L: Lanes>(s: L, m: [L::V; 3], power: f32) -> L::V {
        let first = s.mul_add(s.splat(power), m[1], m[0]);
        s.mul_add(s.splat(power.recip()), m[2], first)
    }
}

/// The powers of a position for the taps 0, 2, 4, 6, scaled.
const fn even_taps(a: f64, scale: f64) -> [f64; 7] {
    [
        scale,
        0.0,
        scale * a,
        0.0,
        scale * a * a,
        0.0,
        scale * a * a * a,
    ]
}

/// The powers of a position for the taps 1, 3, 5, scaled.
const fn odd_taps(a: f64, scale: f64) -> [f64; 7] {
    [0.0, scale, 0.0, scale * a, 0.0, scale * a * a, 0.0]
}
