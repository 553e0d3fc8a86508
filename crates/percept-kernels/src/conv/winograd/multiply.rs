//! The multiplications: one small GEMM a position, filters [group][channel][4] by tiles [channel][tile of the panel].

use super::prefetch::Prefetcher;
use crate::gemm::tile::{TILE_ROWS, accumulate_fetching, store};
use crate::gemm::wide::{self, Wide};
use crate::simd::Simd;

/// Floats between the filters in use and those being fetched: transformed filters are larger than the caches.
const FILTERS_AHEAD: usize = 2048;

/// One panel of V at one position.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) values: *const f32,
    pub(super) channels: usize,
    pub(super) vectors: usize,
}

impl Panel {
    /// Multiplies with `groups` groups of filters; row `k` of the products is stored at `to + k * row_stride`.
    /// The prefetchers step after each register tile.
    ///
    /// # Safety
    /// Readable: `4 * groups * channels` floats at `filters`, `8 * vectors * channels` at `values`.
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

    /// [`Panel::multiply`] for this panel and another `stride` floats behind it, both of three vectors: rows have the products
    /// of both.
    ///
    /// # Safety
    /// As for [`Panel::multiply`], of two panels, and with 48 floats writable at each row.
    #[inline(always)]
    pub(super) unsafe fn multiply_pair(
        self,
        wide: Wide,
        stride: usize,
        filters: *const f32,
        groups: usize,
        to: *mut f32,
        row_stride: usize,
        prefetchers: &mut [Prefetcher],
    ) {
        let mut group = 0;
        while group < groups {
            let count = (groups - group).min(wide::GROUPS);
            // SAFETY: the caller vouches for both panels, all groups and rows.
            unsafe {
                wide.multiply_pair::<FILTERS_AHEAD>(
                    self.channels,
                    filters.add(group * TILE_ROWS * self.channels),
                    count,
                    [self.values, self.values.add(stride)],
                    to.add(group * TILE_ROWS * row_stride),
                    row_stride,
                );
            }
            for prefetcher in prefetchers.iter_mut() {
                for _ in 0..2 * count {
                    prefetcher.step();
                }
            }
            group += count;
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
                let filters = filters.add(group * TILE_ROWS * self.channels);
                let sums = accumulate_fetching::<S, TILE_ROWS, VECTORS, FILTERS_AHEAD>(
                    s,
                    self.channels,
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
}
