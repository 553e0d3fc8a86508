//! Tiles of sums with vectors of 512 bits and masks for what is left over, with the bits of those in tile.rs.

use std::arch::x86_64::*;

use super::tile::{FinishTile, Group};
use super::{Addend, SharedOutput};
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::int8::scale::LARGEST;
use crate::int8::tile::{GroupSums, SUM_ROW, TILE_PIXELS, TILE_ROWS};

const LANES: usize = 16;

/// Finishes a tile, unless its activation is curved or a sum of two is wanted as floats: then nothing is done, and the answer is false.
///
/// # Safety
/// This CPU must have the instructions ([`has_wide`](crate::int8::has_wide)), and no other block may write these pixels of these channels.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn finish(tile: &FinishTile<'_>) -> bool {
    let finish = tile.finish;
    match (&finish.output, finish.activation, finish.residual) {
        // A ReLU is in the lowest byte already.
        (SharedOutput::Bytes(y, scale, lowest), Activation::Identity, residual)
            if finish.added.is_none() || residual.is_none() =>
        {
            let bytes = Bytes {
                y,
                per_unit: 1.0 / scale.scale,
                lowest: *lowest,
            };
            match residual {
                None if finish.added.is_some() => bytes.finish_sum(tile),
                None => bytes.finish::<false>(tile, &[], 0.0),
                Some(Addend::Bytes(residual, scale)) => {
                    bytes.finish::<true>(tile, residual, scale);
                }
                Some(Addend::Floats(residual)) => bytes.finish_added(tile, residual),
            }
        }
        _ if finish.added.is_some() => return false,
        (SharedOutput::Floats(y), Activation::Identity, None) => {
            floats::<false>(tile, y, f32::NEG_INFINITY);
        }
        (SharedOutput::Floats(y), Activation::Relu, None) => floats::<false>(tile, y, 0.0),
        (SharedOutput::Floats(y), Activation::Identity, Some(_)) => {
            floats::<true>(tile, y, f32::NEG_INFINITY);
        }
        (SharedOutput::Floats(y), Activation::Relu, Some(_)) => floats::<true>(tile, y, 0.0),
        _ => return false,
    }
    true
}

/// Results as bytes.
struct Bytes<'a> {
    y: &'a SharedMut<'a, i8>,
    /// Steps to the unit.
    per_unit: f32,
    /// The smallest byte.
    lowest: f32,
}

