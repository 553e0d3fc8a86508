//! Floats of 16 bits: the form in which values wait for the backward pass.
//!
//! Rounding is to the nearest, of two to the even one. What lies beyond the largest number becomes the largest number: a value that
//! waits must not become infinite.

use half::{bf16, f16};

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::for_each_block;
use crate::simd::{LANES, Simd};

/// A type that numbers are kept in, as kernels read and write it: in vectors of floats.
pub trait Kept: Copy + Default + Send + Sync + 'static {
    /// The first 8 numbers of a slice; lanes past its end are 0.
    fn read<S: Simd>(s: S, slice: &[Self]) -> S::V;
    /// Writes the lanes to the first 8 numbers of a slice, or to all of a shorter one.
    fn write<S: Simd>(s: S, slice: &mut [Self], v: S::V);
    /// The nearest number to a float.
    fn nearest(value: f32) -> Self;
    /// The float.
    fn float(self) -> f32;
    /// The next number in the direction of a float, if there is a finite one.
    fn towards(self, value: f32) -> Self;
}

impl Kept for f32 {
    fn nearest(value: f32) -> f32 {
        value
    }
    fn float(self) -> f32 {
        self
    }
    fn towards(self, value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn read<S: Simd>(s: S, slice: &[f32]) -> S::V {
        s.read(slice)
    }
    #[inline(always)]
    fn write<S: Simd>(s: S, slice: &mut [f32], v: S::V) {
        s.write(slice, v);
    }
}

macro_rules! kept_in_16_bits {
    ($($number:ty, $largest:expr, $widen:ident, $narrow:ident;)*) => {$(
        impl Kept for $number {
            #[inline(always)]
            fn read<S: Simd>(s: S, slice: &[$number]) -> S::V {
                s.$widen(first(bytemuck::cast_slice(slice)))
            }
            #[inline(always)]
            fn write<S: Simd>(s: S, slice: &mut [$number], v: S::V) {
                // A constant: `to_f32` asks for the CPU's features each time.
                let largest = $largest;
                // What is no number passes both: `min` and `max` give their second operand then.
                let v = s.min(s.splat(largest), s.max(s.splat(-largest), v));
                let bits = s.$narrow(v);
                let slice: &mut [u16] = bytemuck::cast_slice_mut(slice);
                match slice.first_chunk_mut() {
                    Some(eight) => *eight = bits,
                    None => slice.copy_from_slice(&bits[..slice.len()]),
                }
            }
            fn nearest(value: f32) -> $number {
                let largest = $largest;
                match value.is_nan() {
                    true => <$number>::NAN,
                    false => <$number>::from_f32(value.clamp(-largest, largest)),
                }
            }
            fn float(self) -> f32 {
                self.to_f32()
            }
            fn towards(self, value: f32) -> $number {
                const SIGN: u16 = 1 << 15;
                let (bits, up) = (self.to_bits(), value > self.to_f32());
                // Bits count up away from zero.
                let next = match (bits & !SIGN, bits & SIGN != 0) {
                    (0, _) => 1 | if up { 0 } else { SIGN },
                    (_, negative) if negative == up => bits - 1,
                    _ => bits + 1,
                };
                let next = <$number>::from_bits(next);
                if next.is_finite() { next } else { self }
            }
        }
    )*};
}
kept_in_16_bits!(
    f16, 65_504.0, widen_half, narrow_half;
    bf16, f32::from_bits(0x7f7f_0000), widen_upper, narrow_upper;
);

/// The first 8 numbers, or all of a shorter slice and zeros.
#[inline(always)]
fn first(slice: &[u16]) -> [u16; LANES] {
    match slice.first_chunk() {
        Some(eight) => *eight,
        None => {
            let mut bits = [0; LANES];
            bits[..slice.len()].copy_from_slice(slice);
            bits
        }
    }
}

/// y = x, in another type.
pub fn convert<From: Kept, To: Kept>(cpu: &Cpu, x: &[From], y: &mut [To]) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    for_each_block(cpu, x.len(), 1, 1, y, |range, y| {
        let x = &x[range];
        cpu.isa().run(Convert { x, y });
    });
}

