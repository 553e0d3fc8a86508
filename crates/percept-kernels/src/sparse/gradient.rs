//! Vector-Jacobian products of the sparse convolution.
//!
//! With dy the gradient of the output: dx[i] = Σ over pairs (o, i) of weight[tap]ᵀ · dy[o], which is a sparse convolution
//! over the transposed rulebook, and dweight[tap] = Σ over pairs of dy[o] ⊗ x[i]. The bias gets the sum of dy's rows.

use super::{PackedSparseConv, Rulebook, SparseConvShape, sparse_conv};
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;

/// The same pairs seen from the input rows: grouped by blocks of them, `[input row, output row]`.
pub fn transposed_rulebook(
    book: &Rulebook,
    taps: usize,
    input_rows: usize,
    block_rows: usize,
) -> Rulebook {
    let blocks = input_rows.div_ceil(block_rows);
    let (pairs, _) = book.pairs.as_chunks::<2>();
    let mut groups: Vec<Vec<[i32; 2]>> = vec![Vec::new(); blocks * taps];
    for (group, span) in book.starts.windows(2).enumerate() {
        for &[output, input] in &pairs[span[0] as usize..span[1] as usize] {
            groups[input as usize / block_rows * taps + group % taps].push([input, output]);
        }
    }
    let mut turned = Rulebook::default();
    for mut group in groups {
        group.sort_unstable();
        turned.starts.push((turned.pairs.len() / 2) as i32);
        turned.pairs.extend(group.as_flattened());
    }
    turned.starts.push((turned.pairs.len() / 2) as i32);
    turned
}

/// dx from dy, with the weights `[out_channels][taps][in_channels]` and the transposed rulebook.
pub fn input_gradient(
    cpu: &Cpu,
    shape: &SparseConvShape,
    weight: &[f32],
    dy: &[f32],
    transposed: &Rulebook,
    dx: &mut [f32],
) {
    let SparseConvShape {
        in_channels,
        out_channels,
        taps,
        ..
    } = *shape;
    assert_eq!(weight.len(), shape.weight_len(), "length of the weights");
    let mut turned = vec![0.0; weight.len()];
    for (row, values) in weight.chunks_exact(in_channels.max(1)).enumerate() {
        let (output, tap) = (row / taps, row % taps);
        for (input, &value) in values.iter().enumerate() {
            turned[(input * taps + tap) * out_channels + output] = value;
        }
    }
    let backward = SparseConvShape {
        in_channels: out_channels,
        out_channels: in_channels,
        ..*shape
    };
    let packed = PackedSparseConv::pack(&backward, &turned);
    let Rulebook { pairs, starts } = transposed;
    sparse_conv(cpu, &packed, dy, pairs, starts, Epilogue::default(), dx);
}

/// dweight `[out_channels][taps][in_channels]` from x and dy. Each tap is summed by one thread, in the rulebook's order.
pub fn weight_gradient(
    cpu: &Cpu,
    shape: &SparseConvShape,
    x: &[f32],
    dy: &[f32],
    book: &Rulebook,
    dweight: &mut [f32],
) {
    let SparseConvShape {
        in_channels,
        out_channels,
        taps,
        ..
    } = *shape;
    assert_eq!(dweight.len(), shape.weight_len(), "length of the weights");
    let (pairs, _) = book.pairs.as_chunks::<2>();
    let blocks = (book.starts.len() - 1) / taps.max(1);
    let target = SharedMut::new(dweight);
    cpu.parallel(taps, &|tap, _| {
        let mut sums = vec![0.0f32; out_channels * in_channels];
        for block in 0..blocks {
            let span = &book.starts[block * taps + tap..][..2];
            for &[output, input] in &pairs[span[0] as usize..span[1] as usize] {
                let x = &x[input as usize * in_channels..][..in_channels];
                let dy = &dy[output as usize * out_channels..][..out_channels];
                for (sums, &dy) in sums.chunks_exact_mut(in_channels.max(1)).zip(dy) {
                    for (sum, &x) in sums.iter_mut().zip(x) {
                        *sum += dy * x;
                    }
                }
            }
        }
        for (output, sums) in sums.chunks_exact(in_channels.max(1)).enumerate() {
            let start = (output * taps + tap) * in_channels;
            // SAFETY: each tap has its own weights.
            unsafe { target.slice(start..start + in_channels) }.copy_from_slice(sums);
        }
    });
}
