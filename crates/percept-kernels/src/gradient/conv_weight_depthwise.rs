//! The gradient of a depthwise convolution by its weight: each channel on its own, whose taps are sums of products.

use super::conv_window::gather_window;
use crate::aligned::SharedMut;
use crate::conv::ConvShape;
use crate::cpu::{Cpu, Scratch};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// dweight from x and dy; both have numbers.
pub(super) fn weight_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    dweight: &mut [f32],
) {
    let taps = shape.taps();
    let target = SharedMut::new(dweight);
    cpu.parallel(shape.out_channels, &|channel, scratch| {
        // SAFETY: each channel has its own taps.
        let target = unsafe { target.slice(channel * taps..(channel + 1) * taps) };
        cpu.isa().run(DepthwiseChannel {
            shape,
            channel,
            x,
            dy,
            target,
            scratch,
        });
    });
}

struct DepthwiseChannel<'a> {
    shape: &'a ConvShape,
    channel: usize,
    x: &'a [f32],
    dy: &'a [f32],
    target: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for DepthwiseChannel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let shape = self.shape;
        let (area, out_area) = (shape.in_pixels(), shape.out_pixels());
        let [window] = self.scratch.floats([out_area]);
        for (tap, target) in self.target.iter_mut().enumerate() {
            let mut sum = 0.0f64;
            for sample in 0..shape.batch {
                let plane = sample * shape.in_channels + self.channel;
                let x = &self.x[plane * area..][..area];
                gather_window(s, shape, x, tap, 0..out_area, window);
                sum += f64::from(dot(s, &self.dy[plane * out_area..][..out_area], window));
            }
            *target = sum as f32;
        }
    }
}

/// Σ a · b, by fixed lanes and then in a fixed order.
#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let mut chunks = a.chunks_exact(4 * LANES).zip(b.chunks_exact(4 * LANES));
    for (a, b) in &mut chunks {
        for i in 0..4 {
            sums[i] = s.mul_add(s.read(&a[i * LANES..]), s.read(&b[i * LANES..]), sums[i]);
        }
    }
    let done = a.len() / (4 * LANES) * (4 * LANES);
    let tails = a[done..].chunks(LANES).zip(b[done..].chunks(LANES));
    for (i, (a, b)) in tails.enumerate() {
        sums[i] = s.mul_add(s.read(a), s.read(b), sums[i]);
    }
    s.sum(s.add(s.add(sums[0], sums[2]), s.add(sums[1], sums[3])))
}
