//! The rows nearest to queries, found exactly: squared Euclidean distances to every row, the smallest of each query.
//!
//! Differences are squared as they are: with |q|² + |d|² - 2 q·d, which is one multiplication less, near rows would lose the
//! digits that tell them apart. A block of rows stays in the cache while all queries look at it.

mod byte_rows;
mod through_bytes;

use std::sync::{Mutex, PoisonError};

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

pub use byte_rows::ByteRows;
pub use through_bytes::nearest_through_bytes;

/// A row that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Near {
    /// Its number, over all segments.
    pub row: usize,
    /// The squared distance to the query.
    pub squared: f32,
}

/// Numbers of a block of rows: half of a second-level cache.
const BLOCK_LEN: usize = 1 << 16;
/// Queries that are compared with a row while it is in registers.
const QUERIES: usize = 4;
/// Rows that are compared at once.
const ROWS: usize = 2;

/// The `count` rows nearest to each of `queries`, nearest first; of equally near ones the first. Rows stand in segments, one
/// behind the other, all of `width` numbers; those that `keep` refuses, and rows at no finite distance, are never found.
pub fn nearest(
    cpu: &Cpu,
    width: usize,
    queries: &[f32],
    segments: &[&[f32]],
    count: usize,
    keep: impl Fn(usize) -> bool + Sync,
) -> Vec<Vec<Near>> {
    assert!(width > 0, "rows of no numbers are all alike");
    let lengths = segments.iter().map(|rows| rows.len());
    for length in lengths.chain([queries.len()]) {
        assert!(
            length.is_multiple_of(width),
            "{length} numbers are not rows of {width}"
        );
    }
    let each = (BLOCK_LEN / width).max(1) * width;
    let mut blocks: Vec<(usize, &[f32])> = Vec::new();
    let mut first = 0;
    for segment in segments {
        for block in segment.chunks(each) {
            blocks.push((first, block));
            first += block.len() / width;
        }
    }
    let number = queries.len() / width;
    let found: Vec<Mutex<Vec<Best>>> = blocks.iter().map(|_| Mutex::default()).collect();
    cpu.parallel(blocks.len(), &|block, scratch| {
        let (first, rows) = blocks[block];
        let [distances] = scratch.floats([QUERIES * rows.len() / width]);
        let mut best = vec![Best::new(count); number];
        for (group, best) in queries
            .chunks(QUERIES * width)
            .zip(best.chunks_mut(QUERIES))
        {
            cpu.isa().run(Distances {
                width,
                queries: group,
                rows,
                distances: &mut *distances,
            });
            let each = rows.len() / width;
            for (best, distances) in best.iter_mut().zip(distances.chunks_exact(each)) {
                best.look(first, distances, &keep);
            }
        }
        *found[block].lock().unwrap_or_else(PoisonError::into_inner) = best;
    });
    let mut all = vec![Best::new(count); number];
    for block in found {
        let block = block.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (all, block) in all.iter_mut().zip(block) {
            block.rows.into_iter().for_each(|near| all.add(near));
        }
    }
    all.into_iter().map(|best| best.rows).collect()
}

/// The nearest rows so far, ascending.
#[derive(Clone, Debug)]
struct Best {
    count: usize,
    rows: Vec<Near>,
}

impl Default for Best {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Best {
    fn new(count: usize) -> Self {
        Self {
            count,
            rows: Vec::new(),
        }
    }

