//! The portable vector: an array of 8 floats that the compiler vectorises as well as the target allows.

use super::{LANES, Simd};

/// Runs everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// 8 floats, aligned so that the compiler may use wide loads.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct F32x8([f32; LANES]);

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> F32x8 {
    let mut out = [0.0; LANES];
    for lane in 0..LANES {
        out[lane] = f(lane);
    }
    F32x8(out)
}

impl Simd for Portable {
    type V = F32x8;
    type Mask = [bool; LANES];
    type Keys = [u64; 4];

    #[inline(always)]
    fn splat(self, value: f32) -> F32x8 {
        F32x8([value; LANES])
    }
    #[inline(always)]
    fn vector(self, values: [f32; LANES]) -> F32x8 {
        F32x8(values)
    }
    #[inline(always)]
    fn to_array(self, v: F32x8) -> [f32; LANES] {
        v.0
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F32x8 {
        // SAFETY: the caller gives 8 readable floats.
        F32x8(unsafe { p.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F32x8) {
        // SAFETY: the caller gives 8 writable floats.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v.0) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> F32x8 {
        let mut lanes = [0.0; LANES];
        for lane in 0..n.min(LANES) {
            // SAFETY: the caller gives `n` readable floats.
            lanes[lane] = unsafe { *p.add(lane) };
        }
        F32x8(lanes)
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: F32x8) {
        for lane in 0..n.min(LANES) {
            // SAFETY: the caller gives `n` writable floats.
            unsafe { *p.add(lane) = v.0[lane] }
        }
    }

    #[inline(always)]
    fn add(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] + b.0[i])
    }
    #[inline(always)]
    fn sub(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] - b.0[i])
    }
    #[inline(always)]
    fn mul(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] * b.0[i])
    }
    #[inline(always)]
    fn div(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] / b.0[i])
    }
    #[inline(always)]
    fn min(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn max(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn mul_add(self, a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
        each(|i| a.0[i] * b.0[i] + c.0[i])
    }
    #[inline(always)]
    fn neg_mul_add(self, a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
        each(|i| c.0[i] - a.0[i] * b.0[i])
    }
    #[inline(always)]
    fn abs(self, a: F32x8) -> F32x8 {
        each(|i| a.0[i].abs())
    }
    #[inline(always)]
    fn sqrt(self, a: F32x8) -> F32x8 {
        each(|i| a.0[i].sqrt())
    }
    #[inline(always)]
    fn floor(self, a: F32x8) -> F32x8 {
        each(|i| a.0[i].floor())
    }
    #[inline(always)]
    fn round(self, a: F32x8) -> F32x8 {
        each(|i| a.0[i].round_ties_even())
    }
    #[inline(always)]
    fn pow2(self, a: F32x8) -> F32x8 {
        each(|i| f32::from_bits(((a.0[i] as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    fn times_pow2(self, a: F32x8, n_plus_rounder: F32x8) -> F32x8 {
        each(|i| {
            let exponent = n_plus_rounder.0[i].to_bits() << 23;
            f32::from_bits(a.0[i].to_bits().wrapping_add(exponent))
        })
    }
    #[inline(always)]
    fn less(self, a: F32x8, b: F32x8) -> [bool; LANES] {
        std::array::from_fn(|i| a.0[i] < b.0[i])
    }
    #[inline(always)]
    fn equal(self, a: F32x8, b: F32x8) -> [bool; LANES] {
        std::array::from_fn(|i| a.0[i] == b.0[i])
    }
    #[inline(always)]
    fn select(self, mask: [bool; LANES], yes: F32x8, no: F32x8) -> F32x8 {
        each(|i| if mask[i] { yes.0[i] } else { no.0[i] })
    }

    #[inline(always)]
    fn bits(self, mask: [bool; LANES]) -> u32 {
        let mut bits = 0;
        for lane in 0..LANES {
            bits |= u32::from(mask[lane]) << lane;
        }
        bits
    }
    #[inline(always)]
    fn compress(self, F32x8(v): F32x8, bits: u32) -> F32x8 {
        let mut out = v;
        let mut front = 0;
        for lane in 0..LANES {
            out[front] = v[lane];
            front = (front + (bits >> lane & 1) as usize) % LANES;
        }
        F32x8(out)
    }

    #[inline(always)]
    fn keys(self, F32x8(high): F32x8, F32x8(low): F32x8) -> [[u64; 4]; 2] {
        let key =
            |lane: usize| u64::from(high[lane].to_bits()) << 32 | u64::from(low[lane].to_bits());
        [
            [key(0), key(1), key(4), key(5)],
            [key(2), key(3), key(6), key(7)],
        ]
    }
    #[inline(always)]
    fn keys_min(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        std::array::from_fn(|i| a[i].min(b[i]))
    }
    #[inline(always)]
    fn keys_max(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        std::array::from_fn(|i| a[i].max(b[i]))
    }
    #[inline(always)]
    fn transpose_keys(self, rows: [[u64; 4]; 4]) -> [[u64; 4]; 4] {
        std::array::from_fn(|i| std::array::from_fn(|j| rows[j][i]))
    }
    #[inline(always)]
    fn key_parts(self, keys: [[u64; 4]; 2]) -> (F32x8, F32x8) {
        let high = each(|i| f32::from_bits((keys[i / 4][i % 4] >> 32) as u32));
        let low = each(|i| f32::from_bits(keys[i / 4][i % 4] as u32));
        (high, low)
    }

    #[inline(always)]
    fn sum(self, F32x8(a): F32x8) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn max_lane(self, F32x8(a): F32x8) -> f32 {
        a.into_iter()
            .fold(f32::NEG_INFINITY, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    unsafe fn load_split4(self, p: *const f32) -> [F32x8; 4] {
        // SAFETY: the caller gives 32 readable floats.
        std::array::from_fn(|j| each(|t| unsafe { *p.add(4 * t + j) }))
    }
    #[inline(always)]
    fn merge4(self, v: [F32x8; 4]) -> [F32x8; 4] {
        std::array::from_fn(|part| each(|i| v[i % 4].0[2 * part + i / 4]))
    }
    #[inline(always)]
    unsafe fn load_split2(self, p: *const f32) -> [F32x8; 2] {
        // SAFETY: the caller gives 16 readable floats.
        std::array::from_fn(|j| each(|t| unsafe { *p.add(2 * t + j) }))
    }
    #[inline(always)]
    fn merge2(self, v: [F32x8; 2]) -> [F32x8; 2] {
        std::array::from_fn(|part| each(|i| v[i % 2].0[4 * part + i / 2]))
    }
    #[inline(always)]
    fn shift_down(self, F32x8(a): F32x8, last: f32) -> F32x8 {
        F32x8([a[1], a[2], a[3], a[4], a[5], a[6], a[7], last])
    }
    #[inline(always)]
    fn evens(self, F32x8(a): F32x8, F32x8(b): F32x8) -> F32x8 {
        F32x8([a[0], a[2], a[4], a[6], b[0], b[2], b[4], b[6]])
    }
    #[inline(always)]
    fn transpose8(self, rows: [F32x8; 8]) -> [F32x8; 8] {
        std::array::from_fn(|i| each(|j| rows[j].0[i]))
    }
}
