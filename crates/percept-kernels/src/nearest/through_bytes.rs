//! The rows nearest to queries, found exactly by looking at bytes first: a quarter of the memory is read.
//!
//! A row stands for itself up to its *error*, the length of what rounding took away, which is known exactly. So a distance
//! through bytes is off by no more than the errors of row and query, and a row that is further away than that, from where the
//! `count`-th nearest is for sure, cannot be among the nearest. What remains, a few rows in ten thousand, is compared as it is.

use std::sync::{Mutex, PoisonError};

use super::byte_rows::{ByteRows, RUN, Rounded, TASK_ROWS};
use super::{Best, Near, tile};
use crate::cpu::Cpu;
use crate::int8::{ByteLinear, ByteWeights, ROW_OUTPUTS, ROW_TILE};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Rows whose largest error stands for all of them.
const BLOCK_ROWS: usize = 16 * ROW_TILE;
/// Queries from which on products of integers are faster than those of floats.
const MANY_QUERIES: usize = 4;
/// What rounding in the arithmetic of a distance may amount to, of the two squared lengths.
const SLACK: f32 = 4e-5;

/// The same rows as [`nearest`](super::nearest) finds, with the same distances. `through` holds the rows of all segments, in order.
pub fn nearest_through_bytes(
    cpu: &Cpu,
    through: &ByteRows,
    queries: &[f32],
    segments: &[&[f32]],
    count: usize,
    keep: impl Fn(usize) -> bool + Sync,
) -> Vec<Vec<Near>> {
    let width = through.width;
    let rows: usize = segments.iter().map(|segment| segment.len() / width).sum();
    assert_eq!(rows, through.len(), "the same rows");
    assert!(queries.len().is_multiple_of(width), "whole queries");
    let asked = Asked::new(cpu, through, queries);
    let tasks: Vec<usize> = (0..rows).step_by(TASK_ROWS).collect();
    let found: Vec<Mutex<Vec<Hopeful>>> = tasks.iter().map(|_| Mutex::default()).collect();
    cpu.parallel(tasks.len(), &|task, _| {
        let first = tasks[task];
        let last = rows.min(first + TASK_ROWS);
        let mut hopeful = vec![Hopeful::new(count); asked.number()];
        for first in (first..last).step_by(BLOCK_ROWS) {
            let block = Block::new(through, first, last.min(first + BLOCK_ROWS));
            asked.look(cpu, &block, &keep, &mut hopeful);
        }
        *found[task].lock().unwrap_or_else(PoisonError::into_inner) = hopeful;
    });
    let mut all = vec![Hopeful::new(count); asked.number()];
    for task in found {
        let task = task.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (all, task) in all.iter_mut().zip(task) {
            all.join(task);
        }
    }
    let rows = RowsOf::new(width, segments);
    let answers: Vec<Mutex<Vec<Near>>> = all.iter().map(|_| Mutex::default()).collect();
    cpu.parallel(all.len(), &|query, _| {
        let asked = &queries[query * width..][..width];
        let mut best = Best::new(count);
        for row in all[query].rows() {
            let squared = cpu.isa().run(Exactly {
                query: asked,
                row: rows.row(row),
            });
            best.look(row, &[squared], |_| true);
        }
        *answers[query]
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = best.rows;
    });
    let answers = answers.into_iter();
    let answers = answers.map(|answer| answer.into_inner().unwrap_or_else(PoisonError::into_inner));
    answers.collect()
}

/// Rows in segments, by number.
struct RowsOf<'a> {
    width: usize,
    /// The number of each segment's first row.
    starts: Vec<usize>,
    segments: &'a [&'a [f32]],
}

impl<'a> RowsOf<'a> {
    fn new(width: usize, segments: &'a [&'a [f32]]) -> Self {
        let mut first = 0;
        let starts = segments.iter().map(|segment| {
            let start = first;
            first += segment.len() / width;
            start
        });
        Self {
            width,
            starts: starts.collect(),
            segments,
        }
    }

    fn row(&self, row: usize) -> &'a [f32] {
        let segment = self.starts.partition_point(|&start| start <= row) - 1;
        let within = row - self.starts[segment];
        &self.segments[segment][within * self.width..][..self.width]
    }
}

/// The distance as [`super::nearest`] computes it.
struct Exactly<'a> {
    query: &'a [f32],
    row: &'a [f32],
}

