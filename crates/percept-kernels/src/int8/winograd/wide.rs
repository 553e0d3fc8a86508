//! Both transforms with vectors of 512 bits, with the bits of those in input.rs and output.rs.

use std::arch::x86_64::*;
use std::ops::Range;

use super::input::{Source, TileRow};
use super::output::TransformOutput;
use super::{POSITIONS, SPAN, TILE, TileGrid};
use crate::int8::finish::{PlainBytes, TileRun};
use crate::int8::scale::LARGEST;
use crate::int8::tile::{TILE_ROWS, WORD_COLUMNS};

/// Tiles of a vector of words, with four channels of each.
const TOGETHER: usize = 8;
/// Floats of a vector.
const LANES: usize = 16;
/// The sums of a group: four channels of 24 tiles, which are six whole vectors.
const GROUP: usize = TILE_ROWS * WORD_COLUMNS;

/// Whether this CPU has the instructions.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Transforms up to 24 tiles to `[position][quad][24 tiles][4]`; tiles that are missing are zero.
///
/// # Safety
/// This CPU must have the instructions ([`is_supported`]).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn transform_input(
    grid: &TileGrid<'_>,
    x: &[i8],
    tiles: Range<usize>,
    target: &mut [i16],
) {
    let shape = &grid.shape;
    let quads = shape.in_channels.div_ceil(4);
    let stride = quads * WORD_COLUMNS * 4;
    assert!(target.len() >= POSITIONS * stride, "room for 24 tiles");
    for first in (0..WORD_COLUMNS).step_by(TOGETHER) {
        let mut sources = [None; TOGETHER];
        for (t, source) in sources.iter_mut().enumerate() {
            let tile = tiles.start + first + t;
            *source = (tile < tiles.end).then(|| Source::new(grid, tile));
        }
        // What lies outside the map stays zero for all channels.
        let mut borders = [[[[0; 4]; SPAN]; SPAN]; TOGETHER];
        for quad in 0..quads {
            let mut rows = [(std::ptr::null(), 0); TOGETHER];
            for (t, border) in borders.iter_mut().enumerate() {
                let inside = sources[t].and_then(|source: Source| {
                    source.whole(shape.width, shape.in_pixels(), x, quad)
                });
                rows[t] = match (inside, &sources[t]) {
                    (Some(inside), _) => (inside.as_ptr(), 4 * shape.width),
                    (None, Some(source)) => {
                        source.load(shape.width, shape.in_pixels(), x, quad, border);
                        (border.as_ptr().cast(), size_of::<TileRow>())
                    }
                    (None, None) => (border.as_ptr().cast(), size_of::<TileRow>()),
                };
            }
            let target = &mut target[(quad * WORD_COLUMNS + first) * 4..];
            // SAFETY: six rows of 24 bytes are there for each tile, and a vector for each position, as asserted above.
            unsafe { transform_tiles(&rows, stride, target.as_mut_ptr()) };
        }
    }
}

/// Transforms one quad of channels of eight tiles, whose rows of 24 bytes lie so far apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn transform_tiles(tiles: &[(*const i8, usize); TOGETHER], stride: usize, target: *mut i16) {
    let mut lines = [[_mm512_setzero_si512(); SPAN]; SPAN];
    for (row, line) in lines.iter_mut().enumerate() {
        // SAFETY: the caller gives 24 bytes a row.
        let pixels = unsafe { columns(tiles, row) };
        *line = transform_words(pixels.map(|pixels| _mm512_cvtepi8_epi16(pixels)));
    }
    for column in 0..SPAN {
        let mut line = [_mm512_setzero_si512(); SPAN];
        for row in 0..SPAN {
            line[row] = lines[row][column];
        }
        let done = transform_words(line);
        for row in 0..SPAN {
            // SAFETY: the caller gives room for each position.
            unsafe {
                let to = target.add((row * SPAN + column) * stride);
                _mm512_storeu_si512(to.cast(), done[row]);
            }
        }
    }
}

