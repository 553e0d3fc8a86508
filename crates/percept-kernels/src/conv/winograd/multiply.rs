//! The multiplications: one small GEMM a position, filters [group][depth][4] by tiles [depth][tile of the panel].

use super::prefetch::Prefetcher;
use crate::gemm::tile::{TILE_ROWS, accumulate_fetching, store};
use crate::gemm::wide::Wide;
use crate::gemm::wide_tile::{Columns, Finish};
use crate::simd::Simd;

/// Floats between the filters in use and those being fetched: transformed filters are larger than the caches.
const FILTERS_AHEAD: usize = 2048;

/// One panel of V at one position.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) values: *const f32,
    pub(super) depth: usize,
    pub(super) vectors: usize,
}

impl Panel {
    /// Multiplies with `groups` groups of filters; row `k` of the products is stored at `to + k * row_stride`.
    /// The prefetchers step after each register tile.
    ///
    /// # Safety
    /// Readable: `4 * groups * depth` floats at `filters`, `8 * vectors * depth` at `values`.
    /// Writable: `8 * vectors` floats at each of the `4 * groups` rows.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd>(
        self,
        s: S,
        filters: *const f32,
        groups: usize,
        to: *mut f32,
        row_stride: usize,
        prefetchers: &mut [Prefetcher],
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            match self.vectors {
                1 => self.multiply_by::<S, 1>(s, filters, groups, to, row_stride, prefetchers),
                2 => self.multiply_by::<S, 2>(s, filters, groups, to, row_stride, prefetchers),
                _ => self.multiply_by::<S, 3>(s, filters, groups, to, row_stride, prefetchers),
            }
        }
    }

    /// # Safety
    /// As for [`Panel::multiply`]; `VECTORS` is `vectors`.
    #[inline(always)]
    unsafe fn multiply_by<S: Simd, const VECTORS: usize>(
        self,
        s: S,
        filters: *const f32,
        groups: usize,
        to: *mut f32,
        row_stride: usize,
        prefetchers: &mut [Prefetcher],
    ) {
        for group in 0..groups {
            // SAFETY: the caller vouches for all groups and rows.
            unsafe {
                let filters = filters.add(group * TILE_ROWS * self.depth);
                let sums = accumulate_fetching::<S, TILE_ROWS, VECTORS, FILTERS_AHEAD>(
                    s,
                    self.depth,
                    filters,
                    self.values,
                );
                store(
                    s,
                    sums,
                    to.add(group * TILE_ROWS * row_stride),
                    row_stride,
                    false,
                );
            }
            for prefetcher in prefetchers.iter_mut() {
                prefetcher.step();
            }
        }
    }

    /// The same on vectors of 16 floats. Filters are asked for early, those from `next` on after the last of these.
    ///
    /// # Safety
    /// As for [`Panel::multiply`].
    #[inline(always)]
    pub(super) unsafe fn multiply_wide(
        self,
        wide: Wide,
        filters: *const f32,
        next: *const f32,
        groups: usize,
        to: *mut f32,
        row_stride: usize,
        prefetchers: &mut [Prefetcher],
    ) {
        let columns = Columns {
            panels: [self.values; 2],
            vectors: [self.vectors, 0],
        };
        let group_len = TILE_ROWS * self.depth;
        let mut group = 0;
        while group < groups {
            let left = groups - group;
            let count = columns.groups(left);
            // At least a tile on: all its groups are read at once.
            let ahead = group * group_len + FILTERS_AHEAD.max(count * group_len);
            let fetched = match ahead.checked_sub(groups * group_len) {
                None => filters.wrapping_add(ahead),
                Some(beyond) => next.wrapping_add(beyond),
            };
            // SAFETY: the caller vouches for the panel, all groups and rows.
            unsafe {
                let filters = filters.add(group * group_len);
                let finish = Finish::store(to.add(group * TILE_ROWS * row_stride), row_stride);
                wide.multiply_tile(self.depth, filters, left, columns, fetched, &finish);
            }
            for prefetcher in prefetchers.iter_mut() {
                for _ in 0..count {
                    prefetcher.step();
                }
            }
            group += count;
        }
    }
}
