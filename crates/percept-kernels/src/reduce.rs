//! Reductions over any axes.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{for_each_block, square_sum, sum};
use crate::simd::{LANES, Simd};
use crate::strides::{Odometer, collapse, contiguous_strides};

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The largest number; NaN when there is one.
    Max,
    /// The smallest number; NaN when there is one.
    Min,
    /// The variance, dividing by count - correction (0: population, 1: unbiased).
    Variance {
        /// What is subtracted from the count.
        correction: u32,
    },
}

/// Reduces `axes` of x (`dims`); y has the kept axes in their order.
///
/// Sums add short runs in f32 and the runs in f64, in an order that depends on the shape only.
pub fn reduce(cpu: &Cpu, op: ReduceOp, dims: &[usize], axes: &[usize], x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), dims.iter().product(), "length of x {dims:?}");
    assert!(
        axes.iter().all(|&axis| axis < dims.len()),
        "axes {axes:?} of {dims:?}"
    );
    let strides = contiguous_strides(dims);
    let pick = |reduced: bool| {
        let picked = (0..dims.len()).filter(|axis| axes.contains(axis) == reduced);
        let (dims, strides): (Vec<_>, Vec<_>) = picked.map(|i| (dims[i], strides[i])).unzip();
        let (dims, [strides]) = collapse(&dims, [strides]);
        Walk { dims, strides }
    };
    let (mut kept, mut reduced) = (pick(false), pick(true));
    assert_eq!(y.len(), kept.count(), "length of y");
    let count = reduced.count();
    // Whichever axis runs through memory is the vector axis.
    if kept.strides.last() == Some(&1) && !x.is_empty() {
        let columns = kept.dims.pop().unwrap_or(1);
        kept.strides.pop();
        reduce_columns(cpu, op, count, columns, &kept, &reduced, x, y);
    } else {
        let run = if reduced.strides.last() == Some(&1) {
            reduced.dims.pop()
        } else {
            None
        };
        if run.is_some() {
            reduced.strides.pop();
        }
        for_each_block(cpu, y.len(), count, 1, y, |outputs, y| {
            let starts = Odometer::starting_at(outputs.start, &kept.dims, &kept.strides);
            for (start, y) in starts.zip(y) {
                *y = cpu.isa().run(ReduceRuns {
                    op,
                    count,
                    x,
                    start,
                    run: run.unwrap_or(1),
                    others: &reduced,
                });
            }
        });
    }
}

/// Some axes of a tensor.
struct Walk {
    dims: Vec<usize>,
    strides: Vec<usize>,
}

impl Walk {
    fn count(&self) -> usize {
        self.dims.iter().product()
    }

    fn offsets(&self) -> Odometer {
        Odometer::new(&self.dims, &self.strides)
    }
}

/// One output: runs of neighbouring numbers, folded one after the other.
struct ReduceRuns<'a> {
    op: ReduceOp,
    count: usize,
    x: &'a [f32],
    start: usize,
    run: usize,
    others: &'a Walk,
}

impl Kernel for ReduceRuns<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let count = self.count as f64;
        match self.op {
            ReduceOp::Sum => self.total(s) as f32,
            ReduceOp::Mean => (self.total(s) / count) as f32,
            ReduceOp::Max => self.extreme(s, f32::NEG_INFINITY, false),
            ReduceOp::Min => self.extreme(s, f32::INFINITY, true),
            ReduceOp::Variance { correction } => {
                let mean = (self.total(s) / count) as f32;
                let mut squares = 0.0;
                for offset in self.others.offsets() {
                    squares += f64::from(square_sum(s, self.run_at(offset), mean));
                }
                (squares / (count - f64::from(correction))) as f32
            }
        }
    }
}

impl<'a> ReduceRuns<'a> {
    #[inline(always)]
    fn run_at(&self, offset: usize) -> &'a [f32] {
        &self.x[self.start + offset..][..self.run]
    }

    #[inline(always)]
    fn total<S: Simd>(&self, s: S) -> f64 {
        let mut total = 0.0;
        for offset in self.others.offsets() {
            total += f64::from(sum(s, self.run_at(offset)));
        }
        total
    }

    #[inline(always)]
    fn extreme<S: Simd>(&self, s: S, worst: f32, smallest: bool) -> f32 {
        let mut best = s.splat(worst);
        for offset in self.others.offsets() {
            for chunk in self.run_at(offset).chunks(LANES) {
                let mut padded = [worst; LANES];
                padded[..chunk.len()].copy_from_slice(chunk);
                best = better(s, best, s.vector(padded), smallest);
            }
        }
        let lanes = s.to_array(best);
        lanes.into_iter().fold(worst, |best, v| {
            let wins = if smallest { v < best } else { v > best };
            if wins || v.is_nan() { v } else { best }
        })
    }
}

#[inline(always)]
fn better<S: Simd>(s: S, a: S::V, b: S::V, smallest: bool) -> S::V {
    let best = if smallest { s.min(a, b) } else { s.max(a, b) };
    s.select(s.equal(a, a), best, a)
}

/// Columns that are reduced together.
const STRIP: usize = 8 * LANES;
/// Rows that are summed in f32 before the sum is added in f64.
const STRIP_ROWS: usize = 32;