/// The six quads of a row of each tile, column by column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn columns(tiles: &[(*const i8, usize); TOGETHER], row: usize) -> [__m256i; SPAN] {
    let half = |t: usize, byte: usize| {
        let (start, stride) = tiles[t];
        // SAFETY: the caller gives 24 bytes a row, and 16 are read from byte 0 or 8 on.
        unsafe { _mm_loadu_si128(start.add(row * stride + byte).cast()) }
    };
    let pair = |t: usize, byte: usize| {
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(half(t, byte)), half(t + 4, byte))
    };
    let (a, b) = (
        [pair(0, 0), pair(1, 0), pair(2, 0), pair(3, 0)],
        [pair(0, 8), pair(1, 8), pair(2, 8), pair(3, 8)],
    );
    let low = [
        _mm256_unpacklo_epi32(a[0], a[1]),
        _mm256_unpacklo_epi32(a[2], a[3]),
    ];
    let high = [
        _mm256_unpackhi_epi32(a[0], a[1]),
        _mm256_unpackhi_epi32(a[2], a[3]),
    ];
    let last = [
        _mm256_unpackhi_epi32(b[0], b[1]),
        _mm256_unpackhi_epi32(b[2], b[3]),
    ];
    [
        _mm256_unpacklo_epi64(low[0], low[1]),
        _mm256_unpackhi_epi64(low[0], low[1]),
        _mm256_unpacklo_epi64(high[0], high[1]),
        _mm256_unpackhi_epi64(high[0], high[1]),
        _mm256_unpacklo_epi64(last[0], last[1]),
        _mm256_unpackhi_epi64(last[0], last[1]),
    ]
}

/// B^T d.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform_words(d: [__m512i; SPAN]) -> [__m512i; SPAN] {
    let (add, sub) = (|a, b| _mm512_add_epi16(a, b), |a, b| _mm512_sub_epi16(a, b));
    let times4 = |a| _mm512_slli_epi16::<2>(a);
    let even = sub(d[4], d[2]);
    let odd = sub(d[3], d[1]);
    let odd2 = add(odd, odd);
    let a = sub(d[4], times4(d[2]));
    let b = sub(d[3], times4(d[1]));
    [
        add(times4(sub(d[0], d[2])), even),
        add(a, b),
        sub(a, b),
        add(even, odd2),
        sub(even, odd2),
        sub(sub(d[5], d[3]), add(odd2, odd2)),
    ]
}

/// Finishes one group of four channels of up to 24 tiles to bytes, with nothing to add and nothing curved behind it.
///
/// # Safety
/// This CPU must have the instructions ([`is_supported`]), and no other block may write these tiles.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn transform_output(work: &TransformOutput<'_>, plain: &PlainBytes<'_>) {
    assert!(work.scales.len() == POSITIONS * TILE_ROWS);
    assert!(work.sums.len() >= (POSITIONS - 1) * work.stride + GROUP);
    let channels: &[f32] = &plain.factors[work.channel..][..TILE_ROWS];
    let bias: &[f32] = &plain.bias[work.channel..][..TILE_ROWS];
    // `[row][column][channel][tile]`, and a vector more to read.
    let mut steps = [[[0i32; GROUP + LANES]; TILE]; TILE];
    for vector in 0..GROUP / LANES {
        let lines = lines(work, vector);
        let (factor, bias) = (spread(channels, vector), spread(bias, vector));
        for column in 0..TILE {
            let mut line = [_mm512_setzero_ps(); SPAN];
            for i in 0..SPAN {
                line[i] = lines[i][column];
            }
            let done = transform_sums(line);
            for row in 0..TILE {
                let value = _mm512_add_ps(_mm512_mul_ps(done[row], factor), bias);
                let value = _mm512_mul_ps(value, _mm512_set1_ps(plain.per_unit));
                // The second operand is what a NaN becomes.
                let value = _mm512_max_ps(value, _mm512_set1_ps(plain.lowest));
                let value = _mm512_min_ps(value, _mm512_set1_ps(LARGEST));
                let to = &mut steps[row][column][LANES * vector..][..LANES];
                // SAFETY: 16 integers are there.
                unsafe {
                    _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_cvtps_epi32(value));
                }
            }
        }
    }
    for (row, steps) in steps.iter().enumerate() {
        for first in (0..work.runs.tiles()).step_by(LANES) {
            let runs = &work.runs.row(row)[first..];
            for (run, quads) in runs.iter().zip(quads_of_tiles(steps, first)) {
                store(work, plain, run, &quads);
            }
        }
    }
}

