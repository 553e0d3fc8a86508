//! The neighbours of a leaf's sixteen points at once.
//!
//! 1. The distances to the points' own leaf and its sister give every query a bound.
//! 2. One walk from the top finds all leaves whose boxes are within the largest bound of the queries' box. The distances to the
//!    nearest of them tighten the bounds, which leaves few.
//! 3. Whatever is within a query's bound in any of these leaves goes to its buffer, without a branch on it, and buffers are
//!    sorted into the lists. Only here points have numbers, by which ties are settled.

use super::super::order::{FAN, LEAF};
use super::super::tree::{Leaf, NOBODY, PointTree};
use super::columns::{ByDistance, ByKey, NOTHING, Ranks, leaf_distances, sort};
use super::lanes::{Lanes, MAX_PARTS, key, parts};
use super::walk::{FIRST_LEAVES, Walk, numbers};
use super::{Lists, sixteen_distances};
use crate::simd::LANES;

/// Room of a query's buffer.
const CAPACITY: usize = 128;
/// A buffer is emptied before a leaf could pass the end.
const FULL: usize = CAPACITY - LEAF;
/// Leaves whose queries are noted at a time.
const LEAVES_AT_ONCE: usize = 16;

/// What came within the bound of each query, and the bounds themselves.
#[repr(C, align(64))]
struct Buffers {
    keys: [[u64; CAPACITY]; LEAF],
    len: [usize; LEAF],
    /// A key that the last one of a query's list is not above.
    bound: [u64; LEAF],
    /// Its distance and its number.
    bound_distance: [[f32; LANES]; 2],
    bound_number: [[f32; LANES]; 2],
    /// Leaves and queries that have to meet: the place of a leaf's first point, and the query's seat in its lowest bits.
    meetings: [u32; (LEAVES_AT_ONCE + 1) * LEAF],
}

/// Searches for the neighbours of groups.
pub(super) struct GroupSearch<L: Lanes> {
    walk: Walk,
    gathering: Gathering<L>,
}

/// What is known of the neighbours of a group.
struct Gathering<L: Lanes> {
    /// The smallest distances of all queries that are known so far.
    distances: Ranks<ByDistance<L>>,
    /// The lists of each part's queries.
    best: [Ranks<ByKey<L>>; MAX_PARTS],
    buffers: Box<Buffers>,
    k: usize,
}

/// Sixteen queries (fewer in the last leaf) and the box around them.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) seats: usize,
    pub(super) low: [f32; 3],
    pub(super) high: [f32; 3],
}

impl<'a> Group<'a> {
    #[inline(always)]
    pub(super) fn of(tree: &'a PointTree, leaf: usize) -> Group<'a> {
        let boxes = &tree.boxes[0][leaf / FAN];
        Group {
            leaf: &tree.leaves[leaf],
            seats: tree.seats(leaf),
            low: boxes.low.map(|values| values[leaf % FAN]),
            high: boxes.high.map(|values| values[leaf % FAN]),
        }
    }

    pub(super) fn middle(&self) -> [f32; 3] {
        std::array::from_fn(|axis| (self.low[axis] + self.high[axis]) * 0.5)
    }
}

/// The coordinates of a leaf's points.
#[inline(always)]
fn read3<L: Lanes>(s: L, leaf: &Leaf) -> [L::Floats; 3] {
    [
        s.read(&leaf.at[0]),
        s.read(&leaf.at[1]),
        s.read(&leaf.at[2]),
    ]
}

impl<L: Lanes> GroupSearch<L> {
    #[inline(always)]
    pub(super) fn new(s: L, k: usize) -> GroupSearch<L> {
        GroupSearch {
            walk: Walk::default(),
            gathering: Gathering::new(s, k),
        }
    }

