//! The neighbours of a leaf's sixteen points at once.
//!
//! 1. The points' own leaf and its sister give every query a first list, and with it a bound.
//! 2. One walk from the top finds all leaves whose boxes are within the largest bound of the queries' box.
//! 3. Leaf after leaf, the nearest first, whatever is within a query's bound goes to its buffer, without a branch on it;
//!    full buffers are sorted into the lists, which tightens the bounds.

use super::super::order::{FAN, LEAF};
use super::super::tree::{Boxes, Leaf, PointTree};
use super::columns::{Best, Columns, leaf_keys, sort};
use super::lanes::Lanes;
use super::{Lists, sixteen_distances, squared_distance};
use crate::simd::{LANES, Simd, prefetch_read};

/// Room of a query's buffer.
const CAPACITY: usize = 96;
/// A buffer is emptied before a leaf and the vector behind it could pass the end.
const FULL: usize = CAPACITY - LEAF - LANES;
/// After so many leaves bounds are tightened for the first time.
const FIRST_LEAVES: usize = 6;
/// Nodes that wait in a walk: seven a level, and the last one's eight.
const MAX_WAITING: usize = 128;

/// The bits of a whole vector.
const ALL_LANES: u32 = (1 << LANES) - 1;
/// The bits of sixteen queries, or of a leaf's points.
const ALL_QUERIES: u32 = (1 << LEAF) - 1;
/// What came within the bound of each query, and the bounds themselves.
#[repr(C, align(64))]
struct Buffers {
    distance: [[f32; CAPACITY]; LEAF],
    number: [[f32; CAPACITY]; LEAF],
    len: [usize; LEAF],
    /// The last distance and number of each query's list.
    bound: [[f32; LANES]; 2],
    bound_number: [[f32; LANES]; 2],
}

