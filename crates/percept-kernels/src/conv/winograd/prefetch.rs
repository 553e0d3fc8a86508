//! Cache lines fetched a few at a time while the multiplications run, which leave the memory idle: this is worth
//! 10 to 20 % of a layer, because the transforms then never wait.

use crate::aligned::FLOATS_PER_LINE;
use crate::simd::{prefetch_read_l2, prefetch_write};

/// What the lines are fetched for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    /// To be read in the next block: into the second-level cache.
    ReadLater,
    /// To be written at the end of this block.
    Write,
}

/// Walks the same cache lines of plane after plane (channel after channel).
pub(super) struct Prefetcher {
    purpose: Purpose,
    base: *const f32,
    plane_stride: usize,
    planes_left: usize,
    /// Offsets into a plane.
    lines: Vec<usize>,
    next_line: usize,
    per_step: usize,
}

impl Prefetcher {
    /// Covers `planes` planes in `steps` steps; `rows` are offsets and lengths of the wanted rows from `base`.
    pub(super) fn new(
        purpose: Purpose,
        base: *const f32,
        plane_stride: usize,
        planes: usize,
        rows: impl Iterator<Item = (usize, usize)>,
        steps: usize,
    ) -> Self {
        let mut lines = Vec::with_capacity(64);
        for (start, len) in rows {
            lines.extend((start..start + len).step_by(FLOATS_PER_LINE));
            lines.push(start + len - 1);
        }
        let per_step = (lines.len() * planes).div_ceil(steps.max(1));
        Self {
            purpose,
            base,
            plane_stride,
            planes_left: planes,
            lines,
            next_line: 0,
            per_step,
        }
    }

    /// Fetches the next few lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        if self.planes_left == 0 {
            return;
        }
        let end = self.lines.len().min(self.next_line + self.per_step);
        for &line in &self.lines[self.next_line..end] {
            // An address is formed, nothing is read: wrapping arithmetic is enough.
            let address = self.base.wrapping_add(line);
            match self.purpose {
                Purpose::ReadLater => prefetch_read_l2(address),
                Purpose::Write => prefetch_write(address.cast_mut()),
            }
        }
        self.next_line = end;
        if end == self.lines.len() {
            self.next_line = 0;
            self.base = self.base.wrapping_add(self.plane_stride);
            self.planes_left -= 1;
        }
    }
}