impl Bytes<'_> {
    /// With bytes of this scale to add, or nothing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn finish<const ADDS: bool>(&self, tile: &FinishTile<'_>, residual: &[i8], scale: f32) {
        let scale = _mm512_set1_ps(scale);
        for &run in tile.runs {
            for (g, sums) in tile.sums.iter().enumerate() {
                let group = tile.group(g, sums, run);
                let (start, len) = (4 * group.quad_place(), 4 * run.len);
                // SAFETY: blocks have their own pixels or channels.
                let y = unsafe { self.y.slice(start..start + len) }.as_mut_ptr();
                let residual = match ADDS {
                    true => residual[start..][..len].as_ptr(),
                    false => std::ptr::null(),
                };
                let scaled = Scaled::new(&group);
                for at in (0..run.len).step_by(LANES) {
                    let mask = mask(run.len - at);
                    let mut values = scaled.values(at, mask);
                    if ADDS {
                        // SAFETY: `len` bytes are there, and nothing outside of the mask is read.
                        let quads =
                            unsafe { _mm512_maskz_loadu_epi32(mask, residual.add(4 * at).cast()) };
                        let added = widen(quads);
                        for i in 0..TILE_ROWS {
                            values[i] = _mm512_add_ps(values[i], _mm512_mul_ps(added[i], scale));
                        }
                    }
                    let quads = quads_of(values, self.per_unit, self.lowest);
                    // SAFETY: `len` bytes are there, and nothing outside of the mask is written.
                    unsafe { _mm512_mask_storeu_epi32(y.add(4 * at).cast(), mask, quads) };
                }
            }
        }
    }

    /// With the sums of a second product.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn finish_sum(&self, tile: &FinishTile<'_>) {
        for &run in tile.runs {
            for (g, sums) in tile.sums.iter().enumerate() {
                let group = tile.group(g, sums, run);
                let Some((sums, factors, bias)) = group.added else {
                    unreachable!("a sum of two has the sums of both");
                };
                let start = 4 * group.quad_place();
                // SAFETY: blocks have their own pixels or channels.
                let y = unsafe { self.y.slice(start..start + 4 * run.len) }.as_mut_ptr();
                let own = Scaled::new(&group);
                let added = Scaled::of(&group, sums, factors, bias);
                for at in (0..run.len).step_by(LANES) {
                    let mask = mask(run.len - at);
                    let (mut values, added) = (own.values(at, mask), added.values(at, mask));
                    for i in 0..TILE_ROWS {
                        values[i] = _mm512_add_ps(values[i], added[i]);
                    }
                    let quads = quads_of(values, self.per_unit, self.lowest);
                    // SAFETY: the run's quads are there, and nothing outside of the mask is written.
                    unsafe { _mm512_mask_storeu_epi32(y.add(4 * at).cast(), mask, quads) };
                }
            }
        }
    }

    /// With floats to add.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn finish_added(&self, tile: &FinishTile<'_>, residual: &[f32]) {
        for &run in tile.runs {
            for (g, sums) in tile.sums.iter().enumerate() {
                let group = tile.group(g, sums, run);
                let start = 4 * group.quad_place();
                // SAFETY: blocks have their own pixels or channels.
                let y = unsafe { self.y.slice(start..start + 4 * run.len) }.as_mut_ptr();
                let scaled = Scaled::new(&group);
                for at in (0..run.len).step_by(LANES) {
                    let mask = mask(run.len - at);
                    let values = add_floats(&group, residual, at, scaled.values(at, mask));
                    let quads = quads_of(values, self.per_unit, self.lowest);
                    // SAFETY: the run's quads are there, and nothing outside of the mask is written.
                    unsafe { _mm512_mask_storeu_epi32(y.add(4 * at).cast(), mask, quads) };
                }
            }
        }
    }
}

