//! The best keys of sixteen queries, sorted in columns.
//!
//! A key is a distance's bits above a number: positive, so its order is that of (distance, number), and ties are settled
//! by number for free. Four or eight queries stand in the lanes of a vector of keys and sixteen vectors hold sixteen ranks of
//! them: sorting compares whole vectors and shuffles nothing.

use super::super::order::LEAF;
use super::super::tree::{Leaf, NOBODY};
use super::lanes::{Lanes, MAX_PARTS, Rows};
use super::sixteen_distances;
use crate::simd::LANES;

/// Sixteen ranks of a part's queries.
pub(super) type Columns<L> = [<L as Lanes>::Keys; LEAF];

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
pub(super) fn sort<L: Lanes>(s: L, v: &mut Columns<L>) {
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
fn sort_bitonic<L: Lanes>(s: L, v: &mut Columns<L>) {
    exchange!(s, v: (0, 8)(1, 9)(2, 10)(3, 11)(4, 12)(5, 13)(6, 14)(7, 15));
    exchange!(s, v: (0, 4)(1, 5)(2, 6)(3, 7)(8, 12)(9, 13)(10, 14)(11, 15));
    exchange!(s, v: (0, 2)(1, 3)(4, 6)(5, 7)(8, 10)(9, 11)(12, 14)(13, 15));
    exchange!(s, v: (0, 1)(2, 3)(4, 5)(6, 7)(8, 9)(10, 11)(12, 13)(14, 15));
}

/// The keys of sixteen queries against the sixteen points of a leaf, sorted: all parts.
#[inline(always)]
pub(super) fn leaf_keys<L: Lanes>(s: L, queries: &Leaf, leaf: &Leaf) -> [Columns<L>; MAX_PARTS] {
    let none = s.keys(s.splat(0.0), s.splat(0.0))[0];
    let mut columns = [[none; LEAF]; MAX_PARTS];
    let at = [
        s.read(&queries.at[0]),
        s.read(&queries.at[1]),
        s.read(&queries.at[2]),
    ];
    for seat in 0..LEAF {
        let [x, y, z] = leaf.point(seat);
        let distance = sixteen_distances(s, at, [s.splat(x), s.splat(y), s.splat(z)]);
        let number = s.splat(f32::from_bits(leaf.number(seat)));
        let keys = s.keys(distance, number);
        for part in 0..L::PARTS {
            columns[part][seat] = keys[part];
        }
    }
    for part in 0..L::PARTS {
        sort(s, &mut columns[part]);
    }
    columns
}

/// The `k` best keys of sixteen queries: for each part, blocks of sixteen ranks.
pub(super) struct Best<L: Lanes> {
    columns: [[Columns<L>; MAX_BLOCKS]; MAX_PARTS],
    k: usize,
}

impl<L: Lanes> Best<L> {
    /// No key is known yet.
    #[inline(always)]
    pub(super) fn new(s: L, k: usize) -> Best<L> {
        Best {
            columns: [[[nothing(s); LEAF]; MAX_BLOCKS]; MAX_PARTS],
            k,
        }
    }

    /// Forgets everything, and takes the first sixteen sorted keys.
    #[inline(always)]
    pub(super) fn start(&mut self, s: L, part: usize, keys: &Columns<L>) {
        self.columns[part][0] = *keys;
        for block in 1..self.k.div_ceil(LEAF) {
            self.columns[part][block] = [nothing(s); LEAF];
        }
    }

    /// Takes sixteen more sorted keys: the smaller ones stay in a block, the larger ones go on to the next.
    #[inline(always)]
    pub(super) fn absorb(&mut self, s: L, part: usize, mut keys: Columns<L>) {
        let last = self.k.div_ceil(LEAF) - 1;
        for block in 0..last {
            let best = &mut self.columns[part][block];
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
        let mut best = self.columns[part][last];
        for rank in 0..LEAF {
            best[rank] = s.keys_min(best[rank], keys[LEAF - 1 - rank]);
        }
        sort_bitonic(s, &mut best);
        self.columns[part][last] = best;
    }

    /// Distance and number of the last key that counts, for the queries of a part.
    #[inline(always)]
    pub(super) fn last(&self, s: L, part: usize) -> ([f32; LANES], [f32; LANES]) {
        let rank = self.k - 1;
        s.parts(self.columns[part][rank / LEAF][rank % LEAF])
    }

    /// Distances and numbers at ranks `16 block + 8 half` to `+ 8`, for each query of a part.
    #[inline(always)]
    pub(super) fn ranks(&self, s: L, part: usize, block: usize, half: usize) -> Rows<L::S> {
        let (halves, _) = self.columns[part][block].as_chunks::<LANES>();
        s.turn_back(halves[half])
    }
}

/// A key behind all others.
#[inline(always)]
fn nothing<L: Lanes>(s: L) -> L::Keys {
    s.keys(s.splat(f32::MAX), s.splat(f32::from_bits(NOBODY)))[0]
}
