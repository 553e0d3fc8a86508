//! Both transforms with vectors of 512 bits, with the bits of those in input.rs and output.rs.

use std::arch::x86_64::*;

use super::input::{self, Source, TransformInput, Words, transform_lines};
use super::output::TransformOutput;
use super::{POSITIONS, SPAN, TILE, position_stride};
use crate::aligned::LINE_BYTES;
use crate::int8::finish::{Plain, StraightOutput, cut_off, quads_of};
use crate::int8::tile::{TILE_ROWS, WORD_COLUMNS, WORD_RUN};

/// Numbers of a vector, and tiles that are transformed together.
const LANES: usize = WORD_RUN;
/// Quads of channels between one that is transformed and one that is asked for: their planes lie too far apart for the CPU to see.
const QUADS_AHEAD: usize = 2;

/// Whether this CPU has the instructions.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Transforms up to 16 tiles.
///
/// # Safety
/// This CPU must have the instructions ([`is_supported`]).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn transform_input(work: TransformInput<'_>) {
    let shape = &work.grid.shape;
    let stride = position_stride(shape.in_channels);
    let quads = shape.in_channels.div_ceil(4);
    assert!(work.target.len() >= POSITIONS * stride, "room for 16 tiles");
    assert!(work.x.len() >= 4 * shape.batch * quads * shape.in_pixels());
    let sources = work.sources();
    let (sources, _) = sources.as_chunks::<4>();
    let fours = [0, 1, 2, 3].map(|index| Four::new(&sources[index], shape.width));
    for quad in 0..quads {
        if quad + QUADS_AHEAD < quads {
            let plane = 4 * (quad + QUADS_AHEAD) * shape.in_pixels();
            let x = work.x.as_ptr().wrapping_add(plane);
            fours.iter().for_each(|four| four.fetch(x, shape.width));
        }
        // SAFETY: all that is read lies in the map, and there are two vectors for each position, as asserted above.
        unsafe {
            let x = work.x.as_ptr().add(4 * quad * shape.in_pixels());
            let target = work.target.as_mut_ptr().add(4 * quad * WORD_RUN);
            transform_quad(&fours, x, shape.width, stride, target);
        }
    }
}

/// Where the inputs of four tiles lie.
enum Four {
    /// Side by side: those of a row are 18 pixels, of which those of the masks lie inside the map, from the first and from the third on.
    Joined {
        tile: MaskedTile,
        masks: [__mmask16; 2],
    },
    /// Anywhere.
    Apart([MaskedTile; 4]),
}

/// Where a tile's inputs lie.
#[derive(Clone, Copy, Default)]
struct MaskedTile {
    /// Its first pixel, maybe outside the map, in the sample's first quad.
    start: isize,
    /// Its rows inside the map, a bit each.
    rows: u8,
    /// Its columns inside the map, a bit each.
    columns: u32,
}

impl MaskedTile {
    fn new(source: &Source, width: usize) -> MaskedTile {
        let ([top, bottom], [left, right]) = (source.rows, source.columns);
        MaskedTile {
            start: source.pixel as isize - (top * width + left) as isize,
            rows: ((1u32 << bottom) - (1 << top)) as u8,
            columns: (1 << right) - (1 << left),
        }
    }

    /// Its pixels of a row under a mask, from a column on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn row(
        &self,
        x: *const i8,
        width: usize,
        row: usize,
        column: usize,
        mask: __mmask16,
    ) -> __m512i {
        let pixel = self.start + (row * width + column) as isize;
        let mask = if self.rows >> row & 1 == 1 { mask } else { 0 };
        // SAFETY: those of the mask lie in the map, and nothing else is read.
        unsafe { _mm512_maskz_loadu_epi32(mask, x.wrapping_offset(4 * pixel).cast()) }
    }
}

impl Four {
    fn new(sources: &[Option<Source>; 4], width: usize) -> Four {
        let tile = |source: &Option<Source>| {
            source
                .as_ref()
                .map_or_else(MaskedTile::default, |source| MaskedTile::new(source, width))
        };
        let tiles = [0, 1, 2, 3].map(|t| tile(&sources[t]));
        let is_next = |t: usize| {
            tiles[t].rows == tiles[0].rows && tiles[t].start == tiles[0].start + (TILE * t) as isize
        };
        let joined = sources.iter().all(Option::is_some) && (1..4).all(is_next);
        if !joined {
            return Four::Apart(tiles);
        }
        let columns = (0..4).fold(0, |columns, t| columns | tiles[t].columns << (TILE * t));
        Four::Joined {
            tile: tiles[0],
            masks: [columns as u16, (columns >> 2) as u16],
        }
    }

