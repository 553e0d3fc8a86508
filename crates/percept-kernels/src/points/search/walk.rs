//! Which leaves a group of queries has to look into: a walk from the top, height by height.
//!
//! The nodes of a height do not wait for each other, and children are noted without a branch on what is found.

use super::super::order::FAN;
use super::super::tree::{Boxes, PointTree};
use super::group::Group;
use super::squared_distance;
use crate::simd::{LANES, SET_LANES, Simd};

/// Leaves that are looked into before the others.
pub(super) const FIRST_LEAVES: usize = 6;
/// The nearest leaves are chosen among so many: the nearest one of each column of a table that all stand in.
const COLUMNS: usize = 16;
/// Places of that table. The lowest bits of a distance give way to them.
const PLACES: u32 = 128 * COLUMNS as u32;

/// The leaves that a walk found, and its working memory.
#[derive(Default)]
pub(super) struct Walk {
    nodes: Vec<u32>,
    children: Vec<u32>,
    found: usize,
    leaves: Vec<u32>,
    /// The smallest squared distance of each leaf's box from the box of the queries.
    gaps: Vec<f32>,
    /// And from the middle of the queries.
    away: Vec<f32>,
}

impl Walk {
    /// Finds all leaves that may hold something within `bound` (distance and number) of the group's box, but for those
    /// that are done.
    #[inline(always)]
    pub(super) fn find<S: Simd>(
        &mut self,
        s: S,
        tree: &PointTree,
        group: Group<'_>,
        bound: (f32, f32),
        done: &[u32],
    ) {
        let (low, high) = (splat3(s, group.low), splat3(s, group.high));
        let middle = splat3(s, group.middle());
        let bound = (s.splat(bound.0), s.splat(bound.1));
        room(&mut self.nodes, 0)[0] = 0;
        let mut count = 1;
        for boxes in tree.boxes[1..].iter().rev() {
            let mut children = 0;
            for &node in &self.nodes[..count] {
                let boxes = &boxes[node as usize];
                let distance = distances_to_boxes(s, boxes, low, high);
                let found = within(s, distance, s.read(&boxes.first), bound);
                *room(&mut self.children, children) = numbers(node * FAN as u32, found);
                children += found.count_ones() as usize;
            }
            std::mem::swap(&mut self.nodes, &mut self.children);
            count = children;
        }
        self.found = 0;
        for &node in &self.nodes[..count] {
            let boxes = &tree.boxes[0][node as usize];
            let distance = distances_to_boxes(s, boxes, low, high);
            let mut found = within(s, distance, s.read(&boxes.first), bound);
            for &leaf in done {
                if leaf / FAN as u32 == node {
                    found &= !(1 << (leaf % FAN as u32));
                }
            }
            *room(&mut self.leaves, self.found) = numbers(node * FAN as u32, found);
            s.write(
                room(&mut self.gaps, self.found),
                s.compress(distance, found),
            );
            let away = distances_to_boxes(s, boxes, middle, middle);
            s.write(room(&mut self.away, self.found), s.compress(away, found));
            self.found += found.count_ones() as usize;
        }
    }

    /// Takes out leaves that are near the middle of the queries: what is near makes bounds tight. Any choice gives the same
    /// lists.
    #[inline(always)]
    pub(super) fn take_nearest<'a>(&mut self, into: &'a mut [u32; FIRST_LEAVES]) -> &'a [u32] {
        // Past the end nothing is near.
        for past in [0, LANES] {
            *room(&mut self.away, self.found + past) = [f32::INFINITY; LANES];
        }
        let mut nearest = [u32::MAX; COLUMNS];
        let rows = self.away[..self.found.next_multiple_of(COLUMNS)].as_chunks::<COLUMNS>();
        for (distances, start) in rows.0.iter().zip((0..PLACES).step_by(COLUMNS)) {
            for column in 0..COLUMNS {
                let place = start + column as u32;
                let key = distances[column].to_bits() & !(PLACES - 1) | place;
                nearest[column] = nearest[column].min(key);
            }
        }
        let mut ranks = [0; COLUMNS];
        for other in nearest {
            for column in 0..COLUMNS {
                ranks[column] += u32::from(other < nearest[column]);
            }
        }
        let mut sorted = [0; COLUMNS];
        for (key, rank) in nearest.into_iter().zip(ranks) {
            sorted[rank as usize % COLUMNS] = key;
        }
        let taken = self.found.min(FIRST_LEAVES);
        for (into, key) in into[..taken].iter_mut().zip(sorted) {
            let place = (key % PLACES) as usize;
            *into = self.leaves[place];
            self.gaps[place] = f32::INFINITY;
        }
        &into[..taken]
    }

    /// The leaves that are left, without those that are farther from the queries' box than a bound.
    #[inline(always)]
    pub(super) fn rest(&mut self, bound: f32) -> &[u32] {
        let mut left = 0;
        let (leaves, gaps) = (&mut self.leaves[..self.found], &self.gaps[..self.found]);
        for at in 0..leaves.len() {
            leaves[left] = leaves[at];
            left += usize::from(gaps[at] <= bound);
        }
        &leaves[..left]
    }
}

/// Eight places of a list from `at` on, which grows where they are not there yet.
#[inline(always)]
fn room<T: Copy + Default>(list: &mut Vec<T>, at: usize) -> &mut [T; LANES] {
    if list.len() < at + LANES {
        list.resize(2 * (at + LANES), T::default());
    }
    list[at..].first_chunk_mut().expect("the list is longer")
}

/// `first` and the number of each set bit, one after the other; what follows is without meaning.
#[inline(always)]
pub(super) fn numbers(first: u32, bits: u32) -> [u32; LANES] {
    let lanes = SET_LANES[bits as usize % SET_LANES.len()].to_le_bytes();
    let mut numbers = [first; LANES];
    for lane in 0..LANES {
        numbers[lane] += u32::from(lanes[lane]);
    }
    numbers
}

#[inline(always)]
fn splat3<S: Simd>(s: S, [x, y, z]: [f32; 3]) -> [S::V; 3] {
    [s.splat(x), s.splat(y), s.splat(z)]
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

/// The lanes where (distance, number) is at most the bound.
#[inline(always)]
fn within<S: Simd>(s: S, distance: S::V, number: S::V, (bound, bound_number): (S::V, S::V)) -> u32 {
    /// The bits of a whole vector.
    const ALL_LANES: u32 = (1 << LANES) - 1;
    let at_most = !s.bits(s.less(bound, distance)) & ALL_LANES;
    let tie = s.bits(s.equal(distance, bound));
    if tie == 0 {
        return at_most;
    }
    let later = s.bits(s.less(bound_number, number));
    at_most & !(tie & later)
}
