//! The best keys of sixteen queries, sorted in columns.
//!
//! A key is a distance's bits above a number: positive, so its order is that of (distance, number), and ties are settled
//! by number for free. Four queries stand in the lanes of a vector of keys and sixteen vectors hold sixteen ranks of them:
//! sorting compares whole vectors and shuffles nothing.

use super::super::order::LEAF;
use super::super::tree::{Leaf, NOBODY};
use super::squared_distance;
use crate::simd::{LANES, Simd};

/// Sixteen ranks of four queries.
pub(super) type Columns<S> = [<S as Simd>::Keys; LEAF];

/// Vectors of keys that sixteen queries fill.
pub(super) const QUARTERS: usize = 4;
/// Which queries stand in the lanes of each quarter, as [`Simd::keys`] interleaves them.
pub(super) const QUERIES: [[usize; 4]; QUARTERS] =
    [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]];
/// Blocks of sixteen ranks at most.
const MAX_BLOCKS: usize = 4;
/// The longest list of neighbours.
pub const MAX_NEIGHBOURS: usize = MAX_BLOCKS * LEAF;

/// Compares and swaps pairs of ranks.
macro_rules! exchange {
    ($s:ident, $v:ident: $(($a:literal, $b:literal))*) => {$(
        let low = $s.keys_min($v[$a], $v[$b]);
        $v[$b] = $s.keys_max($v[$a], $v[$b]);
        $v[$a] = low;
    )*};
}

/// Sorts sixteen ranks: the network of 60 comparators.
#[inline(always)]
pub(super) fn sort<S: Simd>(s: S, v: &mut Columns<S>) {
    exchange!(s, v: (0, 13)(1, 12)(2, 15)(3, 14)(4, 8)(5, 6)(7, 11)(9, 10));
    exchange!(s, v: (0, 5)(1, 7)(2, 9)(3, 4)(6, 13)(8, 14)(10, 15)(11, 12));
    exchange!(s, v: (0, 1)(2, 3)(4, 5)(6, 8)(7, 9)(10, 11)(12, 13)(14, 15));
    exchange!(s, v: (0, 2)(1, 3)(4, 10)(5, 11)(6, 7)(8, 9)(12, 14)(13, 15));
    exchange!(s, v: (1, 2)(3, 12)(4, 6)(5, 7)(8, 10)(9, 11)(13, 14));
    exchange!(s, v: (1, 4)(2, 6)(5, 8)(7, 10)(9, 13)(11, 14));
    exchange!(s, v: (2, 4)(3, 6)(9, 12)(11, 13));
    exchange!(s, v: (3, 5)(6, 8)(7, 9)(10, 12));
    exchange!(s, v: (3, 4)(5, 6)(7, 8)(9, 10)(11, 12));
    exchange!(s, v: (6, 7)(8, 9));
}

/// Sorts ranks that first rise and then fall, or the other way round.
#[inline(always)]
fn sort_bitonic<S: Simd>(s: S, v: &mut Columns<S>) {
    exchange!(s, v: (0, 8)(1, 9)(2, 10)(3, 11)(4, 12)(5, 13)(6, 14)(7, 15));
    exchange!(s, v: (0, 4)(1, 5)(2, 6)(3, 7)(8, 12)(9, 13)(10, 14)(11, 15));
    exchange!(s, v: (0, 2)(1, 3)(4, 6)(5, 7)(8, 10)(9, 11)(12, 14)(13, 15));
    exchange!(s, v: (0, 1)(2, 3)(4, 5)(6, 7)(8, 9)(10, 11)(12, 13)(14, 15));
}

