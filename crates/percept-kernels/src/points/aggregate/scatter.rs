//! Adding to rows that neighbours name, in parallel, in a fixed order, without holding a row for each neighbour.
//!
//! Points are cut into chunks. A chunk adds to *slots* of its own, one for each row that its points name: in the tree's
//! order these are few more than its points. Afterwards the slots of a row are summed, chunk by chunk.

use std::ops::Range;

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::points::InverseLists;
use crate::rows::for_each_block;
use crate::simd::Simd;

/// Most chunks: enough for the threads, and few enough that the sums of weights, one for each chunk, stay small.
const CHUNKS: usize = 32;
/// Fewest points of a chunk.
const CHUNK: usize = 96;

/// How points are cut into chunks: by their number only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    points: usize,
    each: usize,
}

impl Chunks {
    pub(super) fn new(points: usize) -> Chunks {
        let each = points.div_ceil(CHUNKS).max(CHUNK).next_multiple_of(CHUNK);
        Chunks { points, each }
    }

    pub(super) fn count(&self) -> usize {
        self.points.div_ceil(self.each)
    }

    pub(super) fn range(&self, chunk: usize) -> Range<usize> {
        chunk * self.each..self.points.min((chunk + 1) * self.each)
    }
}

/// Which slot every listed neighbour adds to.
#[derive(Debug)]
pub(super) struct ScatterPlan {
    /// First slot of each chunk, and the number of all slots.
    starts: Vec<usize>,
    /// For each listed neighbour, the slot within its chunk.
    slots: Vec<u32>,
    /// For each row, its slots.
    rows: InverseLists,
}

impl ScatterPlan {
    /// The plan for lists of `k` neighbours, which exist.
    pub(super) fn new(cpu: &Cpu, chunks: Chunks, k: usize, neighbours: &[i32]) -> ScatterPlan {
        let mut slots = vec![0; neighbours.len()];
        let mut named: Vec<Vec<i32>> = vec![Vec::new(); chunks.count()];
        let (all_slots, all_named) = (SharedMut::new(&mut slots), SharedMut::new(&mut named));
        cpu.parallel(chunks.count(), &|chunk, _| {
            let range = chunks.range(chunk);
            let range = range.start * k..range.end * k;
            // SAFETY: chunks are disjoint.
            let (slots, named) = unsafe {
                (
                    all_slots.slice(range.clone()),
                    all_named.slice(chunk..chunk + 1),
                )
            };
            named[0] = number_rows(&neighbours[range], slots);
        });
        let mut starts = vec![0];
        for named in &named {
            starts.push(starts[starts.len() - 1] + named.len());
        }
        ScatterPlan {
            starts,
            slots,
            rows: InverseLists::new(chunks.points, &named.concat()),
        }
    }

    /// All slots.
    pub(super) fn len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// The slots of a chunk, among all.
    pub(super) fn of_chunk(&self, chunk: usize) -> Range<usize> {
        self.starts[chunk]..self.starts[chunk + 1]
    }

    /// Slots of listed neighbours, within their chunk.
    pub(super) fn slots(&self, listed: Range<usize>) -> &[u32] {
        &self.slots[listed]
    }

    /// Sums the slots of each row: from columns `columns` of slots of `width` numbers.
    pub(super) fn sum_rows(
        &self,
        cpu: &Cpu,
        width: usize,
        columns: Range<usize>,
        slots: &[f32],
        y: &mut [f32],
    ) {
        let len = columns.len();
        for_each_block(cpu, self.rows.rows(), 2 * len, len, y, |rows, y| {
            cpu.isa().run_widened(SumSlots {
                rows: &self.rows,
                first: rows.start,
                width,
                columns: columns.clone(),
                slots,
                y,
            });
        });
    }
}

struct SumSlots<'a> {
    rows: &'a InverseLists,
    first: usize,
    width: usize,
    columns: Range<usize>,
    slots: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for SumSlots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.columns.len();
        for (row, y) in self.y.chunks_exact_mut(len.max(1)).enumerate() {
            y.fill(0.0);
            for &slot in self.rows.places(self.first + row) {
                let slot = &self.slots[slot as usize * self.width..][self.columns.clone()];
                for i in 0..len {
                    y[i] += slot[i];
                }
            }
        }
    }
}

/// Numbers different rows in the order in which they are named first. Gives the rows.
fn number_rows(named: &[i32], slots: &mut [u32]) -> Vec<i32> {
    const FREE: u32 = u32::MAX;
    let mut rows: Vec<i32> = Vec::new();
    // Open addressing, at most half full.
    let len = (2 * named.len()).next_power_of_two();
    let mut table = vec![FREE; len];
    for (slot, &row) in slots.iter_mut().zip(named) {
        let hash = row.cast_unsigned().wrapping_mul(0x9E37_79B1) >> 7;
        let mut at = hash as usize & (len - 1);
        *slot = loop {
            match table[at] {
                FREE => {
                    table[at] = rows.len() as u32;
                    rows.push(row);
                    break table[at];
                }
                taken if rows[taken as usize] == row => break taken,
                _ => at = (at + 1) & (len - 1),
            }
        };
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn every_addition_arrives_once() {
        let (points, k) = (1000, 3);
        let neighbours: Vec<i32> = (0..points * k).map(|at| (at * at % 997) as i32).collect();
        let mut expected = vec![0.0; points * 2];
        for (at, &row) in neighbours.iter().enumerate() {
            expected[row as usize * 2] += at as f64;
            expected[row as usize * 2 + 1] += 1.0;
        }
        let chunks = Chunks::new(points);
        assert!(chunks.count() > 1);
        check(&expected, 0.0, |cpu, y| {
            let plan = ScatterPlan::new(cpu, chunks, k, &neighbours);
            let mut slots = vec![0.0; plan.len() * 3];
            for chunk in 0..chunks.count() {
                let range = chunks.range(chunk);
                let listed = range.start * k..range.end * k;
                for (at, &slot) in listed.clone().zip(plan.slots(listed)) {
                    let slot = (plan.of_chunk(chunk).start + slot as usize) * 3;
                    slots[slot + 1] += at as f32;
                    slots[slot + 2] += 1.0;
                }
            }
            plan.sum_rows(cpu, 3, 1..3, &slots, y);
        });
    }
}