/// The working memory of group searches.
pub(super) struct GroupSearch<L: Lanes> {
    best: Best<L>,
    buffers: Box<Buffers>,
    /// Leaves to look into: (distance from the middle of the queries, leaf).
    candidates: Vec<u64>,
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

#[inline(always)]
fn splat3<S: Simd>(s: S, [x, y, z]: [f32; 3]) -> [S::V; 3] {
    [s.splat(x), s.splat(y), s.splat(z)]
}

/// Fetches a leaf that is read soon.
#[inline(always)]
fn prefetch_leaf(leaf: &Leaf) {
    for axis in &leaf.at {
        prefetch_read(axis[0].as_ptr());
    }
    prefetch_read(leaf.number[0].as_ptr());
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

/// Smallest squared distances from the box `low` to `high` to eight boxes.
#[inline(always)]
fn distances_to_boxes<S: Simd>(s: S, boxes: &Boxes, low: [S::V; 3], high: [S::V; 3]) -> S::V {
    let zero = s.splat(0.0);
    let mut gaps = [zero; 3];
    for axis in 0..3 {
        let before = s.sub(s.read(&boxes.low[axis]), high[axis]);
        let behind = s.sub(low[axis], s.read(&boxes.high[axis]));
        gaps[axis] = s.max(s.max(before, behind), zero);
    }
    squared_distance(s, gaps, [zero; 3])
}

/// The lanes where (distance, number) is at most (bound, bound number).
#[inline(always)]
fn within<S: Simd>(s: S, distance: S::V, number: S::V, bound: S::V, bound_number: S::V) -> u32 {
    let at_most = !s.bits(s.less(bound, distance)) & ALL_LANES;
    let tie = s.bits(s.equal(distance, bound));
    if tie == 0 {
        return at_most;
    }
    let later = s.bits(s.less(bound_number, number));
    at_most & !(tie & later)
}

impl<L: Lanes> GroupSearch<L> {
    #[inline(always)]
    pub(super) fn new(s: L, k: usize) -> GroupSearch<L> {
        GroupSearch {
            best: Best::new(s, k),
            buffers: Box::new(Buffers {
                distance: [[0.0; CAPACITY]; LEAF],
                number: [[0.0; CAPACITY]; LEAF],
                len: [0; LEAF],
                bound: [[0.0; LANES]; 2],
                bound_number: [[0.0; LANES]; 2],
            }),
            candidates: Vec::new(),
            k,
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
        let own = leaf_keys(s, group.leaf, &tree.leaves[near]);
        for part in 0..L::PARTS {
            self.best.start(s, part, &own[part]);
        }
        if sister != near {
            let keys = leaf_keys(s, group.leaf, &tree.leaves[sister]);
            for part in 0..L::PARTS {
                self.best.absorb(s, part, keys[part]);
            }
        }
        self.tighten(s, group.seats);
        let bound = self.largest_bound();
        self.collect(s.simd(), tree, group, bound, [near, sister]);
        sort_candidates(&mut self.candidates);
        self.filter(s, tree, group);
        self.write(s, group, lists);
    }

    /// Reads the bounds off the lists.
    #[inline(always)]
    fn tighten(&mut self, s: L, seats: usize) {
        for part in 0..L::PARTS {
            let (distance, number) = self.best.last(s, part);
            for (lane, &query) in L::QUERIES[part].iter().enumerate() {
                let (half, slot) = (query / LANES, query % LANES);
                // Nothing is within the bound of an empty seat.
                self.buffers.bound[half][slot] = if query < seats { distance[lane] } else { -1.0 };
                self.buffers.bound_number[half][slot] = number[lane];
            }
        }
    }

    /// The largest bound of all queries: (distance, number).
    #[inline(always)]
    fn largest_bound(&self) -> (f32, f32) {
        let (mut distance, mut number) = (-1.0, 0.0);
        for half in 0..2 {
            for lane in 0..LANES {
                let bound = self.buffers.bound[half][lane];
                let bound_number = self.buffers.bound_number[half][lane];
                if bound > distance || bound == distance && bound_number > number {
                    (distance, number) = (bound, bound_number);
                }
            }
        }
        (distance, number)
    }

    /// Notes all leaves that may hold something within `bound` of the group's box, but for the two that are done.
    #[inline(always)]
    fn collect(
        &mut self,
        s: L::S,
        tree: &PointTree,
        group: Group<'_>,
        bound: (f32, f32),
        done: [usize; 2],
    ) {
        let (low, high) = (splat3(s, group.low), splat3(s, group.high));
        let middle = splat3(s, group.middle());
        let (bound, bound_number) = (s.splat(bound.0), s.splat(bound.1));
        let mut waiting = [(0u32, 0u32); MAX_WAITING];
        let mut count = 1;
        waiting[0] = (tree.boxes.len() as u32 - 1, 0);
        self.candidates.clear();
        while count > 0 {
            count -= 1;
            let (height, node) = waiting[count];
            let boxes = &tree.boxes[height as usize][node as usize];
            let distance = distances_to_boxes(s, boxes, low, high);
            let mut found = within(s, distance, s.read(&boxes.first), bound, bound_number);
            if height > 0 {
                while found != 0 {
                    waiting[count] = (height - 1, node * FAN as u32 + found.trailing_zeros());
                    count += 1;
                    found &= found - 1;
                }
                continue;
            }
            for leaf in done {
                if leaf / FAN == node as usize {
                    found &= !(1 << (leaf % FAN));
                }
            }
            if found != 0 {
                let distance = s.to_array(distances_to_boxes(s, boxes, middle, middle));
                while found != 0 {
                    let child = found.trailing_zeros();
                    let leaf = u64::from(node * FAN as u32 + child);
                    let distance = distance[child as usize % LANES].to_bits();
                    prefetch_leaf(&tree.leaves[leaf as usize]);
                    self.candidates.push(u64::from(distance) << 32 | leaf);
                    found &= found - 1;
                }
            }
        }
    }

    /// Looks into the candidates and brings the lists to their end.
    #[inline(always)]
    fn filter(&mut self, s: L, tree: &PointTree, group: Group<'_>) {
        self.buffers.len = [0; LEAF];
        let at = read3(s, group.leaf);
        let zero = s.splat(0.0);
        for index in 0..self.candidates.len() {
            if index == FIRST_LEAVES {
                self.empty(s);
                self.tighten(s, group.seats);
            }
            let candidate = self.candidates[index] as u32 as usize;
            let leaf = &tree.leaves[candidate];
            let boxes = &tree.boxes[0][candidate / FAN];
            let child = candidate % FAN;
            let mut gaps = [zero; 3];
            for axis in 0..3 {
                let before = s.sub(s.splat(boxes.low[axis][child]), at[axis]);
                let behind = s.sub(at[axis], s.splat(boxes.high[axis][child]));
                gaps[axis] = s.max(s.max(before, behind), zero);
            }
            let distance = sixteen_distances(s, gaps, [zero; 3]);
            let bound = s.read(&self.buffers.bound);
            let mut queries = !s.less(bound, distance) & ALL_QUERIES;
            let tie = s.equal(distance, bound);
            if tie != 0 {
                let bound_number = s.read(&self.buffers.bound_number);
                queries &= !(tie & s.less(bound_number, s.splat(boxes.first[child])));
            }
            while queries != 0 {
                let query = queries.trailing_zeros() as usize % LEAF;
                queries &= queries - 1;
                self.take_within_bound(s, leaf, query, group.leaf.point(query));
                if self.buffers.len[query] > FULL {
                    self.empty(s);
                    self.tighten(s, group.seats);
                }
            }
        }
        self.empty(s);
    }

    /// Adds a leaf's points within a query's bound to its buffer.
    #[inline(always)]
    fn take_within_bound(&mut self, s: L, leaf: &Leaf, query: usize, at: [f32; 3]) {
        let buffers = &mut *self.buffers;
        let bound = s.splat(buffers.bound[query / LANES][query % LANES]);
        let at = [s.splat(at[0]), s.splat(at[1]), s.splat(at[2])];
        let distance = sixteen_distances(s, read3(s, leaf), at);
        let taken = !s.less(bound, distance) & ALL_QUERIES;
        let len = buffers.len[query];
        debug_assert!(len + LEAF + LANES <= CAPACITY);
        // SAFETY: a buffer holds at most FULL numbers before a leaf, and has room for LEAF + LANES beyond FULL.
        unsafe {
            let distances = buffers.distance[query].as_mut_ptr().add(len);
            let numbers = buffers.number[query].as_mut_ptr().add(len);
            let both = [distance, s.read(&leaf.number)];
            buffers.len[query] = len + s.store_chosen([distances, numbers], both, taken);
        }
    }

    /// Sorts the buffers into the lists.
    #[inline(always)]
    fn empty(&mut self, s: L) {
        let none = s.keys(s.splat(0.0), s.splat(0.0))[0];
        for part in 0..L::PARTS {
            let queries = L::QUERIES[part];
            let lengths = queries.iter().map(|&query| self.buffers.len[query]);
            let longest = lengths.fold(0, usize::max);
            for start in (0..longest).step_by(LEAF) {
                let mut keys: Columns<L> = [none; LEAF];
                for half in 0..2 {
                    let at = start + half * LANES;
                    let zero = s.simd().splat(0.0);
                    let mut rows = [(zero, zero); LANES];
                    for (row, &query) in rows.iter_mut().zip(queries) {
                        *row = self.buffered(s.simd(), query, at);
                    }
                    keys[half * LANES..][..LANES].copy_from_slice(&s.turn(&rows));
                }
                sort(s, &mut keys);
                self.best.absorb(s, part, keys);
            }
        }
        self.buffers.len = [0; LEAF];
    }

    /// Eight distances and numbers of a query's buffer from `at` on; past its end they are farther than anything.
    #[inline(always)]
    fn buffered(&self, s: L::S, query: usize, at: usize) -> (<L::S as Simd>::V, <L::S as Simd>::V) {
        const SEATS: [f32; LANES] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        debug_assert!(at + LANES <= CAPACITY);
        // SAFETY: `at` is at most 8 above the length of a buffer, which is at most FULL + LEAF = CAPACITY - LANES, and
        // both are multiples of 8 or below.
        let (distance, number) = unsafe {
            (
                s.load(self.buffers.distance[query].as_ptr().add(at)),
                s.load(self.buffers.number[query].as_ptr().add(at)),
            )
        };
        let left = s.splat(self.buffers.len[query] as f32 - at as f32);
        let there = s.less(s.vector(SEATS), left);
        (s.select(there, distance, s.splat(f32::MAX)), number)
    }

    #[inline(always)]
    fn write(&mut self, s: L, group: Group<'_>, lists: &Lists) {
        for part in 0..L::PARTS {
            for start in (0..self.k).step_by(LANES) {
                let ranks = self.best.ranks(s, part, start / LEAF, start / LANES % 2);
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

/// Sorts candidates by their distance: what is near tightens bounds for what comes later. Up to [`COUNTED`] of them by counting,
/// without a branch, and but for the lowest bits of a distance; any order gives the same lists.
#[inline(always)]
fn sort_candidates(candidates: &mut [u64]) {
    const COUNTED: usize = 128;
    const WIDTH: usize = 16;
    let len = candidates.len();
    if len > COUNTED {
        return candidates.sort_unstable();
    }
    let (mut keys, mut copy) = ([u32::MAX; COUNTED], [0; COUNTED]);
    copy[..len].copy_from_slice(candidates);
    for i in 0..len {
        keys[i] = (copy[i] >> 32) as u32 & !(COUNTED as u32 - 1) | i as u32;
    }
    for (some, copy) in keys
        .as_chunks::<WIDTH>()
        .0
        .iter()
        .zip(copy[..len].chunks(WIDTH))
    {
        let mut places = [0; WIDTH];
        for &key in &keys[..len] {
            for lane in 0..WIDTH {
                places[lane] += u32::from(some[lane] > key);
            }
        }
        for (candidate, place) in copy.iter().zip(places) {
            candidates[place as usize] = *candidate;
        }
    }
}