/// A^T m of the rows of one vector of sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lines(work: &TransformOutput<'_>, vector: usize) -> [[__m512; TILE]; SPAN] {
    let mut lines = [[_mm512_setzero_ps(); TILE]; SPAN];
    for i in 0..SPAN {
        let mut line = [_mm512_setzero_ps(); SPAN];
        for j in 0..SPAN {
            let position = i * SPAN + j;
            let sums = &work.sums[position * work.stride + LANES * vector..][..LANES];
            // SAFETY: 16 sums are there.
            let sums = unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
            let scale = spread(&work.scales[position * TILE_ROWS..][..TILE_ROWS], vector);
            line[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale);
        }
        lines[i] = transform_sums(line);
    }
    lines
}

/// The number of each lane's channel, in a vector of `[channel][24 tiles]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn spread(channels: &[f32], vector: usize) -> __m512 {
    let [low, high] = [0, LANES / 2].map(|lane| (LANES * vector + lane) / WORD_COLUMNS);
    let low = _mm512_set1_ps(channels[low]);
    _mm512_mask_mov_ps(low, 0xff00, _mm512_set1_ps(channels[high]))
}

/// A^T m.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform_sums(m: [__m512; SPAN]) -> [__m512; TILE] {
    let add = |a, b| _mm512_add_ps(a, b);
    let times = |factor: f32, v| _mm512_mul_ps(_mm512_set1_ps(factor), v);
    let (sum1, sum2) = (add(m[1], m[2]), add(m[3], m[4]));
    let (difference1, difference2) = (_mm512_sub_ps(m[1], m[2]), _mm512_sub_ps(m[3], m[4]));
    [
        add(add(m[0], sum1), sum2),
        add(times(2.0, difference2), difference1),
        add(times(4.0, sum2), sum1),
        add(add(times(8.0, difference2), difference1), m[5]),
    ]
}

/// The four quads of a row of each of 16 tiles from `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quads_of_tiles(steps: &[[i32; GROUP + LANES]; TILE], first: usize) -> [[i8; 4 * TILE]; LANES] {
    // Bytes [channel][tile] of a part to [tile][channel].
    let order = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    ));
    let quads = |column: usize| {
        let channel = |channel: usize| {
            let from = &steps[column][channel * WORD_COLUMNS + first..][..LANES];
            // SAFETY: 16 integers are there.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        };
        let low = _mm512_packs_epi32(channel(0), channel(1));
        let high = _mm512_packs_epi32(channel(2), channel(3));
        _mm512_shuffle_epi8(_mm512_packs_epi16(low, high), order)
    };
    let [q0, q1, q2, q3] = [quads(0), quads(1), quads(2), quads(3)];
    let low = [_mm512_unpacklo_epi32(q0, q1), _mm512_unpacklo_epi32(q2, q3)];
    let high = [_mm512_unpackhi_epi32(q0, q1), _mm512_unpackhi_epi32(q2, q3)];
    // Tiles 0, 4, 8 and 12, and so on.
    let tiles = [
        _mm512_unpacklo_epi64(low[0], low[1]),
        _mm512_unpackhi_epi64(low[0], low[1]),
        _mm512_unpacklo_epi64(high[0], high[1]),
        _mm512_unpackhi_epi64(high[0], high[1]),
    ];
    let mut rows = [[0; 4 * TILE]; LANES];
    for (t, tiles) in tiles.into_iter().enumerate() {
        let parts = [
            _mm512_extracti32x4_epi32::<0>(tiles),
            _mm512_extracti32x4_epi32::<1>(tiles),
            _mm512_extracti32x4_epi32::<2>(tiles),
            _mm512_extracti32x4_epi32::<3>(tiles),
        ];
        for (part, quads) in parts.into_iter().enumerate() {
            // SAFETY: 16 bytes are there.
            unsafe { _mm_storeu_si128(rows[4 * part + t].as_mut_ptr().cast(), quads) };
        }
    }
    rows
}

#[inline(always)]
fn store(
    work: &TransformOutput<'_>,
    plain: &PlainBytes<'_>,
    run: &TileRun,
    quads: &[i8; 4 * TILE],
) {
    let shape = &work.grid.shape;
    let plane = run.sample * shape.out_channels.div_ceil(4) + work.channel / 4;
    let start = 4 * (plane * shape.out_pixels() + run.pixel);
    // SAFETY: blocks have their own tiles.
    let y = unsafe { plain.y.slice(start..start + 4 * run.len) };
    match y.as_mut_array::<{ 4 * TILE }>() {
        Some(y) => *y = *quads,
        None => y.copy_from_slice(&quads[..4 * run.len]),
    }
}
