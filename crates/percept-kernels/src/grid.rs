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
