//! Where a segment's outputs go, and what is done to them on the way.

use super::lanes::Lanes;
use super::transform::Sink;
use crate::activation::Activation;
use crate::simd::{LANES, Simd};

/// The outputs of a vector of tiles of one channel, or of its first ones.
pub(super) struct Target<L: Lanes> {
    pub(super) y: *mut f32,
    pub(super) residual: Option<*const f32>,
    pub(super) row_stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) bias: L::V,
    /// Smallest value: all that ReLU needs.
    pub(super) floor: L::V,
}

impl<L: Lanes> Target<L> {
    /// Adds, activates and stores the first `count` lanes.
    ///
    /// # Safety
    /// `offset + count` outputs are there.
    #[inline(always)]
    unsafe fn put(&self, s: L, offset: usize, count: usize, sum: L::V) {
        let mut value = s.add(sum, self.bias);
        // SAFETY: the caller vouches for the outputs; the residual has as many.
        unsafe {
            if let Some(residual) = self.residual {
                let residual = residual.add(offset);
                let residual = if count == L::TILES {
                    s.load(residual)
                } else {
                    s.load_first(residual, count)
                };
                value = s.add(value, residual);
            }
            // In this order NaN stays NaN.
            value = s.max(self.floor, value);
            let y = self.y.add(offset);
            if count == L::TILES {
                s.store(y, value);
            } else {
                s.store_first(y, count, value);
            }
        }
    }

    /// Applies `activation` to the outputs, which are still in the first-level cache.
    ///
    /// # Safety
    /// `rows` by `columns` outputs are there and written.
    #[inline(always)]
    pub(super) unsafe fn activate<S: Simd>(&self, s: S, activation: Activation) {
        for row in 0..self.rows {
            // SAFETY: the caller vouches for the outputs.
            let outputs = unsafe {
                std::slice::from_raw_parts_mut(self.y.add(row * self.row_stride), self.columns)
            };
            for part in outputs.chunks_mut(LANES) {
                s.write(part, activation.apply(s, s.read(part)));
            }
        }
    }
}

/// Stores the part of the tiles that lies within the map.
pub(super) struct Clipped<'a, L: Lanes>(pub(super) &'a Target<L>);

impl<L: Lanes, const OUT: usize> Sink<L, OUT> for Clipped<'_, L> {
    #[inline(always)]
    fn row(&mut self, s: L, row: usize, outputs: [L::V; OUT]) {
        let target = self.0;
        if row >= target.rows {
            return;
        }
        for part in 0..OUT {
            let count = target.columns.saturating_sub(part * L::TILES).min(L::TILES);
            if count > 0 {
                // SAFETY: `rows` and `columns` bound what is stored.
                unsafe {
                    target.put(
                        s,
                        row * target.row_stride + part * L::TILES,
                        count,
                        outputs[part],
                    )
                };
            }
        }
    }
}

/// Stores whole tiles.
pub(super) struct Whole<'a, L: Lanes>(pub(super) &'a Target<L>);

impl<L: Lanes, const OUT: usize> Sink<L, OUT> for Whole<'_, L> {
    #[inline(always)]
    fn row(&mut self, s: L, row: usize, outputs: [L::V; OUT]) {
        for part in 0..OUT {
            // SAFETY: whole tiles were asked for, so all their outputs are there.
            unsafe {
                self.0.put(
                    s,
                    row * self.0.row_stride + part * L::TILES,
                    L::TILES,
                    outputs[part],
                )
            };
        }
    }
}