    /// Asks for the first line of each row, which of tiles side by side is nearly all.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn fetch(&self, x: *const i8, width: usize) {
        let start = match self {
            Four::Joined { tile, .. } | Four::Apart([tile, ..]) => tile.start,
        };
        for row in 0..SPAN {
            let pixel = start + (row * width) as isize;
            _mm_prefetch::<_MM_HINT_T0>(x.wrapping_offset(4 * pixel));
        }
    }

    /// A row of the four tiles, a quarter for each: the first four columns, and the last four.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn row(&self, x: *const i8, width: usize, row: usize) -> [__m512i; 2] {
        // SAFETY: passed on from the caller.
        unsafe {
            match self {
                Four::Joined { tile, masks } => [
                    tile.row(x, width, row, 0, masks[0]),
                    tile.row(x, width, row, 2, masks[1]),
                ],
                Four::Apart(tiles) => [
                    quarters(tiles, x, width, row, 0),
                    quarters(tiles, x, width, row, 2),
                ],
            }
        }
    }
}

/// Four columns of a row of each tile, from a column on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn quarters(
    tiles: &[MaskedTile; 4],
    x: *const i8,
    width: usize,
    row: usize,
    column: usize,
) -> __m512i {
    let mut all = _mm512_setzero_si512();
    for (t, tile) in tiles.iter().enumerate() {
        // The masked lanes of each are its quarter: it is read from so much before it.
        let mask = (tile.columns >> column & 0xf) << (TILE * t);
        let shifted = MaskedTile {
            start: tile.start - (TILE * t) as isize,
            ..*tile
        };
        // SAFETY: passed on from the caller.
        let quarter = unsafe { shifted.row(x, width, row, column, mask as u16) };
        all = _mm512_or_si512(all, quarter);
    }
    all
}

/// A vector of 32 words; a value proves AVX-512 BW.
#[derive(Clone, Copy)]
struct Wide(__m512i);

