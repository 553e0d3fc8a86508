//! The transforms of tiles, eight or sixteen at once.
//!
//! A vector lane is a tile, and the tiles of a vector are horizontal neighbours, so NCHW is read and
//! written in place: only the columns of a row have to be sorted by their place within the tile.

use std::mem::MaybeUninit;

use super::lanes::Lanes;
use super::tile::{Place, Tile};

/// How far transformed inputs are apart: from one position to the next, and from one of its terms to the next.
#[derive(Clone, Copy)]
pub(super) struct Strides {
    pub(super) position: usize,
    pub(super) term: usize,
}

impl Strides {
    #[inline(always)]
    pub(super) fn of(self, place: Place) -> usize {
        place.position * self.position + place.term * self.term
    }
}

/// Transforms a vector of neighbouring tiles of one channel.
///
/// # Safety
/// `IN` rows of these tiles, `row_stride` apart, are readable at `from`; a vector for each of the `IN * IN` terms is
/// writable, `strides` apart from `to` on.
#[inline(always)]
pub(super) unsafe fn input_tiles<L: Lanes, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: L,
    from: *const f32,
    row_stride: usize,
    to: *mut f32,
    strides: Strides,
) {
    // Uninitialised on purpose: clearing it would cost as much as the transform.
    let mut half_done = MaybeUninit::<[[L::V; IN]; IN]>::uninit();
    let half = half_done.as_mut_ptr().cast::<L::V>();
    // SAFETY: the caller vouches for the rows and positions; `half` is written in full before it is read.
    unsafe {
        for i in 0..IN {
            let row = T::input(s, T::load_columns(s, from.add(i * row_stride)));
            for j in 0..IN {
                half.add(i * IN + j).write(row[j]);
            }
        }
        for j in 0..IN {
            let mut column = [half.add(j).read(); IN];
            for i in 1..IN {
                column[i] = half.add(i * IN + j).read();
            }
            let column = T::input(s, column);
            for i in 0..IN {
                s.store(to.add(strides.of(T::place(i, j))), column[i]);
            }
        }
    }
}

/// Takes the finished outputs of a vector of tiles.
pub(super) trait Sink<L: Lanes, const OUT: usize> {
    /// Row `row` of all tiles: neighbouring outputs.
    fn row(&mut self, s: L, row: usize, outputs: [L::V; OUT]);
}

/// Transforms the products of a vector of neighbouring tiles back.
///
/// # Safety
/// A vector at each position of both axes is readable at `from`.
#[inline(always)]
pub(super) unsafe fn output_tiles<L: Lanes, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
    s: L,
    from: *const f32,
    position_stride: usize,
    sink: &mut impl Sink<L, OUT>,
) {
    let mut half_done = MaybeUninit::<[[L::V; IN]; OUT]>::uninit();
    let half = half_done.as_mut_ptr().cast::<L::V>();
    // SAFETY: the caller vouches for the positions; `half` is written in full before it is read.
    unsafe {
        for j in 0..T::POSITIONS {
            let mut column = [s.load(from.add(j * position_stride)); IN];
            for i in 1..T::POSITIONS {
                column[i] = s.load(from.add((i * T::POSITIONS + j) * position_stride));
            }
            let column = T::output(s, column);
            for i in 0..OUT {
                half.add(i * IN + j).write(column[i]);
            }
        }
        for i in 0..OUT {
            let mut row = [half.add(i * IN).read(); IN];
            for j in 1..T::POSITIONS {
                row[j] = half.add(i * IN + j).read();
            }
            sink.row(s, i, T::merge_columns(s, T::output(s, row)));
        }
    }
}
