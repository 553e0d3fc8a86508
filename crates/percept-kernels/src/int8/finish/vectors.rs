//! From sums to results in vectors of 512 bits: four rows of 16 pixels at a time.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::int8::scale::LARGEST;
use crate::int8::tile::{GroupSums, SUM_ROW, TILE_ROWS};

pub(super) const LANES: usize = 16;

/// So many lanes, all of them at most.
#[inline]
pub(super) fn mask(lanes: usize) -> __mmask16 {
    (u32::MAX >> (32 - lanes.min(LANES))) as __mmask16
}

/// The factor and the bias of each row of some groups.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    factors: *const f32,
    bias: *const f32,
}

impl Scales {
    /// Those of some groups from a channel on.
    pub(super) fn of(channel: usize, groups: usize, factors: &[f32], bias: &[f32]) -> Scales {
        let channels = channel..channel + groups * TILE_ROWS;
        Scales {
            factors: factors[channels.clone()].as_ptr(),
            bias: bias[channels].as_ptr(),
        }
    }

    /// The sums of a group's four rows with their factors and biases.
    ///
    /// # Safety
    /// This CPU must have the instructions, the group must be one of those, and its factors must still be there.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn apply(
        self,
        group: usize,
        sums: [__m512i; TILE_ROWS],
    ) -> [__m512; TILE_ROWS] {
        let mut values = [_mm512_setzero_ps(); TILE_ROWS];
        for i in 0..TILE_ROWS {
            let row = group * TILE_ROWS + i;
            // SAFETY: passed on from the caller.
            let (factor, bias) = unsafe { (*self.factors.add(row), *self.bias.add(row)) };
            let sum = _mm512_cvtepi32_ps(sums[i]);
            values[i] = _mm512_fmadd_ps(sum, _mm512_set1_ps(factor), _mm512_set1_ps(bias));
        }
        values
    }
}

/// A vector of pixels of a group.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) group: usize,
    /// Its first column in the tile.
    pub(super) column: usize,
    /// Where its first pixel would lie, counted from the first one that there is; it may be masked.
    pub(super) pixel: isize,
    /// The pixels that there are.
    pub(super) mask: __mmask16,
    /// The same once more, for those that lie in another sample.
    pub(super) other: (isize, __mmask16),
}

/// Four rows of sums that lie in memory.
///
/// # Safety
/// This CPU must have the instructions, and the group's sums must be there.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(sums: *const GroupSums, place: Place) -> [__m512i; TILE_ROWS] {
    let mut rows = [_mm512_setzero_si512(); TILE_ROWS];
    for i in 0..TILE_ROWS {
        // SAFETY: passed on from the caller; a row has room for a vector that hangs over its last pixel.
        rows[i] = unsafe {
            let group = sums.add(place.group).cast::<i32>();
            _mm512_loadu_si512(group.add(i * SUM_ROW + place.column).cast())
        };
    }
    rows
}

/// What is added to the values of a vector.
pub(super) trait Addition: Copy {
    /// Adds it.
    ///
    /// # Safety
    /// This CPU must have the instructions, and what is added must be there.
    unsafe fn add(self, place: Place, values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS];
}

#[derive(Clone, Copy)]
pub(super) struct Nothing;

impl Addition for Nothing {
    #[inline(always)]
    unsafe fn add(self, _: Place, values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        values
    }
}

/// Bytes that lie as results do, and what a step of them stands for.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// Those of the run's first quad, and bytes from one group to the next.
    pub(super) bytes: *const i8,
    pub(super) group_bytes: usize,
    pub(super) scale: f32,
}

impl Addition for Bytes {
    #[inline(always)]
    unsafe fn add(self, place: Place, mut values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller; nothing outside of the mask is read.
        unsafe {
            let start = self.bytes.wrapping_add(place.group * self.group_bytes);
            let from = start.wrapping_offset(4 * place.pixel);
            let mut quads = _mm512_maskz_loadu_epi32(place.mask, from.cast());
            let (other, mask) = place.other;
            if mask != 0 {
                let from = start.wrapping_offset(4 * other);
                quads = _mm512_mask_loadu_epi32(quads, mask, from.cast());
            }
            let added = widen_to_top(quads);
            for i in 0..TILE_ROWS {
                // The same as the byte times the scale: powers of two change no digits.
                let scale = _mm512_set1_ps(self.scale / TOP);
                values[i] = _mm512_fmadd_ps(added[i], scale, values[i]);
            }
        }
        values
    }
}