impl Kernel for Exactly<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let [[squared]] = tile(s, [self.query], [self.row]);
        squared
    }
}

/// Rows that may be among the nearest of a query.
#[derive(Clone, Debug)]
struct Hopeful {
    count: usize,
    /// The smallest distances that rows have at most, ascending; never more than `count`.
    sure: Vec<f32>,
    /// Rows with the distance that they have at least.
    rows: Vec<(usize, f32)>,
}

impl Hopeful {
    fn new(count: usize) -> Self {
        Self {
            count,
            sure: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// A row that is at least this far away is not among the nearest.
    fn bound(&self) -> f32 {
        match self.sure.last() {
            Some(&last) if self.sure.len() >= self.count => last,
            _ if self.count == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    fn add(&mut self, row: usize, at_least: f32, at_most: f32) {
        if at_least <= self.bound() {
            self.rows.push((row, at_least));
            self.sure_of(at_most);
        }
    }

    fn sure_of(&mut self, at_most: f32) {
        if at_most < self.bound() {
            let place = self.sure.partition_point(|&known| known <= at_most);
            self.sure.insert(place, at_most);
            self.sure.truncate(self.count);
        }
    }

    fn join(&mut self, other: Self) {
        other
            .sure
            .into_iter()
            .for_each(|at_most| self.sure_of(at_most));
        self.rows.extend(other.rows);
    }

    /// The rows that are left, ascending.
    fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let bound = self.bound();
        let near = self.rows.iter().filter(move |(_, least)| *least <= bound);
        near.map(|(row, _)| *row)
    }
}

/// Some rows that are looked at together.
struct Block<'a> {
    first: usize,
    stride: usize,
    bytes: &'a [i8],
    rounded: &'a [Rounded],
    /// The largest error.
    error: f32,
    /// The largest squared length.
    squared: f32,
}

impl<'a> Block<'a> {
    fn new(through: &'a ByteRows, first: usize, last: usize) -> Self {
        let rounded = &through.rounded[first..last];
        let most = |of: fn(&Rounded) -> f32| rounded.iter().map(of).fold(0.0, f32::max);
        Self {
            first,
            stride: through.stride,
            bytes: &through.bytes[first * through.stride..last * through.stride],
            rounded,
            error: most(|row| row.error),
            squared: most(|row| row.squared),
        }
    }
}

/// The queries, as rows are compared with them.
struct Asked {
    queries: Vec<Query>,
    /// All queries as bytes, where they are many.
    packed: Option<ByteLinear>,
}

struct Query {
    /// Filled up as rows are; nothing where the queries are packed.
    values: Vec<f32>,
    scale: f32,
    squared: f32,
    error: f32,
}

impl Asked {
    fn new(cpu: &Cpu, through: &ByteRows, queries: &[f32]) -> Self {
        let width = through.width;
        let number = queries.len() / width;
        let mut bytes = ByteRows::new(width);
        bytes.extend(cpu, queries);
        // A query that is not finite is far from everything, and its bytes are zeros.
        let packed = (number >= MANY_QUERIES).then(|| {
            let rows = bytes.bytes.chunks_exact(bytes.stride);
            let weights = ByteWeights {
                values: rows.flat_map(|row| &row[..width]).copied().collect(),
                scales: vec![1.0; number],
            };
            ByteLinear::pack(cpu, &weights, width, true)
        });
        let queries = queries.chunks_exact(width).zip(&bytes.rounded);
        let queries = queries.map(|(values, rounded)| match packed {
            Some(_) => Query {
                values: Vec::new(),
                scale: rounded.scale,
                squared: rounded.squared,
                error: rounded.error,
            },
            // Few queries are compared as they are.
            None => Query {
                values: {
                    let mut filled = values.to_vec();
                    filled.resize(through.stride, 0.0);
                    filled
                },
                scale: 1.0,
                squared: values.iter().map(|v| v * v).sum(),
                error: match rounded.error.is_finite() {
                    true => 0.0,
                    false => f32::INFINITY,
                },
            },
        });
        Self {
            queries: queries.collect(),
            packed,
        }
    }

    fn number(&self) -> usize {
        self.queries.len()
    }

    fn look(
        &self,
        cpu: &Cpu,
        block: &Block<'_>,
        keep: &(impl Fn(usize) -> bool + Sync),
        hopeful: &mut [Hopeful],
    ) {
        let Some(packed) = &self.packed else {
            for (query, hopeful) in self.queries.iter().zip(hopeful) {
                let mut dots = [0.0; BLOCK_ROWS];
                cpu.isa().run(FloatDots {
                    query: &query.values,
                    block,
                    dots: &mut dots,
                });
                let limit = query.limit(block, hopeful.bound());
                for (row, dot) in dots[..block.rounded.len()].iter().enumerate() {
                    query.judge(block, row, *dot, limit, keep, hopeful);
                }
            }
            return;
        };
        let groups = self.queries.chunks(ROW_OUTPUTS);
        let mut limits: Vec<Limits> = groups
            .zip(hopeful.chunks(ROW_OUTPUTS))
            .map(|(queries, hopeful)| Limits::new(queries, block, hopeful))
            .collect();
        let mut lifted = Vec::new();
        for row in (0..block.rounded.len()).step_by(ROW_TILE) {
            let last = block.rounded.len().min(row + ROW_TILE);
            let bytes = &block.bytes[row * block.stride..last * block.stride];
            let rows = &block.rounded[row..last];
            packed.sums(bytes, block.stride, &mut lifted, |column, sums| {
                let group = column / ROW_OUTPUTS;
                let is_any_near = cpu.isa().run(AnyNear {
                    sums,
                    rows,
                    limits: &limits[group],
                });
                if !is_any_near {
                    return;
                }
                let queries = &self.queries[column..self.number().min(column + ROW_OUTPUTS)];
                let hopeful = &mut hopeful[column..column + queries.len()];
                for (at, (query, hopeful)) in queries.iter().zip(hopeful.iter_mut()).enumerate() {
                    for within in 0..rows.len() {
                        let dot = sums[within * ROW_OUTPUTS + at] as f32;
                        let limit = limits[group].limit[at];
                        query.judge(block, row + within, dot, limit, keep, hopeful);
                    }
                }
                limits[group] = Limits::new(queries, block, hopeful);
            });
        }
    }
}

impl Query {
    /// The squared distance through bytes that no hopeful row of a block exceeds.
    fn limit(&self, block: &Block<'_>, bound: f32) -> f32 {
        let reach = bound + block.error + self.error;
        let limit = reach * reach + SLACK * (self.squared + block.squared);
        // Nothing is nearer than minus infinity.
        if reach < 0.0 {
            f32::NEG_INFINITY
        } else {
            limit
        }
    }

    fn judge(
        &self,
        block: &Block<'_>,
        row: usize,
        dot: f32,
        limit: f32,
        keep: &impl Fn(usize) -> bool,
        hopeful: &mut Hopeful,
    ) {
        let rounded = &block.rounded[row];
        let squared = self.squared + rounded.squared - 2.0 * self.scale * rounded.scale * dot;
        // Not `squared <= limit`: where both are infinite or no numbers, the row is looked at.
        if squared > limit || !keep(block.first + row) {
            return;
        }
        let slack = SLACK * (self.squared + rounded.squared);
        let error = rounded.error + self.error;
        let at_least = (squared - slack).max(0.0).sqrt() - error;
        let at_most = (squared + slack).max(0.0).sqrt() + error;
        // Of what is not finite nothing is known.
        match error.is_finite() {
            true => hopeful.add(block.first + row, at_least, at_most),
            false => hopeful.add(block.first + row, f32::NEG_INFINITY, f32::INFINITY),
        }
    }
}

/// What 16 queries need of a row, side by side; those that are missing find nothing.
struct Limits {
    squared: [f32; ROW_OUTPUTS],
    /// -2 times the scale.
    factor: [f32; ROW_OUTPUTS],
    limit: [f32; ROW_OUTPUTS],
}

impl Limits {
    fn new(queries: &[Query], block: &Block<'_>, hopeful: &[Hopeful]) -> Self {
        let mut limits = Self {
            squared: [0.0; ROW_OUTPUTS],
            factor: [0.0; ROW_OUTPUTS],
            limit: [f32::NEG_INFINITY; ROW_OUTPUTS],
        };
        for (at, (query, hopeful)) in queries.iter().zip(hopeful).enumerate() {
            limits.squared[at] = query.squared;
            limits.factor[at] = -2.0 * query.scale;
            limits.limit[at] = query.limit(block, hopeful.bound());
        }
        limits
    }
}

/// Whether a row of a tile is within the limit of a query.
struct AnyNear<'a> {
    sums: &'a [i32; ROW_TILE * ROW_OUTPUTS],
    rows: &'a [Rounded],
    limits: &'a Limits,
}

impl Kernel for AnyNear<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let mut most = s.splat(f32::NEG_INFINITY);
        for half in 0..ROW_OUTPUTS / LANES {
            let at = half * LANES;
            let squared = s.read(&self.limits.squared[at..][..LANES]);
            let factor = s.read(&self.limits.factor[at..][..LANES]);
            let limit = s.read(&self.limits.limit[at..][..LANES]);
            for (row, rounded) in self.rows.iter().enumerate() {
                let sums = &self.sums[row * ROW_OUTPUTS + at..][..LANES];
                // SAFETY: 8 integers.
                let dots = unsafe { s.load_integers(sums.as_ptr()) };
                let factor = s.mul(factor, s.splat(rounded.scale));
                let apart = s.mul_add(dots, factor, s.add(squared, s.splat(rounded.squared)));
                most = s.max(most, s.sub(limit, apart));
            }
        }
        // A distance that is no number is looked at.
        let most = s.max_lane(most);
        most.is_nan() || most >= 0.0
    }
}