impl Words for Wide {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: a value proves the instructions.
        Wide(unsafe { _mm512_add_epi16(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Wide(unsafe { _mm512_sub_epi16(self.0, other.0) })
    }

    #[inline(always)]
    fn times4(self) -> Self {
        // SAFETY: as above.
        Wide(unsafe { _mm512_slli_epi16::<2>(self.0) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i16) {
        // SAFETY: passed on from the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) };
    }
}

/// Transforms one quad of channels of 16 tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn transform_quad(
    fours: &[Four; 4],
    x: *const i8,
    width: usize,
    stride: usize,
    target: *mut i16,
) {
    // Bytes 0 and 1, or 2 and 3, of each quad to the upper halves of two words.
    let order = [
        _mm512_broadcast_i32x4(_mm_setr_epi8(
            0, 0, 0, 1, 4, 4, 4, 5, 8, 8, 8, 9, 12, 12, 12, 13,
        )),
        _mm512_broadcast_i32x4(_mm_setr_epi8(
            2, 2, 2, 3, 6, 6, 6, 7, 10, 10, 10, 11, 14, 14, 14, 15,
        )),
    ];
    // Written out, because large arrays that are filled in loops are cleared beforehand.
    // SAFETY: passed on from the caller.
    let quads = unsafe {
        [
            columns(fours, x, width, 0),
            columns(fours, x, width, 1),
            columns(fours, x, width, 2),
            columns(fours, x, width, 3),
            columns(fours, x, width, 4),
            columns(fours, x, width, 5),
        ]
    };
    for (pair, order) in order.into_iter().enumerate() {
        let lines = [
            line(&quads[0], order),
            line(&quads[1], order),
            line(&quads[2], order),
            line(&quads[3], order),
            line(&quads[4], order),
            line(&quads[5], order),
        ];
        // SAFETY: the caller gives room for each position.
        unsafe { transform_lines(&lines, stride, target.add(2 * pair * WORD_RUN)) };
    }
}

/// B^T d of the pairs of channels of a row of pixels that come to words in this order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn line(quads: &[__m512i; SPAN], order: __m512i) -> [Wide; SPAN] {
    let word = |column: usize| {
        let upper = _mm512_shuffle_epi8(quads[column], order);
        Wide(_mm512_srai_epi16::<8>(upper))
    };
    input::transform([word(0), word(1), word(2), word(3), word(4), word(5)])
}

/// The six quads of a row of each tile, column by column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn columns(fours: &[Four; 4], x: *const i8, width: usize, row: usize) -> [__m512i; SPAN] {
    // SAFETY: passed on from the caller.
    let [a, b, c, d] = unsafe {
        [
            fours[0].row(x, width, row),
            fours[1].row(x, width, row),
            fours[2].row(x, width, row),
            fours[3].row(x, width, row),
        ]
    };
    let low = [
        _mm512_unpacklo_epi32(a[0], b[0]),
        _mm512_unpacklo_epi32(c[0], d[0]),
    ];
    let high = [
        _mm512_unpackhi_epi32(a[0], b[0]),
        _mm512_unpackhi_epi32(c[0], d[0]),
    ];
    let last = [
        _mm512_unpackhi_epi32(a[1], b[1]),
        _mm512_unpackhi_epi32(c[1], d[1]),
    ];
    [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
        _mm512_unpacklo_epi64(last[0], last[1]),
        _mm512_unpackhi_epi64(last[0], last[1]),
    ]
}

/// A row of all tiles' outputs: floats, or quads, which are as wide.
#[repr(align(64))]
struct Line([i32; TILE * WORD_COLUMNS]);

/// Finishes one group of four channels of up to 48 tiles, with nothing to add and nothing curved behind it.
///
/// # Safety
/// This CPU must have the instructions ([`is_supported`]), and no other block may write these tiles of these channels.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn transform_output(mut work: TransformOutput<'_>, plain: &Plain<'_>) {
    let (channels, pixels) = (work.grid.shape.out_channels, work.grid.shape.out_pixels());
    let tiles = work.places.tiles();
    for first in (0..tiles).step_by(LANES) {
        for channel in 0..TILE_ROWS {
            transform_sums(&mut work, plain, channel, first);
        }
    }
    let work = &work;
    let mut line = Line([0; TILE * WORD_COLUMNS]);
    match plain.output {
        StraightOutput::Floats { y, lowest } => {
            let lowest = _mm512_set1_ps(lowest);
            let count = TILE_ROWS.min(channels - work.channel);
            for (channel, row) in (0..count * TILE).map(|at| (at / TILE, at % TILE)) {
                for first in (0..tiles).step_by(LANES) {
                    let float = |column: usize| {
                        let value = output(work, channel, first, row, column);
                        // A NaN stays one: it is the second operand that is given then.
                        _mm512_castps_si512(_mm512_max_ps(lowest, value))
                    };
                    let columns = [float(0), float(1), float(2), float(3)];
                    lay_across(columns, &mut line, first);
                }
                for &(start, run) in work.places.stretches(row) {
                    let plane = run.sample * channels + work.channel + channel;
                    let place = plane * pixels + run.pixel;
                    // SAFETY: blocks have their own tiles or channels.
                    let to = unsafe { y.slice(place..place + run.len) };
                    put(&line.0[start..][..run.len], to.as_mut_ptr().cast());
                }
            }
        }
        StraightOutput::Bytes { y, lowest } => {
            for row in 0..TILE {
                for first in (0..tiles).step_by(LANES) {
                    let quads = |column: usize| {
                        let steps = |channel: usize| output(work, channel, first, row, column);
                        let steps = [steps(0), steps(1), steps(2), steps(3)];
                        quads_of(cut_off(steps), lowest as i8)
                    };
                    let columns = [quads(0), quads(1), quads(2), quads(3)];
                    lay_across(columns, &mut line, first);
                }
                for &(start, run) in work.places.stretches(row) {
                    let plane = run.sample * channels.div_ceil(4) + work.channel / 4;
                    let place = 4 * (plane * pixels + run.pixel);
                    // SAFETY: blocks have their own tiles or channels.
                    let to = unsafe { y.slice(place..place + 4 * run.len) };
                    put(&line.0[start..][..run.len], to.as_mut_ptr().cast());
                }
            }
        }
    }
}

