//! The best of sixteen queries, sorted in columns.
//!
//! A key is a distance's bits above a number: positive, so its order is that of (distance, number), and ties are settled
//! by number for free. Four or eight queries stand in the lanes of a vector of keys and sixteen vectors hold sixteen ranks of
//! them: sorting compares whole vectors and shuffles nothing. Distances alone, which bounds are made of, take half as many.

use super::super::order::LEAF;
use super::super::tree::{Leaf, NOBODY};
use super::lanes::Lanes;
use super::sixteen_distances;

/// Blocks of sixteen ranks at most.
const MAX_BLOCKS: usize = 4;
/// The longest list of neighbours.
pub const MAX_NEIGHBOURS: usize = MAX_BLOCKS * LEAF;
/// A key behind all others.
pub(super) const NOTHING: u64 = (f32::MAX.to_bits() as u64) << 32 | NOBODY as u64;

/// Vectors that are compared lane by lane.
pub(super) trait Order: Copy {
    type V: Copy;
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V;
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
}

/// The order of keys.
#[derive(Clone, Copy)]
pub(super) struct ByKey<L>(pub(super) L);

impl<L: Lanes> Order for ByKey<L> {
    type V = L::Keys;

    #[inline(always)]
    fn smaller(self, a: L::Keys, b: L::Keys) -> L::Keys {
        self.0.keys_min(a, b)
    }
    #[inline(always)]
    fn larger(self, a: L::Keys, b: L::Keys) -> L::Keys {
        self.0.keys_max(a, b)
    }
}

/// The order of distances.
#[derive(Clone, Copy)]
pub(super) struct ByDistance<L>(pub(super) L);

impl<L: Lanes> Order for ByDistance<L> {
    type V = L::Floats;

    #[inline(always)]
    fn smaller(self, a: L::Floats, b: L::Floats) -> L::Floats {
        self.0.min(a, b)
    }
    #[inline(always)]
    fn larger(self, a: L::Floats, b: L::Floats) -> L::Floats {
        self.0.max(a, b)
    }
}

/// Compares and swaps pairs of ranks.
macro_rules! exchange {
    ($s:ident, $v:ident: $(($a:literal, $b:literal))*) => {$(
        let low = $s.smaller($v[$a], $v[$b]);
        $v[$b] = $s.larger($v[$a], $v[$b]);
        $v[$a] = low;
    )*};
}

/// Sorts sixteen ranks: the network of 60 comparators.
#[inline(always)]
pub(super) fn sort<O: Order>(s: O, v: &mut [O::V; LEAF]) {
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
fn sort_bitonic<O: Order>(s: O, v: &mut [O::V; LEAF]) {
    exchange!(s, v: (0, 8)(1, 9)(2, 10)(3, 11)(4, 12)(5, 13)(6, 14)(7, 15));
    exchange!(s, v: (0, 4)(1, 5)(2, 6)(3, 7)(8, 12)(9, 13)(10, 14)(11, 15));
    exchange!(s, v: (0, 2)(1, 3)(4, 6)(5, 7)(8, 10)(9, 11)(12, 14)(13, 15));
    exchange!(s, v: (0, 1)(2, 3)(4, 5)(6, 7)(8, 9)(10, 11)(12, 13)(14, 15));
}

/// The distances of sixteen queries from the sixteen points of a leaf, sorted.
#[inline(always)]
pub(super) fn leaf_distances<L: Lanes>(s: L, at: [L::Floats; 3], leaf: &Leaf) -> [L::Floats; LEAF] {
    let mut distances = [s.splat(0.0); LEAF];
    for seat in 0..LEAF {
        let [x, y, z] = leaf.point(seat);
        distances[seat] = sixteen_distances(s, at, [s.splat(x), s.splat(y), s.splat(z)]);
    }
    sort(ByDistance(s), &mut distances);
    distances
}

/// The `k` best of some queries: blocks of sixteen ranks.
pub(super) struct Ranks<O: Order> {
    blocks: [[O::V; LEAF]; MAX_BLOCKS],
    k: usize,
    nothing: O::V,
    /// Whether nothing is known yet.
    none: bool,
}

impl<O: Order> Ranks<O> {
    /// Nothing is known yet: all ranks hold what is behind everything.
    #[inline(always)]
    pub(super) fn new(k: usize, nothing: O::V) -> Ranks<O> {
        Ranks {
            blocks: [[nothing; LEAF]; MAX_BLOCKS],
            k,
            nothing,
            none: true,
        }
    }

    /// Forgets everything.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.blocks[..self.k.div_ceil(LEAF)].fill([self.nothing; LEAF]);
        self.none = true;
    }

    /// Takes sixteen more, sorted: the smaller ones stay in a block, the larger ones go on to the next.
    #[inline(always)]
    pub(super) fn absorb(&mut self, s: O, mut more: [O::V; LEAF]) {
        if self.none {
            self.blocks[0] = more;
            self.none = false;
            return;
        }
        let last = self.k.div_ceil(LEAF) - 1;
        for block in 0..last {
            let best = &mut self.blocks[block];
            let mut rest = more;
            for rank in 0..LEAF {
                let (a, b) = (best[rank], more[LEAF - 1 - rank]);
                best[rank] = s.smaller(a, b);
                rest[rank] = s.larger(a, b);
            }
            sort_bitonic(s, best);
            sort_bitonic(s, &mut rest);
            more = rest;
        }
        let mut best = self.blocks[last];
        for rank in 0..LEAF {
            best[rank] = s.smaller(best[rank], more[LEAF - 1 - rank]);
        }
        sort_bitonic(s, &mut best);
        self.blocks[last] = best;
    }

    /// The last rank that counts.
    #[inline(always)]
    pub(super) fn last(&self) -> O::V {
        let rank = self.k - 1;
        self.blocks[rank / LEAF][rank % LEAF]
    }

    /// A block of sixteen ranks.
    #[inline(always)]
    pub(super) fn block(&self, block: usize) -> &[O::V; LEAF] {
        &self.blocks[block]
    }
}
