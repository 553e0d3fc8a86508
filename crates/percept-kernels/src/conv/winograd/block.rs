//! One block of the work: some tiles by some output channels, from NCHW to NCHW.

use std::ops::Range;

use super::lanes::{Lanes, MOST_TILES};
use super::multiply::Panel;
use super::prefetch::{Prefetcher, Purpose};
use super::source::{BORDER_ROW, Source};
use super::target::{Clipped, Target, Whole};
use super::tile::Tile;
use super::tiles::{Panels, Segment, TileGrid};
use super::transform::{Strides, input_tiles, output_tiles};
use super::weights::{CHANNEL_GROUP, WinogradWeights};
use crate::activation::Activation;
use crate::aligned::{FLOATS_PER_LINE, SharedMut};
use crate::conv::ConvShape;
use crate::epilogue::Epilogue;
use crate::simd::{LANES, Simd};

/// Most inputs along a patch, and terms of one that stands apart.
const MOST_INPUTS: usize = 13;
const MOST_TERMS: usize = 49 * 4;
/// Where the terms of a vector of tiles stand apart.
const APART: Strides = Strides {
    position: 4 * MOST_TILES,
    term: MOST_TILES,
};

/// What the blocks of one convolution share.
pub(super) struct Job<'a> {
    pub(super) shape: &'a ConvShape,
    pub(super) weights: &'a WinogradWeights,
    pub(super) x: &'a [f32],
    pub(super) epilogue: Epilogue<'a>,
    pub(super) y: SharedMut<'a, f32>,
    pub(super) grid: TileGrid<'a>,
    pub(super) buffers: Buffers,
}

/// How V (transformed inputs) and M (products) lie in memory:
/// V is [position][panel][term][channel][tile of the panel], M is [position][output channel][tile].
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    positions: usize,
    /// Vectors of tiles in a panel at most.
    panel_vectors: usize,
    block_tiles: usize,
    panel_stride: usize,
    v_stride: usize,
    m_stride: usize,
}

impl Buffers {
    /// Room for `tiles` tiles, up to `depth` terms of input channels at a position, and `out_channels` output channels at a
    /// time.
    pub(super) fn new(
        positions: usize,
        depth: usize,
        out_channels: usize,
        tiles: usize,
        panel_vectors: usize,
    ) -> Self {
        let block_tiles = tiles.next_multiple_of(LANES);
        let panels = Panels::of(tiles, panel_vectors).count();
        // Shorter blocks may have wider panels.
        let panel_stride = odd_lines(depth * block_tiles.min(panel_vectors * LANES));
        // Segments of fewer tiles than lanes are read in full: the last one past the end of M.
        let products = out_channels.next_multiple_of(CHANNEL_GROUP) * block_tiles + MOST_TILES;
        Self {
            positions,
            panel_vectors,
            block_tiles,
            panel_stride,
            v_stride: odd_lines(panels * panel_stride),
            m_stride: odd_lines(products),
        }
    }

    pub(super) fn v_len(&self) -> usize {
        self.positions * self.v_stride
    }

    pub(super) fn m_len(&self) -> usize {
        self.positions * self.m_stride
    }
}

/// Rounds up to an odd number of cache lines: with a power of two between positions, their values would fall into
/// the same few cache sets, which costs 25 to 40 %.
pub(super) fn odd_lines(floats: usize) -> usize {
    (floats.div_ceil(FLOATS_PER_LINE) | 1) * FLOATS_PER_LINE
}