/// Puts the outputs of one channel of 16 columns from `first` on, with scale and bias, in the place of the sums at the first positions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform_sums(work: &mut TransformOutput<'_>, plain: &Plain<'_>, channel: usize, first: usize) {
    assert!(work.scales.len() == POSITIONS * TILE_ROWS && first + LANES <= WORD_COLUMNS);
    assert!(work.sums.len() >= (POSITIONS - 1) * work.stride + TILE_ROWS * WORD_COLUMNS);
    let sums = work.sums[channel * WORD_COLUMNS + first..].as_mut_ptr();
    let scaled = |position: usize| {
        // SAFETY: asserted above.
        let sums = unsafe { _mm512_loadu_si512(sums.add(position * work.stride).cast()) };
        let scale = _mm512_set1_ps(work.scales[position * TILE_ROWS + channel]);
        _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale)
    };
    let line = |row: usize| {
        let scaled = |column: usize| scaled(row * SPAN + column);
        transform([
            scaled(0),
            scaled(1),
            scaled(2),
            scaled(3),
            scaled(4),
            scaled(5),
        ])
    };
    let lines = [line(0), line(1), line(2), line(3), line(4), line(5)];
    let factor = _mm512_set1_ps(plain.factors[work.channel + channel]);
    let bias = _mm512_set1_ps(plain.bias[work.channel + channel]);
    for column in 0..TILE {
        let done = transform([
            lines[0][column],
            lines[1][column],
            lines[2][column],
            lines[3][column],
            lines[4][column],
            lines[5][column],
        ]);
        for row in 0..TILE {
            let value = _mm512_fmadd_ps(done[row], factor, bias);
            // SAFETY: there are more positions than outputs, and all sums were read.
            unsafe {
                let to = sums.add((row * TILE + column) * work.stride);
                _mm512_storeu_ps(to.cast(), value);
            }
        }
    }
}

/// What [`transform_sums`] left there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn output(
    work: &TransformOutput<'_>,
    channel: usize,
    first: usize,
    row: usize,
    column: usize,
) -> __m512 {
    let start = (row * TILE + column) * work.stride + channel * WORD_COLUMNS + first;
    // SAFETY: 16 numbers are there.
    unsafe { _mm512_loadu_ps(work.sums[start..][..LANES].as_ptr().cast()) }
}

/// A^T m. Products with powers of two are exact, so that fusing them rounds as if they were not.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform(m: [__m512; SPAN]) -> [__m512; TILE] {
    let add = |a, b| _mm512_add_ps(a, b);
    let add_times = |factor: f32, v, to| _mm512_fmadd_ps(_mm512_set1_ps(factor), v, to);
    let (sum1, sum2) = (add(m[1], m[2]), add(m[3], m[4]));
    let (difference1, difference2) = (_mm512_sub_ps(m[1], m[2]), _mm512_sub_ps(m[3], m[4]));
    [
        add(add(m[0], sum1), sum2),
        add_times(2.0, difference2, difference1),
        add_times(4.0, sum2, sum1),
        add(add_times(8.0, difference2, difference1), m[5]),
    ]
}

/// Lays a row of 16 tiles from `first` on, whose columns these are, into a line in the order of tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lay_across([c0, c1, c2, c3]: [__m512i; TILE], line: &mut Line, first: usize) {
    let low = [_mm512_unpacklo_epi32(c0, c1), _mm512_unpacklo_epi32(c2, c3)];
    let high = [_mm512_unpackhi_epi32(c0, c1), _mm512_unpackhi_epi32(c2, c3)];
    // Tiles 0 to 3, and so on: fours of them lie across.
    let fours = [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
    ];
    let target = &mut line.0[TILE * first..][..TILE * LANES];
    for (four, target) in fours.into_iter().zip(target.as_chunks_mut::<LANES>().0) {
        // SAFETY: 16 numbers fit.
        unsafe { _mm512_storeu_si512(target.as_mut_ptr().cast(), four) };
    }
}

/// Writes numbers side by side, whole lines where there are some.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn put(from: &[i32], to: *mut i32) {
    let (mut at, mut len) = (0, to.align_offset(LINE_BYTES).min(from.len()));
    while at < from.len() {
        let mask = ((1u32 << len) - 1) as __mmask16;
        // SAFETY: there is room for all numbers, and nothing outside of the mask is read or written.
        unsafe {
            let numbers = _mm512_maskz_loadu_epi32(mask, from.as_ptr().add(at));
            _mm512_mask_storeu_epi32(to.add(at), mask, numbers);
        }
        at += len;
        len = (from.len() - at).min(LANES);
    }
}