struct Convert<'a, From, To> {
    x: &'a [From],
    y: &'a mut [To],
}

impl<From: Kept, To: Kept> Kernel for Convert<'_, From, To> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks(LANES).zip(self.y.chunks_mut(LANES)) {
            To::write(s, y, From::read(s, x));
        }
    }
}

/// The slow form: one number after the other.
pub mod reference {
    use super::Kept;
    use crate::reference::Real;

    /// The nearest number of a type, from a float, as kernels have it.
    pub fn rounded<K: Kept, T: Real>(x: T) -> T {
        T::from_f64(f64::from(K::nearest(x.to_f64() as f32).float()))
    }

    /// The same; but the next number, where `gate` tells the nearest from x.
    pub fn rounded_within<K: Kept, T: Real>(x: T, gate: impl Fn(T) -> bool) -> T {
        let near = rounded::<K, T>(x);
        if gate(near) == gate(x) {
            return near;
        }
        let x = x.to_f64() as f32;
        T::from_f64(f64::from(K::nearest(x).towards(x).float()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{check, numbers};

    /// Every kind of float, by its bits, and the edges of the small types.
    fn floats() -> impl Strategy<Value = f32> {
        let edges = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
            65_504.0,
            65_519.0,
            65_520.0,
            -70_000.0,
            6.0e-8,
            2.9e-8,
            1.000_488_3,
        ];
        let small = (-1e-3f32..1e-3, -3e2f32..3e2).prop_map(|(a, b)| a * b);
        prop_oneof![
            prop::sample::select(edges.to_vec()),
            any::<u32>().prop_map(f32::from_bits),
            small,
        ]
    }

    fn there_and_back<K: Kept>(x: &[f32]) {
        let rounded = |&x: &f32| super::reference::rounded::<K, f64>(f64::from(x));
        let expected: Vec<f64> = x.iter().map(rounded).collect();
        check(&expected, 0.0, |cpu, y| {
            let mut kept = vec![K::default(); x.len()];
            convert(cpu, x, &mut kept);
            convert(cpu, &kept, y);
        });
    }

    proptest! {
        #[test]
        fn floats_are_rounded_to_the_nearest(x in prop::collection::vec(floats(), 0..70)) {
            there_and_back::<f16>(&x);
            there_and_back::<bf16>(&x);
            there_and_back::<f32>(&x);
        }
    }

    #[test]
    fn long_slices_are_converted_in_blocks() {
        let x = numbers(7, 40_003);
        there_and_back::<f16>(&x);
        there_and_back::<bf16>(&x);
    }

    #[test]
    fn what_is_too_large_becomes_the_largest_number() {
        assert_eq!(f16::nearest(1e6), f16::MAX);
        assert_eq!(bf16::nearest(f32::MAX), bf16::MAX);
        assert_eq!(f16::nearest(f32::NEG_INFINITY), f16::MIN);
        assert!(bf16::nearest(f32::NAN).is_nan());
    }

    #[test]
    fn neighbours_lie_side_by_side() {
        let tiny = f16::from_bits(1);
        assert_eq!(f16::ZERO.towards(1.0), tiny);
        assert_eq!(f16::NEG_ZERO.towards(-1.0), -tiny);
        assert_eq!(tiny.towards(-1.0), f16::ZERO);
        assert_eq!((-tiny).towards(1.0).to_f32(), 0.0);
        assert_eq!(f16::MAX.towards(1e9), f16::MAX);
        for start in [1.0f32, -1.0, 300.5] {
            let start = f16::from_f32(start);
            let up = start.towards(f32::INFINITY);
            assert!(up > start && up.towards(f32::NEG_INFINITY) == start);
        }
    }
}