    /// Finds the lists of a group in `tree`, starting from a leaf near it, and writes them.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        s: L,
        tree: &PointTree,
        group: Group<'_>,
        near: usize,
        lists: &Lists,
    ) {
        for seat in 0..group.seats {
            lists.prefetch(group.leaf.number(seat));
        }
        let sister = match near ^ 1 {
            sister if sister < tree.leaves.len() => sister,
            _ => near.saturating_sub(1),
        };
        let own = [near as u32, sister as u32];
        let own = &own[..1 + usize::from(sister != near)];
        let GroupSearch { walk, gathering } = self;
        gathering.forget();
        gathering.bound_by_distances(s, tree, group, own);
        walk.find(s.simd(), tree, group, gathering.largest_bound(), own);
        let mut first = [0; FIRST_LEAVES];
        let first = walk.take_nearest(&mut first);
        gathering.bound_by_distances(s, tree, group, first);
        gathering.look_into_own(s, tree, group, own);
        gathering.look_into(s, tree, group, first);
        let rest = walk.rest(gathering.largest_bound().0);
        for leaves in rest.chunks(LEAVES_AT_ONCE) {
            gathering.look_into(s, tree, group, leaves);
        }
        gathering.empty(s);
        gathering.write(s, group, lists);
    }
}

impl<L: Lanes> Gathering<L> {
    #[inline(always)]
    fn new(s: L, k: usize) -> Gathering<L> {
        Gathering {
            distances: Ranks::new(k, s.splat(f32::MAX)),
            best: [(); MAX_PARTS].map(|()| Ranks::new(k, s.splat_key(NOTHING))),
            buffers: Box::new(Buffers {
                keys: [[0; CAPACITY]; LEAF],
                len: [0; LEAF],
                bound: [0; LEAF],
                bound_distance: [[0.0; LANES]; 2],
                bound_number: [[0.0; LANES]; 2],
                meetings: [0; (LEAVES_AT_ONCE + 1) * LEAF],
            }),
            k,
        }
    }

    #[inline(always)]
    fn forget(&mut self) {
        self.distances.clear();
        for best in &mut self.best[..L::PARTS] {
            best.clear();
        }
        self.buffers.len = [0; LEAF];
    }

    /// Takes the distances from some more leaves, and the last ones that count as bounds.
    #[inline(always)]
    fn bound_by_distances(&mut self, s: L, tree: &PointTree, group: Group<'_>, leaves: &[u32]) {
        let at = read3(s, group.leaf);
        for &leaf in leaves {
            let distances = leaf_distances(s, at, &tree.leaves[leaf as usize]);
            self.distances.absorb(ByDistance(s), distances);
        }
        let distances = s.to_array(self.distances.last());
        for query in 0..LEAF {
            // Nothing is within the bound of an empty seat.
            let distance = match query < group.seats {
                true => distances[query / LANES][query % LANES],
                false => -1.0,
            };
            self.buffers.bound[query] = key(distance, f32::from_bits(NOBODY));
        }
        self.split_bounds();
    }

    /// Takes the last keys of the lists as bounds, where they are known already.
    #[inline(always)]
    fn bound_by_lists(&mut self, s: L) {
        for part in 0..L::PARTS {
            let (distance, number) = s.parts(self.best[part].last());
            for (lane, &query) in L::QUERIES[part].iter().enumerate() {
                let last = key(distance[lane], number[lane]).cast_signed();
                let bound = &mut self.buffers.bound[query];
                // As signed numbers: an empty seat's is negative.
                *bound = bound.cast_signed().min(last).cast_unsigned();
            }
        }
        self.split_bounds();
    }

    #[inline(always)]
    fn split_bounds(&mut self) {
        let buffers = &mut *self.buffers;
        for query in 0..LEAF {
            let (half, slot) = (query / LANES, query % LANES);
            let (distance, number) = parts(buffers.bound[query]);
            buffers.bound_distance[half][slot] = distance;
            buffers.bound_number[half][slot] = number;
        }
    }

    /// The largest bound of all queries: (distance, number).
    #[inline(always)]
    fn largest_bound(&self) -> (f32, f32) {
        // As signed numbers: an empty seat's is negative.
        let bounds = self.buffers.bound.iter().map(|bound| bound.cast_signed());
        parts(bounds.fold(i64::MIN, i64::max).cast_unsigned())
    }

    /// Takes what is within the bounds of the queries from their own leaves, which all have to look into.
    #[inline(always)]
    fn look_into_own(&mut self, s: L, tree: &PointTree, group: Group<'_>, leaves: &[u32]) {
        for &leaf in leaves {
            let leaf = &tree.leaves[leaf as usize];
            for query in 0..LEAF {
                self.take_within_bound(s, leaf, query, group.leaf.point(query));
            }
        }
    }