/// The keys of eight queries (half `half` of `queries`) against the sixteen points of a leaf, sorted: two quarters.
#[inline(always)]
pub(super) fn leaf_keys<S: Simd>(
    s: S,
    queries: &Leaf,
    half: usize,
    leaf: &Leaf,
) -> [Columns<S>; 2] {
    let none = s.keys(s.splat(0.0), s.splat(0.0))[0];
    let mut columns = [[none; LEAF]; 2];
    let at = [
        s.read(&queries.at[0][half]),
        s.read(&queries.at[1][half]),
        s.read(&queries.at[2][half]),
    ];
    for seat in 0..LEAF {
        let [x, y, z] = leaf.point(seat);
        let distance = squared_distance(s, at, [s.splat(x), s.splat(y), s.splat(z)]);
        let number = s.splat(f32::from_bits(leaf.number(seat)));
        [columns[0][seat], columns[1][seat]] = s.keys(distance, number);
    }
    sort(s, &mut columns[0]);
    sort(s, &mut columns[1]);
    columns
}

/// The `k` best keys of sixteen queries: for each quarter, blocks of sixteen ranks.
pub(super) struct Best<S: Simd> {
    columns: [[Columns<S>; MAX_BLOCKS]; QUARTERS],
    k: usize,
}

impl<S: Simd> Best<S> {
    /// No key is known yet.
    #[inline(always)]
    pub(super) fn new(s: S, k: usize) -> Best<S> {
        let nothing = s.keys(s.splat(f32::MAX), s.splat(f32::from_bits(NOBODY)))[0];
        Best {
            columns: [[[nothing; LEAF]; MAX_BLOCKS]; QUARTERS],
            k,
        }
    }

    /// Forgets everything, and takes the first sixteen sorted keys.
    #[inline(always)]
    pub(super) fn start(&mut self, s: S, quarter: usize, keys: &Columns<S>) {
        let nothing = s.keys(s.splat(f32::MAX), s.splat(f32::from_bits(NOBODY)))[0];
        self.columns[quarter][0] = *keys;
        for block in 1..self.k.div_ceil(LEAF) {
            self.columns[quarter][block] = [nothing; LEAF];
        }
    }

    /// Takes sixteen more sorted keys: the smaller ones stay in a block, the larger ones go on to the next.
    #[inline(always)]
    pub(super) fn absorb(&mut self, s: S, quarter: usize, mut keys: Columns<S>) {
        let last = self.k.div_ceil(LEAF) - 1;
        for block in 0..last {
            let best = &mut self.columns[quarter][block];
            let mut rest = keys;
            for rank in 0..LEAF {
                let (a, b) = (best[rank], keys[LEAF - 1 - rank]);
                best[rank] = s.keys_min(a, b);
                rest[rank] = s.keys_max(a, b);
            }
            sort_bitonic(s, best);
            sort_bitonic(s, &mut rest);
            keys = rest;
        }
        let mut best = self.columns[quarter][last];
        for rank in 0..LEAF {
            best[rank] = s.keys_min(best[rank], keys[LEAF - 1 - rank]);
        }
        sort_bitonic(s, &mut best);
        self.columns[quarter][last] = best;
    }

    /// Distance and number of the last key that counts, for the queries of a quarter.
    #[inline(always)]
    pub(super) fn last(&self, s: S, quarter: usize) -> ([f32; 4], [f32; 4]) {
        let rank = self.k - 1;
        let keys = self.columns[quarter][rank / LEAF][rank % LEAF];
        let (distance, number) = s.key_parts([keys, keys]);
        let four = |v: [f32; LANES]| [v[0], v[1], v[2], v[3]];
        (four(s.to_array(distance)), four(s.to_array(number)))
    }

    /// Distances and numbers at ranks `16 block + 8 half` to `+ 8`, for each query of a quarter.
    #[inline(always)]
    pub(super) fn ranks(
        &self,
        s: S,
        quarter: usize,
        block: usize,
        half: usize,
    ) -> [(S::V, S::V); 4] {
        let column = &self.columns[quarter][block];
        let four = |at: usize| [column[at], column[at + 1], column[at + 2], column[at + 3]];
        let low = s.transpose_keys(four(half * LANES));
        let high = s.transpose_keys(four(half * LANES + 4));
        [
            s.key_parts([low[0], high[0]]),
            s.key_parts([low[1], high[1]]),
            s.key_parts([low[2], high[2]]),
            s.key_parts([low[3], high[3]]),
        ]
    }
}
