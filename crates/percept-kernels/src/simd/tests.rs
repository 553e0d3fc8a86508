//! Every operation on every instruction set, against plain arithmetic.

use super::*;
use crate::isa::{Isa, Kernel};

/// Runs on every instruction set, and on the vector of CPUs that have none of their own.
fn everywhere<K: Kernel<Output = ()> + Copy>(kernel: K) {
    Isa::available().into_iter().for_each(|isa| isa.run(kernel));
    kernel.run(Halves::<Array4>::new());
}

#[derive(Clone, Copy)]
struct Operations;

impl Kernel for Operations {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let xs = [-3.7f32, -2.5, -0.0, 0.25, 0.5, 1.5, 2.5, 100.125];
        let ys = [1.0f32, -2.5, 3.0, 0.5, -4.0, 1.25, 8.0, 2.0];
        let (x, y, z) = (s.vector(xs), s.vector(ys), s.splat(0.75));
        let binary = |name: &str, got: S::V, expected: fn(f32, f32) -> f32| {
            let expected: [f32; 8] = std::array::from_fn(|i| expected(xs[i], ys[i]));
            assert_eq!(s.to_array(got), expected, "{name}");
        };
        binary("add", s.add(x, y), |x, y| x + y);
        binary("sub", s.sub(x, y), |x, y| x - y);
        binary("mul", s.mul(x, y), |x, y| x * y);
        binary("div", s.div(x, y), |x, y| x / y);
        binary("min", s.min(x, y), f32::min);
        binary("max", s.max(x, y), f32::max);
        binary("mul_add", s.mul_add(x, y, z), |x, y| {
            (f64::from(x) * f64::from(y) + 0.75) as f32
        });
        binary("neg_mul_add", s.neg_mul_add(x, y, z), |x, y| {
            (0.75 - f64::from(x) * f64::from(y)) as f32
        });
        let near: f32 = 1.0 + 1.0 / 4096.0;
        let got = s.fused(s.splat(near), s.splat(near), s.splat(-1.0));
        let once = near.mul_add(near, -1.0);
        assert_ne!(
            once,
            near * near - 1.0,
            "numbers that show a second rounding"
        );
        assert_eq!(s.to_array(got), [once; 8], "fused");
        binary("abs", s.abs(x), |x, _| x.abs());
        binary("sqrt", s.sqrt(s.abs(y)), |_, y| y.abs().sqrt());
        binary("floor", s.floor(x), |x, _| x.floor());
        binary("round", s.round(x), |x, _| x.round_ties_even());
        binary("pow2", s.pow2(s.round(x)), |x, _| {
            x.round_ties_even().exp2()
        });
        let whole = s.add(y, s.splat(ROUNDER));
        binary("times_pow2", s.times_pow2(s.splat(0.75), whole), |_, y| {
            0.75 * y.round_ties_even().exp2()
        });
        binary("less", s.select(s.less(x, y), x, z), |x, y| {
            if x < y { x } else { 0.75 }
        });
        binary("equal", s.select(s.equal(x, y), x, z), |x, y| {
            if x == y { x } else { 0.75 }
        });
        let [a, b, c, d, e, f, g, h] = xs;
        assert_eq!(s.sum(x), ((a + e) + (c + g)) + ((b + f) + (d + h)));
        assert_eq!(
            (s.max_lane(x), s.max_lane(s.sub(s.splat(0.0), x))),
            (100.125, 3.7)
        );
        assert_eq!(
            s.to_array(s.evens(x, y)),
            [a, c, e, g, ys[0], ys[2], ys[4], ys[6]]
        );
        assert_eq!(s.to_array(s.shift_down(x, 9.0)), [b, c, d, e, f, g, h, 9.0]);
    }
}

#[derive(Clone, Copy)]
struct Memory;

