//! The portable vector: two halves of four floats, which every CPU of an architecture has.

use std::marker::PhantomData;

use super::quad::{Native4, Quad};
use super::{Floats, LANES, Simd};
use crate::isa::Kernel;

/// Floats of a half.
const HALF: usize = LANES / 2;

/// Runs everywhere.
pub type Portable = Halves<Native4>;

/// Vectors of two halves.
#[derive(Clone, Copy, Debug)]
pub struct Halves<Q>(PhantomData<Q>);

impl<Q> Halves<Q> {
    /// The one value there is.
    #[inline(always)]
    pub fn new() -> Halves<Q> {
        Halves(PhantomData)
    }
}

impl<Q> Default for Halves<Q> {
    fn default() -> Halves<Q> {
        Halves::new()
    }
}

/// A kernel compiled for every CPU.
pub(crate) fn run_portable<K: Kernel>(kernel: K) -> K::Output {
    Portable::new().call(kernel)
}

#[inline(never)]
fn run_halves<Q: Quad, K: Kernel>(s: Halves<Q>, kernel: K) -> K::Output {
    kernel.run(s)
}

/// Some floats at `p`, then zeros. A call, because it stands in every kernel and only ends of rows need it.
///
/// # Safety
/// `p` must be valid for reading `n` floats, 8 at most.
#[inline(never)]
unsafe fn read_first(p: *const f32, n: usize) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    // SAFETY: the caller gives `n` readable floats, and no more are there than lanes.
    unsafe { lanes.as_mut_ptr().copy_from_nonoverlapping(p, n) };
    lanes
}

/// Writes some of the lanes to `p`.
///
/// # Safety
/// `p` must be valid for writing `n` floats, 8 at most.
#[inline(never)]
unsafe fn write_first(p: *mut f32, n: usize, lanes: &[f32; LANES]) {
    // SAFETY: the caller gives `n` writable floats, and no more are taken than lanes.
    unsafe { p.copy_from_nonoverlapping(lanes.as_ptr(), n) };
}

/// The lanes whose bits are set, in front.
#[inline(never)]
fn front(lanes: &[f32; LANES], bits: u32) -> [f32; LANES] {
    let (mut out, mut place) = (*lanes, 0);
    for lane in 0..LANES {
        out[place] = lanes[lane];
        place = (place + (bits >> lane & 1) as usize) % LANES;
    }
    out
}

impl<Q: Quad> Floats for Halves<Q> {
    type V = [Q; 2];
    type Mask = [Q::Mask; 2];

    #[inline(always)]
    fn splat(self, value: f32) -> [Q; 2] {
        [Q::splat(value); 2]
    }
    #[inline(always)]
    fn add(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].add(b[0]), a[1].add(b[1])]
    }
    #[inline(always)]
    fn sub(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].sub(b[0]), a[1].sub(b[1])]
    }
    #[inline(always)]
    fn mul(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].mul(b[0]), a[1].mul(b[1])]
    }
    #[inline(always)]
    fn div(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].div(b[0]), a[1].div(b[1])]
    }
    #[inline(always)]
    fn min(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].min(b[0]), a[1].min(b[1])]
    }
    #[inline(always)]
    fn max(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].max(b[0]), a[1].max(b[1])]
    }
    #[inline(always)]
    fn mul_add(self, a: [Q; 2], b: [Q; 2], c: [Q; 2]) -> [Q; 2] {
        [a[0].mul(b[0]).add(c[0]), a[1].mul(b[1]).add(c[1])]
    }
    #[inline(always)]
    fn neg_mul_add(self, a: [Q; 2], b: [Q; 2], c: [Q; 2]) -> [Q; 2] {
        [c[0].sub(a[0].mul(b[0])), c[1].sub(a[1].mul(b[1]))]
    }
    #[inline(always)]
    fn round(self, [low, high]: [Q; 2]) -> [Q; 2] {
        [low.round(), high.round()]
    }
    #[inline(always)]
    fn pow2(self, [low, high]: [Q; 2]) -> [Q; 2] {
        [low.pow2(), high.pow2()]
    }
    #[inline(always)]
    fn times_pow2(self, a: [Q; 2], n_plus_rounder: [Q; 2]) -> [Q; 2] {
        [
            a[0].times_pow2(n_plus_rounder[0]),
            a[1].times_pow2(n_plus_rounder[1]),
        ]
    }
    #[inline(always)]
    fn less(self, a: [Q; 2], b: [Q; 2]) -> [Q::Mask; 2] {
        [a[0].less(b[0]), a[1].less(b[1])]
    }
    #[inline(always)]
    fn select(self, mask: [Q::Mask; 2], yes: [Q; 2], no: [Q; 2]) -> [Q; 2] {
        [
            Q::select(mask[0], yes[0], no[0]),
            Q::select(mask[1], yes[1], no[1]),
        ]
    }
}

