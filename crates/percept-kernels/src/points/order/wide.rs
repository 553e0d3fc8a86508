//! Sets of points on vectors of 16 floats: four points to a vector.

use std::arch::x86_64::*;

use super::Point;
use crate::gemm::wide::Wide;

/// Points of a vector.
const POINTS: usize = 4;

/// For each set of points of a vector: the lanes of these points, one after the other.
#[repr(align(64))]
struct Lanes([[u32; 4 * POINTS]; 1 << POINTS]);

static CHOSEN: Lanes = {
    let mut lanes = [[0; 4 * POINTS]; 1 << POINTS];
    let mut set = 0;
    while set < lanes.len() {
        let (mut point, mut place) = (0, 0);
        while point < POINTS {
            if set >> point & 1 == 1 {
                let mut axis = 0;
                while axis < 4 {
                    lanes[set][4 * place + axis] = (4 * point + axis) as u32;
                    axis += 1;
                }
                place += 1;
            }
            point += 1;
        }
        set += 1;
    }
    Lanes(lanes)
};

/// The smallest and the largest numbers of points, and the points that are left, too few for vectors.
#[inline(always)]
pub(super) fn bounds(_: Wide, points: &[Point]) -> ([[f32; 4]; 2], &[Point]) {
    /// Minima side by side hide the latency of a comparison.
    const SIDE_BY_SIDE: usize = 2;
    let (some, rest) = points.as_chunks::<{ SIDE_BY_SIDE * POINTS }>();
    let mut bounds = [[0.0; 4]; 2];
    // SAFETY: `Wide` proves AVX-512, and vectors lie in their chunk.
    unsafe {
        let mut low = [_mm512_set1_ps(f32::INFINITY); SIDE_BY_SIDE];
        let mut high = [_mm512_set1_ps(f32::NEG_INFINITY); SIDE_BY_SIDE];
        for some in some {
            for i in 0..SIDE_BY_SIDE {
                let four = _mm512_loadu_ps(some.as_ptr().add(i * POINTS).cast());
                low[i] = _mm512_min_ps(four, low[i]);
                high[i] = _mm512_max_ps(four, high[i]);
            }
        }
        let (low, high) = (
            _mm512_min_ps(low[0], low[1]),
            _mm512_max_ps(high[0], high[1]),
        );
        let [a, b] = halves(low);
        let [c, d] = quarters(_mm256_min_ps(a, b));
        _mm_storeu_ps(bounds[0].as_mut_ptr(), _mm_min_ps(c, d));
        let [a, b] = halves(high);
        let [c, d] = quarters(_mm256_max_ps(a, b));
        _mm_storeu_ps(bounds[1].as_mut_ptr(), _mm_max_ps(c, d));
    }
    (bounds, rest)
}

/// # Safety
/// The CPU must have AVX-512.
#[inline(always)]
unsafe fn halves(v: __m512) -> [__m256; 2] {
    // SAFETY: promised by the caller.
    unsafe { [_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)] }
}

/// # Safety
/// The CPU must have AVX.
#[inline(always)]
unsafe fn quarters(v: __m256) -> [__m128; 2] {
    // SAFETY: promised by the caller.
    unsafe { [_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)] }
}

/// [`partition`](super::select::partition) of all whole vectors, before what is aside comes back: the points that went first, and
/// those aside.
#[inline(always)]
pub(super) fn partition<const OR_AT: bool>(
    _: Wide,
    points: &mut [Point],
    aside: &mut [Point],
    axis: usize,
    pivot: f32,
) -> (usize, usize) {
    assert!(points.len() == aside.len());
    let mut front = 0;
    let whole = points.len() / POINTS * POINTS;
    let (from, aside) = (points.as_mut_ptr(), aside.as_mut_ptr());
    // SAFETY: `Wide` proves AVX-512. Vectors lie in both slices: as many points as were read so far have been written at
    // most, and nothing is written over that was not read.
    unsafe {
        let pivot = _mm512_set1_ps(pivot);
        let spread = _mm512_set1_epi32(axis as i32);
        for next in (0..whole).step_by(POINTS) {
            let four = _mm512_loadu_ps(from.add(next).cast());
            let along = _mm512_permutevar_ps(four, spread);
            let first = match OR_AT {
                true => _mm512_cmp_ps_mask::<_CMP_LE_OQ>(along, pivot),
                false => _mm512_cmp_ps_mask::<_CMP_LT_OQ>(along, pivot),
            };
            // A bit of each point, side by side.
            let first = (((u32::from(first) & 0x1111) * 0x1248) >> 12) as usize & 0xF;
            let chosen = _mm512_load_si512(CHOSEN.0.as_ptr().add(first).cast());
            let others = _mm512_load_si512(CHOSEN.0.as_ptr().add(first ^ 0xF).cast());
            _mm512_storeu_ps(from.add(front).cast(), _mm512_permutexvar_ps(chosen, four));
            _mm512_storeu_ps(
                aside.add(next - front).cast(),
                _mm512_permutexvar_ps(others, four),
            );
            front += first.count_ones() as usize;
        }
    }
    (front, whole - front)
}
