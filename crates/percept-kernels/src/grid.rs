//! Floats moved to the nearest ones on a grid of integers: the simulation of quantised numbers, and its slow twin.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{BLOCK_LEN, for_each_block};
use crate::simd::{LANES, Simd};

/// A grid: integers from `low` to `high`, `scale` of them to the unit; a scale of 0 makes everything zero.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Grid {
    pub scale: f32,
    pub low: f32,
    pub high: f32,
}

/// y = clamp(round(x · scale), low, high) / scale, ties to even; NaN stays NaN.
pub fn round_to_grid(cpu: &Cpu, grid: Grid, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    for_each_block(cpu, x.len(), 1, 1, y, |items, y| {
        let x = &x[items];
        cpu.isa().run(Round { grid, x, y });
    });
}

/// The same, where y holds the numbers.
pub fn round_to_grid_in_place(cpu: &Cpu, grid: Grid, y: &mut [f32]) {
    let len = y.len();
    for_each_block(cpu, len, 1, 1, y, |_, y| {
        cpu.isa().run(RoundInPlace { grid, y });
    });
}

/// The largest |x|, which NaN is not; 0 of nothing.
pub fn largest_magnitude(cpu: &Cpu, x: &[f32]) -> f32 {
    let blocks = x.len().div_ceil(BLOCK_LEN);
    let mut largest = vec![0.0f32; blocks];
    let shared = SharedMut::new(&mut largest);
    cpu.parallel(blocks, &|block, _| {
        let start = block * BLOCK_LEN;
        let x = &x[start..x.len().min(start + BLOCK_LEN)];
        let found = cpu.isa().run(Largest { x });
        // SAFETY: each block writes its own number.
        unsafe { *shared.as_mut_ptr().add(block) = found };
    });
    largest.into_iter().fold(0.0, f32::max)
}

impl Grid {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::V) -> S::V {
        let (low, high) = (s.splat(self.low), s.splat(self.high));
        let q = s.round(s.mul(x, s.splat(self.scale)));
        let q = s.max(s.min(q, high), low);
        // A scale of zero must not divide by itself.
        let y = match self.scale > 0.0 {
            true => s.div(q, s.splat(self.scale)),
            false => s.splat(0.0),
        };
        s.select(s.equal(x, x), y, x)
    }
}

struct Round<'a> {
    grid: Grid,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks(LANES).zip(self.y.chunks_mut(LANES)) {
            s.write(y, self.grid.apply(s, s.read(x)));
        }
    }
}

struct RoundInPlace<'a> {
    grid: Grid,
    y: &'a mut [f32],
}

impl Kernel for RoundInPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for y in self.y.chunks_mut(LANES) {
            let x = s.read(y);
            s.write(y, self.grid.apply(s, x));
        }
    }
}

struct Largest<'a> {
    x: &'a [f32],
}

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut largest = s.splat(0.0);
        for x in self.x.chunks(LANES) {
            // `max` gives its second operand where the first is NaN.
            largest = s.max(s.abs(s.read(x)), largest);
        }
        s.to_array(largest).into_iter().fold(0.0, f32::max)
    }
}

/// Slow and readable.
pub mod reference {
    use super::Grid;
    use crate::reference::Real;

    /// y = clamp(round(x · scale), low, high) / scale, ties to even; NaN stays NaN.
    pub fn round_to_grid<T: Real>(grid: Grid, x: &[T], y: &mut [T]) {
        let scale = f64::from(grid.scale);
        for (x, y) in x.iter().zip(y) {
            let x = x.to_f64();
            let q = (x * scale).round_ties_even();
            let q = q.clamp(f64::from(grid.low), f64::from(grid.high));
            *y = T::from_f64(match scale > 0.0 {
                _ if x.is_nan() => x,
                true => q / scale,
                false => 0.0,
            });
        }
    }

    /// The largest |x|, which NaN is not.
    pub fn largest_magnitude<T: Real>(x: &[T]) -> f32 {
        x.iter()
            .fold(0.0, |most, x| most.max(x.to_f64().abs() as f32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Isa;

    proptest! {
        #[test]
        fn rounds_as_the_reference_on_every_instruction_set(
            x in proptest::collection::vec(-3.0f32..3.0, 0..70),
            amax in 0.0f32..4.0,
            bits in 2u32..9,
        ) {
            let high = (1u32 << (bits - 1)) as f32 - 1.0;
            let scale = if amax > 1e-6 { high / amax } else { 0.0 };
            let grid = Grid { scale, low: -high - 1.0, high };
            let mut expected = vec![0.0f32; x.len()];
            reference::round_to_grid(grid, &x, &mut expected);
            // A product that f32 rounds onto a tie goes one step the other way.
            let step = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            for isa in Isa::available() {
                for threads in 1..3 {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let mut y = vec![0.0; x.len()];
                    round_to_grid(&cpu, grid, &x, &mut y);
                    let mut in_place = x.clone();
                    round_to_grid_in_place(&cpu, grid, &mut in_place);
                    prop_assert_eq!(&in_place, &y);
                    for ((y, e), x) in y.iter().zip(&expected).zip(&x) {
                        let is_tie = ((x * scale).fract().abs() - 0.5).abs() < 1e-3;
                        let bound = if is_tie { 1.01 * step } else { 1e-6 * e.abs() };
                        prop_assert!((y - e).abs() <= bound, "{} against {}", y, e);
                    }
                    prop_assert_eq!(largest_magnitude(&cpu, &x), reference::largest_magnitude(&x));
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_so_and_is_not_the_largest() {
        let cpu = Cpu::with_isa(1, Isa::Portable).unwrap();
        let mut y = [0.0; 3];
        let grid = Grid {
            scale: 1.0,
            low: -128.0,
            high: 127.0,
        };
        round_to_grid(&cpu, grid, &[f32::NAN, 1.4, -900.0], &mut y);
        assert!(y[0].is_nan());
        assert_eq!(y[1..], [1.0, -128.0]);
        assert_eq!(largest_magnitude(&cpu, &[1.0, f32::NAN, -2.0]), 2.0);
    }
}