impl Kernel for Memory {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let source: [f32; 64] = std::array::from_fn(|i| i as f32);
        for n in 0..=9 {
            let lanes = s.to_array(s.read(&source[1..1 + n]));
            assert!(
                (0..8).all(|i| lanes[i] == if i < n { 1.0 + i as f32 } else { 0.0 }),
                "read {n}"
            );
            let mut target = [-1.0f32; 10];
            s.write(&mut target[..n], s.splat(2.0));
            assert!(
                (0..10).all(|i| target[i] == if i < n.min(8) { 2.0 } else { -1.0 }),
                "write {n}"
            );
        }
        // SAFETY: 32 floats are there.
        let split = unsafe { s.load_split4(source.as_ptr()) };
        for j in 0..4 {
            assert_eq!(
                s.to_array(split[j]),
                std::array::from_fn(|t| (4 * t + j) as f32)
            );
        }
        assert_eq!(
            s.merge4(split).map(|v| s.to_array(v)).as_flattened(),
            &source[..32]
        );
        // SAFETY: 16 floats are there.
        let split = unsafe { s.load_split2(source.as_ptr()) };
        for j in 0..2 {
            assert_eq!(
                s.to_array(split[j]),
                std::array::from_fn(|t| (2 * t + j) as f32)
            );
        }
        assert_eq!(
            s.merge2(split).map(|v| s.to_array(v)).as_flattened(),
            &source[..16]
        );
        let rows: [S::V; 8] = std::array::from_fn(|i| s.read(&source[8 * i..]));
        for (j, column) in s.transpose8(rows).into_iter().enumerate() {
            assert_eq!(
                s.to_array(column),
                std::array::from_fn(|i| (8 * i + j) as f32)
            );
        }
    }
}

#[test]
fn operations_match_plain_arithmetic() {
    everywhere(Operations);
}

#[test]
fn memory_access_touches_exactly_its_lanes() {
    everywhere(Memory);
}

/// Masks as bits, and the lanes that they choose.
#[derive(Clone, Copy)]
struct Masks;

impl Kernel for Masks {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let values = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        for bits in 0..256u32 {
            let chosen = |lane: usize| bits >> lane & 1 == 1;
            let flags: [f32; 8] = std::array::from_fn(|lane| if chosen(lane) { 1.0 } else { 0.0 });
            assert_eq!(s.bits(s.equal(s.vector(flags), s.splat(1.0))), bits);
            let front = s.to_array(s.compress(s.vector(values), bits));
            let expected: Vec<f32> = (0..8)
                .filter(|&lane| chosen(lane))
                .map(|lane| values[lane])
                .collect();
            assert_eq!(front[..expected.len()], expected);
        }
    }
}

/// Keys: their lanes, their order, and their parts.
#[derive(Clone, Copy)]
struct Keys;

impl Kernel for Keys {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Equal distances are told apart by number; numbers are the bits of floats, tiny ones here.
        let distance = [2.0f32, 1.0, 1.0, 0.0, 3.5, 0.0, 7.0, 1e30];
        let number: [f32; 8] = [5u32, 9, 3, 1, 0, 2, 8, 4].map(f32::from_bits);
        let [a, b] = s.keys(s.vector(distance), s.vector(number));
        let pick = |values: [f32; 8], lanes: [usize; 8]| lanes.map(|lane| values[lane]);
        let (high, low) = s.key_parts([a, b]);
        let lanes = [0, 1, 4, 5, 2, 3, 6, 7];
        assert_eq!(s.to_array(high), pick(distance, lanes));
        assert_eq!(
            s.to_array(low).map(f32::to_bits),
            pick(number, lanes).map(f32::to_bits)
        );
        let (low_keys, high_keys) = (s.keys_min(a, b), s.keys_max(a, b));
        let (high, low) = s.key_parts([low_keys, high_keys]);
        // Lane by lane: (2, 5) and (1, 3); (1, 9) and (0, 1); (3.5, 0) and (7, 8); (0, 2) and (1e30, 4).
        assert_eq!(s.to_array(high), [1.0, 0.0, 3.5, 0.0, 2.0, 1.0, 7.0, 1e30]);
        assert_eq!(s.to_array(low).map(f32::to_bits), [3, 1, 0, 2, 5, 9, 8, 4]);
        let turned = s.transpose_keys([a, b, low_keys, high_keys]);
        let (high, _) = s.key_parts([turned[0], turned[3]]);
        assert_eq!(s.to_array(high), [2.0, 1.0, 1.0, 2.0, 0.0, 1e30, 0.0, 1e30]);
    }
}

#[test]
fn masks_and_keys() {
    everywhere(Masks);
    everywhere(Keys);
}