fn reduce_columns(
    cpu: &Cpu,
    op: ReduceOp,
    count: usize,
    columns: usize,
    kept: &Walk,
    reduced: &Walk,
    x: &[f32],
    y: &mut [f32],
) {
    let strips = columns.div_ceil(STRIP);
    let y = SharedMut::new(y);
    cpu.parallel(kept.count() * strips, &|index, _| {
        let (outer, strip) = (index / strips, index % strips);
        let first = strip * STRIP;
        let len = STRIP.min(columns - first);
        let start = Odometer::starting_at(outer, &kept.dims, &kept.strides).next();
        let start = start.expect("`outer` is one of the kept positions") + first;
        // SAFETY: each strip of each outer position belongs to one block.
        let y = unsafe { y.slice(outer * columns + first..outer * columns + first + len) };
        cpu.isa().run(ReduceStrip {
            op,
            count,
            x,
            start,
            rows: reduced,
            y,
        });
    });
}

/// Up to `STRIP` outputs side by side.
struct ReduceStrip<'a> {
    op: ReduceOp,
    count: usize,
    x: &'a [f32],
    start: usize,
    rows: &'a Walk,
    y: &'a mut [f32],
}

impl Kernel for ReduceStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let count = self.count as f64;
        match self.op {
            ReduceOp::Sum => write(self.totals(s, None), self.y),
            ReduceOp::Mean => write(self.totals(s, None).map(|total| total / count), self.y),
            ReduceOp::Max => self.extremes(s, f32::NEG_INFINITY, false),
            ReduceOp::Min => self.extremes(s, f32::INFINITY, true),
            ReduceOp::Variance { correction } => {
                let means = self.totals(s, None).map(|total| (total / count) as f32);
                let divisor = count - f64::from(correction);
                write(
                    self.totals(s, Some(means)).map(|total| total / divisor),
                    self.y,
                );
            }
        }
    }
}

impl ReduceStrip<'_> {
    /// Sums of the columns or, given their means, of the squared distances from them.
    #[inline(always)]
    fn totals<S: Simd>(&self, s: S, means: Option<[f32; STRIP]>) -> [f64; STRIP] {
        let mut totals = [0.0; STRIP];
        let mut part = [0.0; STRIP];
        let len = self.y.len();
        for (i, offset) in self.rows.offsets().enumerate() {
            let row = &self.x[self.start + offset..][..len];
            for (j, row) in row.chunks(LANES).enumerate() {
                let lanes = j * LANES..j * LANES + LANES;
                let mut value = s.read(row);
                if let Some(means) = &means {
                    value = s.sub(value, s.read(&means[lanes.clone()]));
                    value = s.mul(value, value);
                }
                let sum = s.add(s.read(&part[lanes.clone()]), value);
                s.write(&mut part[lanes], sum);
            }
            if (i + 1) % STRIP_ROWS == 0 {
                flush(&mut totals, &mut part);
            }
        }
        flush(&mut totals, &mut part);
        totals
    }

    #[inline(always)]
    fn extremes<S: Simd>(self, s: S, worst: f32, smallest: bool) {
        self.y.fill(worst);
        for offset in self.rows.offsets() {
            let row = &self.x[self.start + offset..][..self.y.len()];
            for (y, row) in self.y.chunks_mut(LANES).zip(row.chunks(LANES)) {
                s.write(y, better(s, s.read(y), s.read(row), smallest));
            }
        }
    }
}

#[inline(always)]
fn write(values: [f64; STRIP], y: &mut [f32]) {
    for (y, value) in y.iter_mut().zip(values) {
        *y = value as f32;
    }
}

#[inline(always)]
fn flush(totals: &mut [f64; STRIP], part: &mut [f32; STRIP]) {
    for (total, part) in totals.iter_mut().zip(part) {
        *total += f64::from(std::mem::take(part));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    const OPS: [ReduceOp; 6] = [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Variance { correction: 0 },
        ReduceOp::Variance { correction: 1 },
    ];

    fn compare(op: ReduceOp, dims: &[usize], axes: &[usize], tolerance: f64) {
        let kept = (0..dims.len()).filter(|axis| !axes.contains(axis));
        let x = numbers(1, dims.iter().product());
        let mut expected = vec![0.0; kept.map(|axis| dims[axis]).product()];
        reference::reduce(op, dims, axes, &widen(&x), &mut expected);
        check(&expected, tolerance, |cpu, y| {
            reduce(cpu, op, dims, axes, &x, y)
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn any_axes(
            axes in prop::collection::vec((0usize..14, any::<bool>()), 0..5),
            op in prop::sample::select(&OPS[..]),
        ) {
            let dims: Vec<_> = axes.iter().map(|&(len, _)| len).collect();
            let axes: Vec<_> = (0..dims.len()).filter(|&axis| axes[axis].1).collect();
            compare(op, &dims, &axes, 1e-5);
        }
    }

    #[test]
    fn long_sums_stay_accurate() {
        for op in OPS {
            compare(op, &[2, 30_000], &[1], 1e-5);
            compare(op, &[5000, 70], &[0], 1e-5);
        }
    }

    #[test]
    fn nan_is_an_extreme() {
        let x = [1.0, f32::NAN, 2.0, 3.0, 4.0, 5.0];
        for op in [ReduceOp::Max, ReduceOp::Min] {
            check(&[f64::NAN], 0.0, |cpu, y| {
                reduce(cpu, op, &[6], &[0], &x, y)
            });
        }
        let columns = [3.0, f64::NAN, 5.0];
        check(&columns, 0.0, |cpu, y| {
            let x = [1.0, f32::NAN, 2.0, 3.0, 4.0, 5.0];
            reduce(cpu, ReduceOp::Max, &[2, 3], &[0], &x, y);
        });
    }
}
