//! Random numbers from counters: a function of (seed, step, stream, element), so nothing carries a generator's state.

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::for_each_block;
use crate::simd::Simd;

/// Mixes the bits of a number (SplitMix64's finaliser).
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of numbers: those of one node in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    base: u64,
}

impl Stream {
    /// The stream of a node (`stream`) in a step of a run (`seed`).
    pub fn new(seed: i32, step: i32, stream: u64) -> Self {
        let counters = u64::from(seed.cast_unsigned()) << 32 | u64::from(step.cast_unsigned());
        let base = mix(stream ^ mix(counters.wrapping_add(0x9E37_79B9_7F4A_7C15)));
        Self { base }
    }

    /// The number at a position, in [0, 1).
    #[inline(always)]
    pub fn uniform(self, index: usize) -> f32 {
        let counter = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mix(self.base.wrapping_add(counter)) >> 40) as f32 / (1 << 24) as f32
    }
}

/// Drops a share of `p`, and scales the others so that the mean stays.
pub fn dropout_in_place(cpu: &Cpu, stream: Stream, p: f32, y: &mut [f32]) {
    for_each_block(cpu, y.len(), 1, 1, y, |range, y| {
        cpu.isa().run_widened(DropOut {
            stream,
            p,
            first: range.start,
            y,
        });
    });
}

struct DropOut<'a> {
    stream: Stream,
    p: f32,
    first: usize,
    y: &'a mut [f32],
}

impl Kernel for DropOut<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let scale = 1.0 / (1.0 - self.p);
        for i in 0..self.y.len() {
            let kept = self.stream.uniform(self.first + i) >= self.p;
            self.y[i] = if kept { self.y[i] * scale } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn dropout_keeps_the_mean() {
        let len = 50_000;
        let stream = Stream::new(1, 2, 3);
        let kept = |i| stream.uniform(i) >= 0.3;
        let expected: Vec<f64> = (0..len)
            .map(|i| if kept(i) { 1.0 / 0.7 } else { 0.0 })
            .collect();
        check(&expected, 1e-6, |cpu, y| {
            y.fill(1.0);
            dropout_in_place(cpu, stream, 0.3, y);
        });
        let mean = expected.iter().sum::<f64>() / len as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn streams_are_even_and_differ() {
        let count = 20_000;
        let mean = |stream: Stream| {
            (0..count)
                .map(|i| f64::from(stream.uniform(i)))
                .sum::<f64>()
                / count as f64
        };
        let streams = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (-1, 0, 1)];
        let streams = streams.map(|(seed, step, stream)| Stream::new(seed, step, stream));
        for (i, stream) in streams.iter().enumerate() {
            assert!((mean(*stream) - 0.5).abs() < 0.01, "{stream:?}");
            assert!(streams[..i].iter().all(|other| other != stream));
            let same = (0..count).filter(|&i| stream.uniform(i) == stream.uniform(i + 1));
            assert!(same.count() < 5);
        }
    }
}