/// Results as floats, none below the lowest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn floats<const ADDS: bool>(tile: &FinishTile<'_>, y: &SharedMut<'_, f32>, lowest: f32) {
    for &run in tile.runs {
        for (g, sums) in tile.sums.iter().enumerate() {
            let group = tile.group(g, sums, run);
            let scaled = Scaled::new(&group);
            for at in (0..run.len).step_by(LANES) {
                let (mask, n) = (mask(run.len - at), (run.len - at).min(LANES));
                let mut values = scaled.values(at, mask);
                match tile.finish.residual {
                    Some(Addend::Floats(residual)) if ADDS => {
                        values = add_floats(&group, residual, at, values);
                    }
                    Some(Addend::Bytes(residual, scale)) if ADDS => {
                        let from = &residual[4 * (group.quad_place() + at)..][..4 * n];
                        // SAFETY: `n` quads are there.
                        let quads = unsafe { _mm512_maskz_loadu_epi32(mask, from.as_ptr().cast()) };
                        let added = widen(quads);
                        for i in 0..TILE_ROWS {
                            let added = _mm512_mul_ps(added[i], _mm512_set1_ps(scale));
                            values[i] = _mm512_add_ps(values[i], added);
                        }
                    }
                    _ => {}
                }
                for i in 0..group.rows() {
                    let start = group.plane(i) + at;
                    // A NaN stays one: it is the second operand that is given then.
                    let value = _mm512_max_ps(_mm512_set1_ps(lowest), values[i]);
                    // SAFETY: blocks have their own pixels or channels, and `n` floats are there.
                    unsafe {
                        let y = y.slice(start..start + n).as_mut_ptr();
                        _mm512_mask_storeu_ps(y, mask, value);
                    }
                }
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add_floats(
    group: &Group<'_>,
    residual: &[f32],
    at: usize,
    mut values: [__m512; TILE_ROWS],
) -> [__m512; TILE_ROWS] {
    let n = (group.run.len - at).min(LANES);
    for i in 0..group.rows() {
        let from = &residual[group.plane(i) + at..][..n];
        // SAFETY: `n` floats are there.
        let added = unsafe { _mm512_maskz_loadu_ps(mask(n), from.as_ptr()) };
        values[i] = _mm512_add_ps(values[i], added);
    }
    values
}

/// So many lanes, all of them at most.
#[inline]
pub(super) fn mask(lanes: usize) -> __mmask16 {
    (u32::MAX >> (32 - lanes.min(LANES))) as __mmask16
}

/// Sums of a group with their scales and biases.
struct Scaled {
    sums: *const i32,
    factors: [__m512; TILE_ROWS],
    bias: [__m512; TILE_ROWS],
}

impl Scaled {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new(group: &Group<'_>) -> Self {
        Self::of(group, group.sums, &group.finish.factors, &group.finish.bias)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn of(group: &Group<'_>, sums: &GroupSums, factors: &[f32], bias: &[f32]) -> Self {
        let run = group.run;
        assert!(run.column + run.len <= TILE_PIXELS);
        Self {
            sums: sums.0[run.column..].as_ptr(),
            factors: four(&factors[group.channel..]),
            bias: four(&bias[group.channel..]),
        }
    }

    /// Those of pixels `at` and behind of the group's run, which has those of the mask.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn values(&self, at: usize, mask: __mmask16) -> [__m512; TILE_ROWS] {
        let mut values = [_mm512_setzero_ps(); TILE_ROWS];
        for i in 0..TILE_ROWS {
            // SAFETY: the run lies inside the tile, and nothing outside of the mask is read.
            let sums = unsafe { _mm512_maskz_loadu_epi32(mask, self.sums.add(i * SUM_ROW + at)) };
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), self.factors[i]);
            values[i] = _mm512_add_ps(scaled, self.bias[i]);
        }
        values
    }
}

/// The first four numbers, each in a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn four(numbers: &[f32]) -> [__m512; TILE_ROWS] {
    let mut vectors = [_mm512_setzero_ps(); TILE_ROWS];
    for (vector, &number) in vectors.iter_mut().zip(&numbers[..TILE_ROWS]) {
        *vector = _mm512_set1_ps(number);
    }
    vectors
}

/// Vector j from bytes j of 16 quads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn widen(quads: __m512i) -> [__m512; TILE_ROWS] {
    let highest = [
        _mm512_slli_epi32::<24>(quads),
        _mm512_slli_epi32::<16>(quads),
        _mm512_slli_epi32::<8>(quads),
        quads,
    ];
    let mut vectors = [_mm512_setzero_ps(); TILE_ROWS];
    for i in 0..TILE_ROWS {
        vectors[i] = _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(highest[i]));
    }
    vectors
}

/// 16 quads of the steps nearest to these numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn quads_of(values: [__m512; TILE_ROWS], per_unit: f32, lowest: f32) -> __m512i {
    let mut steps = [_mm512_setzero_si512(); TILE_ROWS];
    for i in 0..TILE_ROWS {
        let value = _mm512_mul_ps(values[i], _mm512_set1_ps(per_unit));
        // A NaN stays one, because the second operand is given then, and becomes the smallest integer; so does what is below all.
        steps[i] = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_set1_ps(LARGEST), value));
    }
    let [a, b, c, d] = steps;
    // Packing cuts off at -128.
    let bytes = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    let bytes = _mm512_max_epi8(bytes, _mm512_set1_epi8(lowest as i8));
    // Bytes [channel][pixel] of each part to [pixel][channel].
    let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(order))
}
