//! The gradient of max pooling: dy of each window goes to its first largest pixel, or to the first that is not a number.

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::pool2d::Pool2dShape;
use crate::rows::{for_each_block, take_every};
use crate::simd::{LANES, Simd};

/// dx from x [batch, channels, height, width] and dy of the windows.
pub fn max_pool2d_gradient(cpu: &Cpu, shape: &Pool2dShape, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    let planes = shape.batch * shape.channels;
    let (area, out_area) = (
        shape.height * shape.width,
        shape.out_height() * shape.out_width(),
    );
    assert_eq!(x.len(), planes * area, "length of x");
    assert_eq!(dx.len(), planes * area, "length of dx");
    assert_eq!(dy.len(), planes * out_area, "length of dy");
    let work = area + out_area * shape.kernel[0] * shape.kernel[1];
    for_each_block(cpu, planes, work, area, dx, |planes, dx| {
        dx.fill(0.0);
        if dx.is_empty() || out_area == 0 {
            return;
        }
        let x = x[planes.start * area..planes.end * area].chunks_exact(area);
        let dy = dy[planes.start * out_area..planes.end * out_area].chunks_exact(out_area);
        for ((x, dy), dx) in x.zip(dy).zip(dx.chunks_exact_mut(area)) {
            cpu.isa().run(Plane { shape, x, dy, dx });
        }
    });
}

/// One channel of one sample; `dx` is zero before.
struct Plane<'a> {
    shape: &'a Pool2dShape,
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

/// No pixel has won yet.
const NOBODY: f32 = -1.0;

impl Kernel for Plane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Plane { shape, x, dy, dx } = self;
        let width = shape.out_width();
        // The pixels of one tap in all windows of a row, the largest so far, and the number of its tap.
        let mut pixels = vec![0.0; width];
        let [mut best, mut winners] = [(); 2].map(|()| vec![0.0; width]);
        let taps = 0..shape.kernel[0] * shape.kernel[1];
        let split = |tap: usize| [tap / shape.kernel[1], tap % shape.kernel[1]];
        let places: Vec<usize> = taps
            .map(split)
            .map(|[down, right]| down * shape.width + right)
            .collect();
        for (row, dy) in dy.chunks_exact(width).enumerate() {
            best.fill(f32::NEG_INFINITY);
            winners.fill(NOBODY);
            let rows = shape.row_window(row).inside();
            for (first_tap, line) in (0..).step_by(shape.kernel[1]).zip(rows.clone()) {
                let line = &x[line * shape.width..][..shape.width];
                for tap in 0..shape.kernel[1] {
                    take_tap(s, shape, line, tap, &mut pixels);
                    let number = (first_tap + tap) as f32;
                    keep_larger(s, &pixels, number, &mut best, &mut winners);
                }
            }
            let corner = rows.start * shape.width;
            for (column, (&dy, &winner)) in dy.iter().zip(&winners).enumerate() {
                let at = if winner == NOBODY {
                    // All are -inf, and nobody is larger than what there was before: the first one wins.
                    let columns = shape.column_window(column).inside();
                    if rows.is_empty() || columns.is_empty() {
                        continue;
                    }
                    corner + columns.start
                } else {
                    corner + column * shape.stride[1] + places[winner as usize] - shape.padding[1]
                };
                dx[at] += dy;
            }
        }
    }
}

/// line[j · stride + tap - padding] of every window j; -inf outside the map, which never wins.
#[inline(always)]
fn take_tap<S: Simd>(s: S, shape: &Pool2dShape, line: &[f32], tap: usize, pixels: &mut [f32]) {
    let (stride, padding) = (shape.stride[1], shape.padding[1]);
    let first = |column: usize| column.saturating_sub(tap).div_ceil(stride);
    let leave = first(padding + line.len()).min(pixels.len());
    let enter = first(padding).min(leave);
    pixels[..enter].fill(f32::NEG_INFINITY);
    pixels[leave..].fill(f32::NEG_INFINITY);
    let inside = &mut pixels[enter..leave];
    if inside.is_empty() {
        return;
    }
    let line = &line[enter * stride + tap - padding..];
    take_every(s, line, stride, inside);
}

/// Lets each pixel win that is larger than the best of its window, or the first that is not a number.
#[inline(always)]
fn keep_larger<S: Simd>(s: S, pixels: &[f32], tap: f32, best: &mut [f32], winners: &mut [f32]) {
    let tap = s.splat(tap);
    let bests = best.chunks_mut(LANES).zip(winners.chunks_mut(LANES));
    for (pixels, (best, winners)) in pixels.chunks(LANES).zip(bests) {
        let (value, most, winner) = (s.read(pixels), s.read(best), s.read(winners));
        let wins = Wins {
            larger: s.less(most, value),
            is_number: s.equal(value, value),
            was_number: s.equal(most, most),
        };
        s.write(best, wins.choose(s, value, most));
        s.write(winners, wins.choose(s, tap, winner));
    }
}

/// Which of eight windows a pixel wins.
struct Wins<S: Simd> {
    larger: S::Mask,
    is_number: S::Mask,
    was_number: S::Mask,
}

impl<S: Simd> Wins<S> {
    #[inline(always)]
    fn choose(&self, s: S, new: S::V, old: S::V) -> S::V {
        let by_size = s.select(self.larger, new, old);
        let not_a_number = s.select(self.was_number, new, old);
        s.select(self.is_number, by_size, not_a_number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference::gradient;
    use crate::testing::{check, numbers, widen};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_reference(
            planes in 0usize..4, height in 1usize..40, width in 1usize..40, kernel in 1usize..5, stride in 1usize..4,
            ceil_mode in any::<bool>(), special in 0usize..4,
        ) {
            let shape = Pool2dShape {
                batch: 1, channels: planes, height, width,
                kernel: [kernel, kernel.min(3)], stride: [stride; 2], padding: [kernel / 2, kernel.min(3) / 2], ceil_mode,
            };
            let mut x = numbers(1, planes * height * width);
            // Ties, infinities, and what is no number.
            let odd = [0.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN];
            for (index, x) in x.iter_mut().enumerate() {
                if *x < 0.3 {
                    *x = odd[index * 7 % (special + 1)];
                }
            }
            let dy = numbers(2, planes * shape.out_height() * shape.out_width());
            let mut expected = vec![0.0; x.len()];
            gradient::max_pool2d_gradient(&shape, &widen(&x), &widen(&dy), &mut expected);
            check(&expected, 1e-6, |cpu, dx| max_pool2d_gradient(cpu, &shape, &x, &dy, dx));
        }
    }
}
