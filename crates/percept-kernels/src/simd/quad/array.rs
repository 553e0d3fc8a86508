//! Four floats in an array, for CPUs without a [`Quad`] of their own.

use super::Quad;

/// Four floats that the compiler vectorises as well as the target allows.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub struct Array4([f32; 4]);

impl Array4 {
    #[inline(always)]
    fn zip(self, b: Array4, f: impl Fn(f32, f32) -> f32) -> Array4 {
        let (Array4([a0, a1, a2, a3]), Array4([b0, b1, b2, b3])) = (self, b);
        Array4([f(a0, b0), f(a1, b1), f(a2, b2), f(a3, b3)])
    }
    #[inline(always)]
    fn compare(self, b: Array4, f: impl Fn(&f32, &f32) -> bool) -> [bool; 4] {
        let (Array4(a), Array4(b)) = (self, b);
        [
            f(&a[0], &b[0]),
            f(&a[1], &b[1]),
            f(&a[2], &b[2]),
            f(&a[3], &b[3]),
        ]
    }
}

impl Quad for Array4 {
    type Mask = [bool; 4];
    type Pair = [u64; 2];

    #[inline(always)]
    fn splat(value: f32) -> Array4 {
        Array4([value; 4])
    }
    #[inline(always)]
    fn new(values: [f32; 4]) -> Array4 {
        Array4(values)
    }
    #[inline(always)]
    fn to_array(self) -> [f32; 4] {
        self.0
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Array4 {
        // SAFETY: the caller gives 4 readable floats.
        Array4(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller gives 4 writable floats.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn add(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| a / b)
    }
    #[inline(always)]
    fn min(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, b: Array4) -> Array4 {
        self.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn abs(self) -> Array4 {
        self.zip(self, |a, _| a.abs())
    }
    #[inline(always)]
    fn sqrt(self) -> Array4 {
        self.zip(self, |a, _| a.sqrt())
    }
    #[inline(always)]
    fn pow2(self) -> Array4 {
        self.zip(self, |a, _| f32::from_bits(((a as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn times_pow2(self, n_plus_rounder: Array4) -> Array4 {
        self.zip(n_plus_rounder, |a, n| {
            f32::from_bits(a.to_bits().wrapping_add(n.to_bits() << 23))
        })
    }

    #[inline(always)]
    fn less(self, b: Array4) -> [bool; 4] {
        self.compare(b, f32::lt)
    }
    #[inline(always)]
    fn equal(self, b: Array4) -> [bool; 4] {
        self.compare(b, f32::eq)
    }
    #[inline(always)]
    fn select(mask: [bool; 4], Array4(yes): Array4, Array4(no): Array4) -> Array4 {
        let lane = |i: usize| if mask[i] { yes[i] } else { no[i] };
        Array4([lane(0), lane(1), lane(2), lane(3)])
    }
    #[inline(always)]
    fn bits([a, b, c, d]: [bool; 4]) -> u32 {
        u32::from(a) | u32::from(b) << 1 | u32::from(c) << 2 | u32::from(d) << 3
    }

    #[inline(always)]
    fn evens(self, Array4(b): Array4) -> Array4 {
        Array4([self.0[0], self.0[2], b[0], b[2]])
    }
    #[inline(always)]
    fn odds(self, Array4(b): Array4) -> Array4 {
        Array4([self.0[1], self.0[3], b[1], b[3]])
    }
    #[inline(always)]
    fn interleave(self, Array4(b): Array4) -> [Array4; 2] {
        let Array4(a) = self;
        [
            Array4([a[0], b[0], a[1], b[1]]),
            Array4([a[2], b[2], a[3], b[3]]),
        ]
    }
    #[inline(always)]
    fn transpose([Array4(a), Array4(b), Array4(c), Array4(d)]: [Array4; 4]) -> [Array4; 4] {
        let column = |i: usize| Array4([a[i], b[i], c[i], d[i]]);
        [column(0), column(1), column(2), column(3)]
    }

    #[inline(always)]
    fn keys(Array4(high): Array4, Array4(low): Array4) -> [[u64; 2]; 2] {
        let key =
            |lane: usize| u64::from(high[lane].to_bits()) << 32 | u64::from(low[lane].to_bits());
        [[key(0), key(1)], [key(2), key(3)]]
    }
    #[inline(always)]
    fn keys_min(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
        [a[0].min(b[0]), a[1].min(b[1])]
    }
    #[inline(always)]
    fn keys_max(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
        [a[0].max(b[0]), a[1].max(b[1])]
    }
    #[inline(always)]
    fn transpose_keys(a: [u64; 2], b: [u64; 2]) -> [[u64; 2]; 2] {
        [[a[0], b[0]], [a[1], b[1]]]
    }
    #[inline(always)]
    fn key_parts(a: [u64; 2], b: [u64; 2]) -> (Array4, Array4) {
        let high = |key: u64| f32::from_bits((key >> 32) as u32);
        let low = |key: u64| f32::from_bits(key as u32);
        (
            Array4([high(a[0]), high(a[1]), high(b[0]), high(b[1])]),
            Array4([low(a[0]), low(a[1]), low(b[0]), low(b[1])]),
        )
    }
}