    /// What a row must be nearer than.
    fn bound(&self) -> f32 {
        match self.rows.last() {
            Some(last) if self.rows.len() >= self.count => last.squared,
            _ if self.count == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    fn look(&mut self, first: usize, distances: &[f32], keep: impl Fn(usize) -> bool) {
        let mut bound = self.bound();
        for (row, &squared) in distances.iter().enumerate() {
            if squared < bound && keep(first + row) {
                self.add(Near {
                    row: first + row,
                    squared,
                });
                bound = self.bound();
            }
        }
    }

    /// Rows come in ascending order, so that an equally near one goes behind.
    fn add(&mut self, near: Near) {
        if near.squared < self.bound() {
            let place = self
                .rows
                .partition_point(|known| known.squared <= near.squared);
            self.rows.insert(place, near);
            self.rows.truncate(self.count);
        }
    }
}

/// distances[q][r] of up to [`QUERIES`] queries.
struct Distances<'a> {
    width: usize,
    queries: &'a [f32],
    rows: &'a [f32],
    distances: &'a mut [f32],
}

impl Kernel for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let each = self.rows.len() / self.width;
        let queries: Vec<&[f32]> = self.queries.chunks_exact(self.width).collect();
        let mut pairs = self.rows.chunks_exact(ROWS * self.width);
        for (pair, rows) in pairs.by_ref().enumerate() {
            let (a, b) = rows.split_at(self.width);
            let at = ROWS * pair;
            if let &[q0, q1, q2, q3] = queries.as_slice() {
                let found = tile(s, [q0, q1, q2, q3], [a, b]);
                for (query, found) in found.iter().enumerate() {
                    self.distances[query * each + at..][..ROWS].copy_from_slice(found);
                }
            } else {
                for (query, q) in queries.iter().enumerate() {
                    let [found] = tile(s, [q], [a, b]);
                    self.distances[query * each + at..][..ROWS].copy_from_slice(&found);
                }
            }
        }
        let last = pairs.remainder();
        if !last.is_empty() {
            for (query, q) in queries.iter().enumerate() {
                let [[found]] = tile(s, [q], [last]);
                self.distances[query * each + each - 1] = found;
            }
        }
    }
}

/// Each pair's squared distance, summed in two halves that depend on the width only.
#[inline(always)]
fn tile<S: Simd, const Q: usize, const R: usize>(
    s: S,
    queries: [&[f32]; Q],
    rows: [&[f32]; R],
) -> [[f32; R]; Q] {
    let width = queries[0].len();
    let mut sums = [[s.splat(0.0); R]; Q];
    let mut at = 0;
    while at < width {
        let end = width.min(at + LANES);
        let row = rows.map(|row| s.read(&row[at..end]));
        for (query, sums) in queries.iter().zip(&mut sums) {
            let query = s.read(&query[at..end]);
            for (row, sum) in row.iter().zip(sums) {
                let apart = s.sub(query, *row);
                *sum = s.mul_add(apart, apart, *sum);
            }
        }
        at = end;
    }
    sums.map(|sums| sums.map(|sum| s.sum(sum)))
}

/// The same, slow and readable.
pub mod reference {
    /// All rows by their squared distance to a query, nearest first, then by number.
    pub fn ranking(query: &[f32], rows: &[f32]) -> Vec<(usize, f64)> {
        let mut ranking: Vec<(usize, f64)> = rows
            .chunks_exact(query.len())
            .map(|row| {
                let apart = row.iter().zip(query);
                apart
                    .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
                    .sum()
            })
            .enumerate()
            .collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        ranking
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Isa;
    use crate::testing::numbers;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn the_nearest_are_found_on_every_instruction_set_and_thread_count(
            width in 1usize..70, rows in 0usize..1300, cut in 0usize..1300, queries in 0usize..7, count in 0usize..25,
        ) {
            let database = numbers(1, rows * width);
            let asked = numbers(2, queries * width);
            let (front, back) = database.split_at(cut.min(rows) * width);
            for isa in Isa::available() {
                let search = |threads: usize| {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    nearest(&cpu, width, &asked, &[front, back], count, |_| true)
                };
                let found = search(1);
                prop_assert_eq!(&found, &search(3));
                prop_assert_eq!(found.len(), queries);
                for (query, found) in asked.chunks(width).zip(found) {
                    let ranking = reference::ranking(query, &database);
                    prop_assert_eq!(found.len(), count.min(rows));
                    for (near, (_, exact)) in found.iter().zip(&ranking) {
                        let own = reference::ranking(query, &database[near.row * width..][..width])[0].1;
                        prop_assert!((f64::from(near.squared) - own).abs() <= 1e-4 * own.max(1e-3));
                        prop_assert!((own - exact).abs() <= 1e-5 * exact.max(1e-3));
                    }
                }
            }
        }
    }

    #[test]
    fn equal_rows_come_in_order_and_nan_never() {
        let cpu = Cpu::new(2).unwrap();
        let rows = [1.0, 1.0, f32::NAN, 1.0, 0.0, 0.0, 1.0, 1.0];
        let found = |keep: fn(usize) -> bool| -> Vec<usize> {
            let found = nearest(&cpu, 2, &[1.0, 1.0], &[&rows], 9, keep);
            found[0].iter().map(|near| near.row).collect()
        };
        assert_eq!(found(|_| true), [0, 3, 2]);
        assert_eq!(found(|row| row != 0), [3, 2]);
    }
}