impl Job<'_> {
    /// Transforms input `channels` of `tiles` into V.
    ///
    /// # Safety
    /// `x` has the length that `shape` asks for, and `v` is V as `buffers` describes it.
    #[inline(always)]
    pub(super) unsafe fn transform_input<
        S: Simd,
        L: Lanes,
        T: Tile<OUT, IN>,
        const OUT: usize,
        const IN: usize,
    >(
        &self,
        s: S,
        lanes: L,
        tiles: Range<usize>,
        channels: Range<usize>,
        v: *mut f32,
    ) {
        let width = self.shape.width;
        let plane = self.shape.in_pixels();
        let panels = Panels::of(tiles.len(), self.buffers.panel_vectors);
        let mut sources = Vec::new();
        for panel in 0..panels.count() {
            let within = panels.tiles(panel);
            let (offset, row) = (
                panel * self.buffers.panel_stride,
                panels.vectors(panel) * LANES,
            );
            let places = tiles.start + within.start..tiles.start + within.end;
            let segments = self.grid.segments(places, L::TILES);
            sources.extend(segments.map(|segment| {
                Source::new::<T, OUT, IN>(self.shape, &segment, offset, row, L::TILES)
            }));
        }
        let mut border = [0.0f32; MOST_INPUTS * BORDER_ROW];
        let mut apart = [0.0f32; MOST_TERMS * MOST_TILES];
        for channel in channels.clone() {
            for source in &sources {
                let base = source.image + channel * plane;
                let start = base.wrapping_add_signed(source.corner);
                // Lanes past a segment's end fall on what is written next, except in the last channels, whose neighbours
                // may be another thread's.
                let stands_apart = source.reach > (channels.end - channel) * source.v_row;
                // SAFETY: rows read in place lie within the map, and the last one, which is read past the segment's
                // end when that has fewer tiles than lanes, ends within `x`. V has room for this panel and channel.
                unsafe {
                    let place = v.add(source.v_offset + channel * source.v_row);
                    let strides = Strides {
                        position: self.buffers.v_stride,
                        term: self.shape.in_channels * source.v_row,
                    };
                    let (to, to_strides) = if stands_apart {
                        (apart.as_mut_ptr(), APART)
                    } else {
                        (place, strides)
                    };
                    let span = (IN - 1) * width + T::row_of(L::TILES);
                    if source.inside && start + span <= self.x.len() {
                        let from = self.x.as_ptr().add(start);
                        input_tiles::<L, T, OUT, IN>(lanes, from, width, to, to_strides);
                    } else {
                        let rows = &mut border[..IN * BORDER_ROW];
                        source.copy_with_border(s, &self.x[base..base + plane], width, rows);
                        input_tiles::<L, T, OUT, IN>(
                            lanes,
                            rows.as_ptr(),
                            BORDER_ROW,
                            to,
                            to_strides,
                        );
                    }
                    if stands_apart {
                        for i in 0..IN * IN {
                            let term = T::place(i / IN, i % IN);
                            place.add(strides.of(term)).copy_from_nonoverlapping(
                                apart.as_ptr().add(APART.of(term)),
                                source.count,
                            );
                        }
                    }
                }
            }
        }
    }

    /// Multiplies V with the filters of `groups` into M, fetching what comes next meanwhile.
    ///
    /// # Safety
    /// `v` holds V of `tiles`, and `m` is M as `buffers` describes them.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd, T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
        &self,
        s: S,
        tiles: Range<usize>,
        next_tiles: Range<usize>,
        groups: Range<usize>,
        v: *const f32,
        m: *mut f32,
    ) {
        let panels = Panels::of(tiles.len(), self.buffers.panel_vectors);
        let positions = T::POSITIONS * T::POSITIONS;
        let steps = positions * panels.count() * groups.len();
        let mut prefetchers = self.prefetchers::<T, OUT, IN>(tiles, next_tiles, &groups, steps);
        let filters_of = |position| self.weights.filters(position, groups.start).as_ptr();
        for position in 0..positions {
            let (filters, row_stride) = (filters_of(position), self.buffers.block_tiles);
            let next_filters = filters_of((position + 1) % positions);
            let panel_stride = self.buffers.panel_stride;
            for panel in 0..panels.count() {
                let place = position * self.buffers.v_stride + panel * panel_stride;
                let last = panel + 1 == panels.count();
                // SAFETY: V and M hold these panels and rows by the definition of `Buffers`.
                unsafe {
                    let to = m.add(position * self.buffers.m_stride + panels.tiles(panel).start);
                    let panel = Panel {
                        values: v.add(place),
                        depth: self.weights.depth(position),
                        vectors: panels.vectors(panel),
                    };
                    let (count, fetch) = (groups.len(), &mut prefetchers);
                    match s.wide() {
                        Some(wide) => {
                            let next = if last { next_filters } else { filters };
                            panel.multiply_wide(wide, filters, next, count, to, row_stride, fetch);
                        }
                        None => panel.multiply(s, filters, count, to, row_stride, fetch),
                    }
                }
            }
        }
    }

    /// The input of the next tiles, the output of these, and what is added to it.
    fn prefetchers<T: Tile<OUT, IN>, const OUT: usize, const IN: usize>(
        &self,
        tiles: Range<usize>,
        next_tiles: Range<usize>,
        groups: &Range<usize>,
        steps: usize,
    ) -> Vec<Prefetcher> {
        let (height, width) = (self.shape.height, self.shape.width);
        let image = self.shape.in_channels * self.shape.in_pixels();
        let [pad_y, pad_x] = self.shape.padding;
        let input_rows = self
            .grid
            .segments(next_tiles, usize::MAX)
            .flat_map(|segment| {
                let step = T::STRIDE * OUT;
                let (top, left) = (step * segment.row, step * segment.column);
                let rows = top.saturating_sub(pad_y)..(top + IN - pad_y).min(height);
                let start = left.saturating_sub(pad_x);
                let end = (left + T::row_of(segment.count) - pad_x).min(width);
                rows.map(move |row| (segment.image * image + row * width + start, end - start))
            });
        let channels = self.channels_of(groups);
        let (out_height, out_width) = (self.shape.out_height(), self.shape.out_width());
        let output_rows = self.grid.segments(tiles, usize::MAX).flat_map(|segment| {
            let (top, left) = (OUT * segment.row, OUT * segment.column);
            let plane = (segment.image * self.shape.out_channels + channels.start)
                * self.shape.out_pixels();
            let len = (OUT * segment.count).min(out_width - left);
            (top..(top + OUT).min(out_height)).map(move |row| (plane + row * out_width + left, len))
        });
        let output = |purpose, base| {
            Prefetcher::new(
                purpose,
                base,
                self.shape.out_pixels(),
                channels.len(),
                output_rows.clone(),
                steps,
            )
        };
        let mut prefetchers = vec![
            Prefetcher::new(
                Purpose::ReadLater,
                self.x.as_ptr(),
                self.shape.in_pixels(),
                self.shape.in_channels,
                input_rows,
                steps,
            ),
            output(Purpose::Write, self.y.as_mut_ptr().cast_const()),
        ];
        // One in place is fetched with the output.
        prefetchers.extend(
            self.epilogue
                .residual
                .map(|residual| output(Purpose::ReadLater, residual.as_ptr())),
        );
        prefetchers
    }

    /// What is added to the outputs: each is read just before it is written.
    fn residual(&self) -> Option<*const f32> {
        let in_place = self.epilogue.residual_in_place;
        let here = in_place.then(|| self.y.as_mut_ptr().cast_const());
        here.or(self.epilogue.residual.map(<[f32]>::as_ptr))
    }

    /// Transforms M into the outputs of `tiles` and the channels of `groups`.
    ///
    /// # Safety
    /// `m` holds M, `y` and the epilogue have the lengths that `shape` asks for, and no other thread has these outputs.
    #[inline(always)]
    pub(super) unsafe fn transform_output<
        S: Simd,
        L: Lanes,
        T: Tile<OUT, IN>,
        const OUT: usize,
        const IN: usize,
    >(
        &self,
        s: S,
        lanes: L,
        tiles: Range<usize>,
        groups: Range<usize>,
        m: *const f32,
    ) {
        let (height, width) = (self.shape.out_height(), self.shape.out_width());
        let segments: Vec<Segment> = self.grid.segments(tiles, L::TILES).collect();
        // ReLU is applied in registers. The others have too much code to be repeated for each vector of a tile.
        let (floor, late) = match self.epilogue.activation {
            Activation::Identity => (f32::NEG_INFINITY, None),
            Activation::Relu => (0.0, None),
            other => (f32::NEG_INFINITY, Some(other)),
        };
        for (row, channel) in self.channels_of(&groups).enumerate() {
            let bias = self.epilogue.bias.map_or(0.0, |bias| bias[channel]);
            for segment in &segments {
                let (top, left) = (OUT * segment.row, OUT * segment.column);
                let plane =
                    (segment.image * self.shape.out_channels + channel) * self.shape.out_pixels();
                let offset = plane + top * width + left;
                // SAFETY: the caller vouches for M, and for the outputs, of which these lie within the map.
                unsafe {
                    let target = Target {
                        y: self.y.as_mut_ptr().add(offset),
                        residual: self.residual().map(|residual| residual.add(offset)),
                        row_stride: width,
                        rows: OUT.min(height - top),
                        columns: (OUT * segment.count).min(width - left),
                        bias: lanes.splat(bias),
                        floor: lanes.splat(floor),
                    };
                    let from = m.add(row * self.buffers.block_tiles + segment.first);
                    if target.rows == OUT && target.columns == L::TILES * OUT {
                        output_tiles::<L, T, OUT, IN>(
                            lanes,
                            from,
                            self.buffers.m_stride,
                            &mut Whole(&target),
                        );
                    } else {
                        output_tiles::<L, T, OUT, IN>(
                            lanes,
                            from,
                            self.buffers.m_stride,
                            &mut Clipped(&target),
                        );
                    }
                    if let Some(activation) = late {
                        target.activate(s, activation);
                    }
                }
            }
        }
    }

    fn channels_of(&self, groups: &Range<usize>) -> Range<usize> {
        groups.start * CHANNEL_GROUP..(groups.end * CHANNEL_GROUP).min(self.shape.out_channels)
    }
}