    /// Takes what is within the bounds of the queries from some leaves, [`LEAVES_AT_ONCE`] at most.
    #[inline(always)]
    fn look_into(&mut self, s: L, tree: &PointTree, group: Group<'_>, leaves: &[u32]) {
        let at = read3(s, group.leaf);
        let zero = s.splat(0.0);
        let bound = s.read(&self.buffers.bound_distance);
        let mut count = 0;
        for &leaf in leaves {
            let boxes = &tree.boxes[0][leaf as usize / FAN];
            let child = leaf as usize % FAN;
            let mut gaps = [zero; 3];
            for axis in 0..3 {
                let before = s.sub(s.splat(boxes.low[axis][child]), at[axis]);
                let behind = s.sub(at[axis], s.splat(boxes.high[axis][child]));
                gaps[axis] = s.max(s.max(before, behind), zero);
            }
            let distance = sixteen_distances(s, gaps, [zero; 3]);
            let mut queries = !s.less(bound, distance);
            let tie = s.equal(distance, bound);
            if tie != 0 {
                let bound_number = s.read(&self.buffers.bound_number);
                queries &= !(tie & s.less(bound_number, s.splat(boxes.first[child])));
            }
            for half in 0..2 {
                let queries = queries >> (half * LANES) & 0xFF;
                let first = leaf * LEAF as u32 + (half * LANES) as u32;
                self.buffers.meetings[count..][..LANES].copy_from_slice(&numbers(first, queries));
                count += queries.count_ones() as usize;
            }
        }
        let all: &[Leaf] = &tree.leaves;
        for meeting in 0..count {
            let meeting = self.buffers.meetings[meeting] as usize;
            let (leaf, query) = (&all[meeting / LEAF], meeting % LEAF);
            if self.buffers.len[query] > FULL {
                self.empty(s);
                self.bound_by_lists(s);
            }
            self.take_within_bound(s, leaf, query, group.leaf.point(query));
        }
    }

    /// Adds a leaf's points within a query's bound to its buffer.
    #[inline(always)]
    fn take_within_bound(&mut self, s: L, leaf: &Leaf, query: usize, at: [f32; 3]) {
        let buffers = &mut *self.buffers;
        let at = [s.splat(at[0]), s.splat(at[1]), s.splat(at[2])];
        let distance = sixteen_distances(s, read3(s, leaf), at);
        let len = buffers.len[query];
        debug_assert!(len + LEAF <= CAPACITY);
        // SAFETY: a buffer holds at most FULL keys before a leaf, and has room for LEAF beyond FULL.
        let taken = unsafe {
            let to = buffers.keys[query].as_mut_ptr().add(len);
            s.store_within(to, distance, s.read(&leaf.number), buffers.bound[query])
        };
        buffers.len[query] = len + taken;
    }

    /// Sorts the buffers into the lists.
    #[inline(always)]
    fn empty(&mut self, s: L) {
        let nothing = s.splat_key(NOTHING);
        let buffers = &mut *self.buffers;
        for part in 0..L::PARTS {
            let queries = L::QUERIES[part];
            let lengths = queries.iter().map(|&query| buffers.len[query]);
            let longest = lengths.fold(0, usize::max);
            for start in (0..longest).step_by(LEAF) {
                let mut keys = [nothing; LEAF];
                for half in 0..2 {
                    let at = start + half * LANES;
                    let mut rows = [&[0; LANES]; LANES];
                    let mut there = [0; LANES];
                    for (row, &query) in queries.iter().enumerate() {
                        rows[row] = &buffers.keys[query].as_chunks().0[at / LANES];
                        there[row] = buffers.len[query].saturating_sub(at);
                    }
                    let turned = s.turn(rows, there, NOTHING);
                    keys[half * LANES..][..LANES].copy_from_slice(&turned);
                }
                sort(ByKey(s), &mut keys);
                self.best[part].absorb(ByKey(s), keys);
            }
        }
        buffers.len = [0; LEAF];
    }

    #[inline(always)]
    fn write(&mut self, s: L, group: Group<'_>, lists: &Lists) {
        for part in 0..L::PARTS {
            for start in (0..self.k).step_by(LANES) {
                let (halves, _) = self.best[part].block(start / LEAF).as_chunks::<LANES>();
                let ranks = s.turn_back(halves[start / LANES % 2]);
                for (&(distance, number), &query) in ranks.iter().zip(L::QUERIES[part]) {
                    if query < group.seats {
                        let list = group.leaf.number(query);
                        lists.write(s.simd(), list, start, distance, number);
                    }
                }
            }
        }
    }
}