/// The products of a query with the bytes of each row, times its scale not yet.
struct FloatDots<'a> {
    /// As long as a row with its filling.
    query: &'a [f32],
    block: &'a Block<'a>,
    dots: &'a mut [f32; BLOCK_ROWS],
}

impl Kernel for FloatDots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.block.bytes.chunks_exact(self.block.stride);
        let (query, _) = self.query.as_chunks::<RUN>();
        for (row, dot) in rows.zip(self.dots) {
            let mut sums = [s.splat(0.0); RUN / LANES];
            for (bytes, query) in row.as_chunks::<RUN>().0.iter().zip(query) {
                let (bytes, _) = bytes.as_chunks::<LANES>();
                for i in 0..RUN / LANES {
                    let query = s.read(&query[i * LANES..][..LANES]);
                    sums[i] = s.mul_add(s.widen_bytes(bytes[i]), query, sums[i]);
                }
            }
            let [a, b, c, d] = sums;
            *dot = s.sum(s.add(s.add(a, b), s.add(c, d)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::nearest;
    use super::*;
    use crate::Isa;
    use crate::testing::numbers;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn the_same_rows_are_found_as_without_bytes(
            width in 1usize..70, rows in 0usize..400, cut in 0usize..400, queries in 0usize..20, count in 0usize..25,
        ) {
            let database = numbers(1, rows * width);
            let asked = numbers(2, queries * width);
            let (front, back) = database.split_at(cut.min(rows) * width);
            for isa in Isa::available_for_bytes() {
                for threads in [1, 3] {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let mut through = ByteRows::new(width);
                    through.extend(&cpu, front);
                    through.extend(&cpu, back);
                    let keep = |row: usize| row % 7 != 3;
                    let expected = nearest(&cpu, width, &asked, &[front, back], count, keep);
                    let found = nearest_through_bytes(&cpu, &through, &asked, &[front, back], count, keep);
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn equal_rows_come_in_order_and_what_is_not_finite_does_no_harm() {
        let cpu = Cpu::new(2).unwrap();
        let mut rows = [0.25f32; 40];
        rows[6] = f32::NAN;
        rows[9] = f32::INFINITY;
        let mut through = ByteRows::new(4);
        through.extend(&cpu, &rows);
        for queries in [1, 5] {
            let asked = vec![0.25; 4 * queries];
            let found = nearest_through_bytes(&cpu, &through, &asked, &[&rows], 3, |_| true);
            let expected = nearest(&cpu, 4, &asked, &[&rows], 3, |_| true);
            assert_eq!(found, expected);
            let numbers: Vec<usize> = found[0].iter().map(|near| near.row).collect();
            assert_eq!(numbers, [0, 3, 4]);
        }
    }

    #[test]
    fn many_rows_leave_few_to_be_compared() {
        let (width, rows) = (64, 40_000);
        let cpu = Cpu::new(2).unwrap();
        let database = numbers(3, rows * width);
        let mut through = ByteRows::new(width);
        through.extend(&cpu, &database);
        for queries in [1, 6] {
            let asked = numbers(4, queries * width);
            let found = nearest_through_bytes(&cpu, &through, &asked, &[&database], 20, |_| true);
            assert_eq!(
                found,
                nearest(&cpu, width, &asked, &[&database], 20, |_| true)
            );
        }
    }
}