impl<Q: Quad> Simd for Halves<Q> {
    type Keys = [Q::Pair; 2];

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        run_halves(self, kernel)
    }

    #[inline(always)]
    fn vector(self, [a, b, c, d, e, f, g, h]: [f32; LANES]) -> [Q; 2] {
        [Q::new([a, b, c, d]), Q::new([e, f, g, h])]
    }
    #[inline(always)]
    fn to_array(self, v: [Q; 2]) -> [f32; LANES] {
        let mut values = [0.0; LANES];
        // SAFETY: there is room for 8 floats.
        unsafe { self.store(values.as_mut_ptr(), v) };
        values
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> [Q; 2] {
        // SAFETY: the caller gives 8 readable floats.
        unsafe { [Q::load(p), Q::load(p.add(HALF))] }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, [low, high]: [Q; 2]) {
        // SAFETY: the caller gives 8 writable floats.
        unsafe {
            low.store(p);
            high.store(p.add(HALF));
        }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> [Q; 2] {
        if n >= LANES {
            // SAFETY: the caller gives 8 readable floats.
            return unsafe { self.load(p) };
        }
        // SAFETY: the caller gives `n` readable floats.
        self.vector(unsafe { read_first(p, n) })
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: [Q; 2]) {
        if n >= LANES {
            // SAFETY: the caller gives 8 writable floats.
            return unsafe { self.store(p, v) };
        }
        // SAFETY: the caller gives `n` writable floats.
        unsafe { write_first(p, n, &self.to_array(v)) }
    }

    #[inline(always)]
    fn abs(self, [low, high]: [Q; 2]) -> [Q; 2] {
        [low.abs(), high.abs()]
    }
    #[inline(always)]
    fn sqrt(self, [low, high]: [Q; 2]) -> [Q; 2] {
        [low.sqrt(), high.sqrt()]
    }
    #[inline(always)]
    fn floor(self, [low, high]: [Q; 2]) -> [Q; 2] {
        [low.floor(), high.floor()]
    }

    #[inline(always)]
    fn equal(self, a: [Q; 2], b: [Q; 2]) -> [Q::Mask; 2] {
        [a[0].equal(b[0]), a[1].equal(b[1])]
    }
    #[inline(always)]
    fn bits(self, [low, high]: [Q::Mask; 2]) -> u32 {
        Q::bits(low) | Q::bits(high) << HALF
    }
    #[inline(always)]
    fn compress(self, v: [Q; 2], bits: u32) -> [Q; 2] {
        self.vector(front(&self.to_array(v), bits))
    }

    #[inline(always)]
    fn keys(self, high: [Q; 2], low: [Q; 2]) -> [[Q::Pair; 2]; 2] {
        let [a, b] = Q::keys(high[0], low[0]);
        let [c, d] = Q::keys(high[1], low[1]);
        [[a, c], [b, d]]
    }
    #[inline(always)]
    fn keys_min(self, a: [Q::Pair; 2], b: [Q::Pair; 2]) -> [Q::Pair; 2] {
        [Q::keys_min(a[0], b[0]), Q::keys_min(a[1], b[1])]
    }
    #[inline(always)]
    fn keys_max(self, a: [Q::Pair; 2], b: [Q::Pair; 2]) -> [Q::Pair; 2] {
        [Q::keys_max(a[0], b[0]), Q::keys_max(a[1], b[1])]
    }
    #[inline(always)]
    fn transpose_keys(self, [a, b, c, d]: [[Q::Pair; 2]; 4]) -> [[Q::Pair; 2]; 4] {
        let ([ab0, ab1], [ab2, ab3]) =
            (Q::transpose_keys(a[0], b[0]), Q::transpose_keys(a[1], b[1]));
        let ([cd0, cd1], [cd2, cd3]) =
            (Q::transpose_keys(c[0], d[0]), Q::transpose_keys(c[1], d[1]));
        [[ab0, cd0], [ab1, cd1], [ab2, cd2], [ab3, cd3]]
    }
    #[inline(always)]
    fn key_parts(self, [a, b]: [[Q::Pair; 2]; 2]) -> ([Q; 2], [Q; 2]) {
        let (high_a, low_a) = Q::key_parts(a[0], a[1]);
        let (high_b, low_b) = Q::key_parts(b[0], b[1]);
        ([high_a, high_b], [low_a, low_b])
    }

    #[inline(always)]
    fn sum(self, [low, high]: [Q; 2]) -> f32 {
        let [a, b, c, d] = low.add(high).to_array();
        (a + c) + (b + d)
    }
    #[inline(always)]
    fn max_lane(self, [low, high]: [Q; 2]) -> f32 {
        let larger = |x: f32, y: f32| if x > y { x } else { y };
        let [a, b, c, d] = low.max(high).to_array();
        larger(larger(a, c), larger(b, d))
    }

    #[inline(always)]
    unsafe fn load_split4(self, p: *const f32) -> [[Q; 2]; 4] {
        // SAFETY: the caller gives 32 readable floats.
        let [a, b, c, d, e, f, g, h] = unsafe {
            [
                Q::load(p),
                Q::load(p.add(4)),
                Q::load(p.add(8)),
                Q::load(p.add(12)),
                Q::load(p.add(16)),
                Q::load(p.add(20)),
                Q::load(p.add(24)),
                Q::load(p.add(28)),
            ]
        };
        let low = Q::transpose([a, b, c, d]);
        let high = Q::transpose([e, f, g, h]);
        [
            [low[0], high[0]],
            [low[1], high[1]],
            [low[2], high[2]],
            [low[3], high[3]],
        ]
    }
    #[inline(always)]
    fn merge4(self, [a, b, c, d]: [[Q; 2]; 4]) -> [[Q; 2]; 4] {
        let low = Q::transpose([a[0], b[0], c[0], d[0]]);
        let high = Q::transpose([a[1], b[1], c[1], d[1]]);
        [
            [low[0], low[1]],
            [low[2], low[3]],
            [high[0], high[1]],
            [high[2], high[3]],
        ]
    }
    #[inline(always)]
    unsafe fn load_split2(self, p: *const f32) -> [[Q; 2]; 2] {
        // SAFETY: the caller gives 16 readable floats.
        let ([a, b], [c, d]) = unsafe { (self.load(p), self.load(p.add(LANES))) };
        [[a.evens(b), c.evens(d)], [a.odds(b), c.odds(d)]]
    }
    #[inline(always)]
    fn merge2(self, [a, b]: [[Q; 2]; 2]) -> [[Q; 2]; 2] {
        [a[0].interleave(b[0]), a[1].interleave(b[1])]
    }
    #[inline(always)]
    fn shift_down(self, v: [Q; 2], last: f32) -> [Q; 2] {
        let [_, b, c, d, e, f, g, h] = self.to_array(v);
        self.vector([b, c, d, e, f, g, h, last])
    }
    #[inline(always)]
    fn evens(self, a: [Q; 2], b: [Q; 2]) -> [Q; 2] {
        [a[0].evens(a[1]), b[0].evens(b[1])]
    }
    #[inline(always)]
    fn transpose8(self, [a, b, c, d, e, f, g, h]: [[Q; 2]; 8]) -> [[Q; 2]; 8] {
        let t0 = Q::transpose([a[0], b[0], c[0], d[0]]);
        let t1 = Q::transpose([e[0], f[0], g[0], h[0]]);
        let t2 = Q::transpose([a[1], b[1], c[1], d[1]]);
        let t3 = Q::transpose([e[1], f[1], g[1], h[1]]);
        [
            [t0[0], t1[0]],
            [t0[1], t1[1]],
            [t0[2], t1[2]],
            [t0[3], t1[3]],
            [t2[0], t3[0]],
            [t2[1], t3[1]],
            [t2[2], t3[2]],
            [t2[3], t3[3]],
        ]
    }
}
