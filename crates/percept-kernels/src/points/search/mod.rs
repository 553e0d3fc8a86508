//! Exact nearest neighbours: the same lists, to the bit, on any number of threads and any instruction set.
//!
//! Distances are sums of squares of differences, each step rounded in f32. A difference of near numbers is exact however
//! far they are from the origin, so a cloud at 10^6 m is searched as well as one around 0. A list is sorted by distance;
//! where distances are equal, the smaller number comes first and counts as nearer.

mod columns;
mod group;
mod lanes;
mod one;
#[cfg(test)]
mod tests;
mod walk;

pub use columns::MAX_NEIGHBOURS;

use self::group::{Group, GroupSearch};
#[cfg(target_arch = "x86_64")]
use self::lanes::Sixteens;
use self::lanes::{Lanes, Pairs};
use super::order::FAN;
use super::tree::PointTree;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd, prefetch_write};

/// Leaves of queries that a thread takes at a time.
const LEAVES_PER_BLOCK: usize = 64;

/// How far neighbours are: squared, in f32.
#[inline(always)]
fn squared_distance<S: Simd>(s: S, a: [S::V; 3], b: [S::V; 3]) -> S::V {
    // Without fused multiply-adds: the bits are those of `one::squared_distance`, on every instruction set.
    let [x, y, z] = [s.sub(a[0], b[0]), s.sub(a[1], b[1]), s.sub(a[2], b[2])];
    s.add(s.add(s.mul(x, x), s.mul(y, y)), s.mul(z, z))
}

/// The same for sixteen at a time.
#[inline(always)]
fn sixteen_distances<L: Lanes>(s: L, a: [L::Floats; 3], b: [L::Floats; 3]) -> L::Floats {
    let [x, y, z] = [s.sub(a[0], b[0]), s.sub(a[1], b[1]), s.sub(a[2], b[2])];
    s.add(s.add(s.mul(x, x), s.mul(y, y)), s.mul(z, z))
}

impl PointTree {
    /// How long lists are when `k` neighbours are asked for: a tree of fewer points has fewer.
    pub fn list_len(&self, k: usize) -> usize {
        k.min(self.len())
    }

    /// The `k` nearest points to each point of the tree (itself among them), nearest first.
    ///
    /// `index` and, where wanted, `distance` (squared) hold [`PointTree::lists`] lists of [`PointTree::list_len`] numbers,
    /// in the tree's numbering. At most [`MAX_NEIGHBOURS`] can be asked for.
    pub fn neighbours(&self, cpu: &Cpu, k: usize, index: &mut [i32], distance: Option<&mut [f32]>) {
        search(cpu, self, self, k, index, distance, true);
    }

    /// The `k` nearest points of this tree to each point of another one, nearest first: [`PointTree::lists`] lists of
    /// the other one, with numbers of this one.
    pub fn neighbours_of(
        &self,
        cpu: &Cpu,
        queries: &PointTree,
        k: usize,
        index: &mut [i32],
        distance: Option<&mut [f32]>,
    ) {
        search(cpu, self, queries, k, index, distance, false);
    }

    /// Numbers and squared distances of the `k` points nearest to a place, nearest first. For single questions.
    pub fn nearest(&self, point: [f32; 3], k: usize) -> Vec<(u32, f32)> {
        let swap = |key| {
            let (distance, number) = one::parts(key);
            (number, distance)
        };
        one::nearest(self, point, k).into_iter().map(swap).collect()
    }

    /// A leaf near a place: at every height the box that is nearest.
    #[inline(always)]
    fn leaf_near(&self, point: [f32; 3]) -> usize {
        let mut node = 0;
        for boxes in self.boxes.iter().rev() {
            let distances = one::distances_to_boxes(point, &boxes[node]);
            let mut child = 0;
            for other in 1..FAN {
                if distances[other] < distances[child] {
                    child = other;
                }
            }
            node = node * FAN + child;
        }
        node
    }
}

