//! What kernels on rows share: sums in a fixed order, and the split of rows over threads.

use std::ops::Range;

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::simd::{LANES, Simd};

/// Numbers that one block of rows should have: enough to be worth a thread's attention.
pub(crate) const BLOCK_LEN: usize = 1 << 14;
/// Accumulators of a sum: enough to hide the latency of an addition.
const SUMS: usize = 4;

/// Calls `body(first_row, x, y)` with blocks of whole rows, in parallel. The blocks depend on the lengths only.
pub(crate) fn for_each_row_block(
    cpu: &Cpu,
    width: usize,
    x: &[f32],
    y: &mut [f32],
    body: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) {
    assert_eq!(x.len(), y.len(), "x and y must be equally long");
    if x.is_empty() {
        return;
    }
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "{} numbers are not whole rows of {width}",
        x.len()
    );
    for_each_block(cpu, x.len() / width, width, width, y, |rows, y| {
        body(rows.start, &x[rows.start * width..rows.end * width], y);
    });
}

/// Calls `body(items, y)` with runs of items and the `out_len` numbers of y that each makes, in parallel. An item that
/// costs as much as `work` elementary steps counts that much, so that blocks are about equally long.
pub(crate) fn for_each_block<T: Send>(
    cpu: &Cpu,
    items: usize,
    work: usize,
    out_len: usize,
    y: &mut [T],
    body: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    assert_eq!(y.len(), items * out_len, "length of y");
    let each = (BLOCK_LEN / work.max(1)).max(1);
    let y = SharedMut::new(y);
    cpu.parallel(items.div_ceil(each), &|block, _| {
        let range = block * each..items.min((block + 1) * each);
        // SAFETY: blocks are disjoint.
        let y = unsafe { y.slice(range.start * out_len..range.end * out_len) };
        body(range, y);
    });
}

/// Fills `target` with every `stride`-th number of `line`, from its first on.
#[inline(always)]
pub(crate) fn take_every<S: Simd>(s: S, line: &[f32], stride: usize, target: &mut [f32]) {
    if stride == 1 {
        return target.copy_from_slice(&line[..target.len()]);
    }
    let whole = match stride {
        2 => target.len().min(line.len() / 2) / LANES * LANES,
        _ => 0,
    };
    let (vectors, rest) = target.split_at_mut(whole);
    for (target, line) in vectors
        .chunks_exact_mut(LANES)
        .zip(line.chunks_exact(2 * LANES))
    {
        s.write(target, s.evens(s.read(line), s.read(&line[LANES..])));
    }
    for (target, &value) in rest
        .iter_mut()
        .zip(line[whole * stride..].iter().step_by(stride))
    {
        *target = value;
    }
}

/// The sum of a slice, by fixed lanes and then in a fixed order.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); SUMS];
    let mut chunks = x.chunks_exact(SUMS * LANES);
    for chunk in &mut chunks {
        for i in 0..SUMS {
            sums[i] = s.add(sums[i], s.read(&chunk[i * LANES..]));
        }
    }
    for (i, tail) in chunks.remainder().chunks(LANES).enumerate() {
        sums[i] = s.add(sums[i], s.read(tail));
    }
    s.sum(s.add(s.add(sums[0], sums[2]), s.add(sums[1], sums[3])))
}

/// The sum of (x - centre)^2, in the same order as [`sum`].
#[inline(always)]
pub(crate) fn square_sum<S: Simd>(s: S, x: &[f32], centre: f32) -> f32 {
    let mut sums = [s.splat(0.0); SUMS];
    let centre_lanes = s.splat(centre);
    let mut chunks = x.chunks_exact(SUMS * LANES);
    for chunk in &mut chunks {
        for i in 0..SUMS {
            let away = s.sub(s.read(&chunk[i * LANES..]), centre_lanes);
            sums[i] = s.mul_add(away, away, sums[i]);
        }
    }
    for (i, tail) in chunks.remainder().chunks(LANES).enumerate() {
        let mut padded = [centre; LANES];
        padded[..tail.len()].copy_from_slice(tail);
        let away = s.sub(s.vector(padded), centre_lanes);
        sums[i] = s.mul_add(away, away, sums[i]);
    }
    s.sum(s.add(s.add(sums[0], sums[2]), s.add(sums[1], sums[3])))
}