/// The sums of a second product, in memory.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) scales: Scales,
    pub(super) sums: *const GroupSums,
}

impl Addition for Product {
    #[inline(always)]
    unsafe fn add(self, place: Place, mut values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        // SAFETY: passed on from the caller.
        unsafe {
            let added = self.scales.apply(place.group, load(self.sums, place));
            for i in 0..TILE_ROWS {
                values[i] = _mm512_add_ps(values[i], added[i]);
            }
        }
        values
    }
}

/// Floats that lie as maps do.
#[derive(Clone, Copy)]
pub(super) struct Floats {
    /// What they are multiplied by.
    pub(super) unit: f32,
    /// Those of the run's first channel.
    pub(super) floats: *const f32,
    /// Pixels of a channel.
    pub(super) plane: usize,
    /// Channels that there are.
    pub(super) channels: usize,
}

impl Addition for Floats {
    #[inline(always)]
    unsafe fn add(self, place: Place, mut values: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
        let first = place.group * TILE_ROWS;
        for i in 0..TILE_ROWS.min(self.channels - first) {
            // SAFETY: passed on from the caller; nothing outside of the mask is read.
            unsafe {
                let from = self.floats.add((first + i) * self.plane);
                let from = from.wrapping_offset(place.pixel);
                let added = _mm512_maskz_loadu_ps(place.mask, from);
                values[i] = _mm512_fmadd_ps(added, _mm512_set1_ps(self.unit), values[i]);
            }
        }
        values
    }
}

/// What bytes are multiplied by that were widened to the top of their integers.
const TOP: f32 = (1 << 24) as f32;

/// For each byte of a quad, the order that takes it to the top of its integer in all 16 quads; what is negative leaves zeros.
#[repr(align(64))]
struct Orders([[i8; 4 * LANES]; TILE_ROWS]);

static TO_TOP: Orders = {
    let mut orders = [[-1; 4 * LANES]; TILE_ROWS];
    let mut byte = 0;
    while byte < TILE_ROWS * LANES {
        // Quads are numbered within their 16 bytes.
        let (i, quad) = (byte / LANES, byte % LANES);
        orders[i][4 * quad + 3] = (quad % 4 * 4 + i) as i8;
        byte += 1;
    }
    Orders(orders)
};

/// The same pointer, which is not known before: what is read through it in front of products would take registers that sums need.
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read there")]
fn not_before<T>(mut p: *const T) -> *const T {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(reg) p, options(nomem, nostack, preserves_flags)) };
    p
}

/// Vector j from bytes j of 16 quads, times [`TOP`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn widen_to_top(quads: __m512i) -> [__m512; TILE_ROWS] {
    let orders = not_before(&raw const TO_TOP);
    let mut vectors = [_mm512_setzero_ps(); TILE_ROWS];
    for i in 0..TILE_ROWS {
        // SAFETY: a table of four aligned vectors.
        let order = unsafe { _mm512_load_si512((*orders).0[i].as_ptr().cast()) };
        vectors[i] = _mm512_cvtepi32_ps(_mm512_shuffle_epi8(quads, order));
    }
    vectors
}

/// Numbers cut off at the largest byte.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::int8) fn cut_off(mut steps: [__m512; TILE_ROWS]) -> [__m512; TILE_ROWS] {
    for i in 0..TILE_ROWS {
        // A NaN stays one, because the second operand is given then.
        steps[i] = _mm512_min_ps(_mm512_set1_ps(LARGEST), steps[i]);
    }
    steps
}

/// 16 quads of the bytes nearest to numbers of steps, which are below 2^31.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::int8) fn quads_of(steps: [__m512; TILE_ROWS], lowest: i8) -> __m512i {
    let mut integers = [_mm512_setzero_si512(); TILE_ROWS];
    for i in 0..TILE_ROWS {
        // A NaN becomes the smallest integer; so does what is below all.
        integers[i] = _mm512_cvtps_epi32(steps[i]);
    }
    let [a, b, c, d] = integers;
    // Packing cuts off at -128 and at the largest byte.
    let bytes = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    let bytes = _mm512_max_epi8(bytes, _mm512_set1_epi8(lowest));
    // Bytes [channel][pixel] of each part to [pixel][channel].
    let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(order))
}