fn search(
    cpu: &Cpu,
    tree: &PointTree,
    queries: &PointTree,
    k: usize,
    index: &mut [i32],
    distance: Option<&mut [f32]>,
    own: bool,
) {
    assert!(
        k <= MAX_NEIGHBOURS,
        "{k} neighbours: at most {MAX_NEIGHBOURS} are supported"
    );
    let k = tree.list_len(k);
    assert_eq!(index.len(), queries.lists() * k, "length of the indices");
    if let Some(distance) = &distance {
        assert_eq!(distance.len(), index.len(), "length of the distances");
    }
    if k == 0 {
        return;
    }
    if queries.lists() > queries.len() {
        index.fill(-1);
    }
    let lists = Lists {
        index: SharedMut::new(index),
        distance: distance.map(SharedMut::new),
        k,
    };
    let leaves = queries.leaves.len();
    cpu.parallel(leaves.div_ceil(LEAVES_PER_BLOCK), &|block, _| {
        let start = block * LEAVES_PER_BLOCK;
        cpu.isa().run_widened(SearchLeaves {
            tree,
            queries,
            leaves: start..leaves.min(start + LEAVES_PER_BLOCK),
            own,
            lists: &lists,
        });
    });
}

/// The lists of all queries. Each query has one of its own, at its number.
struct Lists<'a> {
    index: SharedMut<'a, i32>,
    distance: Option<SharedMut<'a, f32>>,
    k: usize,
}

impl Lists<'_> {
    #[inline(always)]
    fn prefetch(&self, query: u32) {
        prefetch_write(
            self.index
                .as_mut_ptr()
                .wrapping_add(query as usize * self.k)
                .cast(),
        );
    }

    /// Writes ranks `start` to `start + 8` of a query, as far as the list goes.
    #[inline(always)]
    fn write<S: Simd>(&self, s: S, query: u32, start: usize, distance: S::V, number: S::V) {
        let (at, len) = (query as usize * self.k + start, (self.k - start).min(LANES));
        assert!(at + len <= self.index.len());
        // SAFETY: inside the lists, and numbers of queries are unique, so no other thread writes here. Numbers travel as
        // the bits of floats.
        unsafe { s.store_first(self.index.as_mut_ptr().add(at).cast(), len, number) };
        if let Some(all) = &self.distance {
            // SAFETY: as long as the indices.
            unsafe { s.store_first(all.as_mut_ptr().add(at), len, distance) };
        }
    }

    /// Writes a query's whole list.
    fn write_keys(&self, query: u32, keys: &[u64]) {
        let range = query as usize * self.k..(query as usize + 1) * self.k;
        // SAFETY: as in `write`.
        let index = unsafe { self.index.slice(range.clone()) };
        for (index, &key) in index.iter_mut().zip(keys) {
            *index = one::parts(key).1.cast_signed();
        }
        if let Some(all) = &self.distance {
            // SAFETY: as in `write`.
            let distance = unsafe { all.slice(range) };
            for (distance, &key) in distance.iter_mut().zip(keys) {
                *distance = one::parts(key).0;
            }
        }
    }
}

/// The queries of a run of leaves.
struct SearchLeaves<'a> {
    tree: &'a PointTree,
    queries: &'a PointTree,
    leaves: std::ops::Range<usize>,
    /// Whether the queries are the tree's own points.
    own: bool,
    lists: &'a Lists<'a>,
}

impl Kernel for SearchLeaves<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = s.wide() {
            return self.search(Sixteens::new(wide));
        }
        self.search(Pairs(s));
    }
}

impl SearchLeaves<'_> {
    #[inline(always)]
    fn search<L: Lanes>(self, s: L) {
        let mut search = GroupSearch::new(s, self.lists.k);
        // The last place where a whole leaf of points coincides, and its list.
        let mut pile: Option<([f32; 3], Vec<u64>)> = None;
        for leaf in self.leaves {
            let group = Group::of(self.queries, leaf);
            if group.low == group.high {
                // All its points have the same list, and so has the next leaf of such a pile.
                if pile.as_ref().is_none_or(|(place, _)| *place != group.low) {
                    let keys = one::nearest(self.tree, group.low, self.lists.k);
                    pile = Some((group.low, keys));
                }
                if let Some((_, keys)) = &pile {
                    for seat in 0..group.seats {
                        self.lists.write_keys(group.leaf.number(seat), keys);
                    }
                }
                continue;
            }
            let near = match self.own {
                true => leaf,
                false => self.tree.leaf_near(group.middle()),
            };
            search.run(s, self.tree, group, near, self.lists);
        }
    }
}
