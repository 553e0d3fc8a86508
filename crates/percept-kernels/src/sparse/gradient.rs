//! Vector-Jacobian products of the sparse convolution.
//!
//! With dy the gradient of the output: dx[i] = Σ over pairs (o, i) of weight[tap]ᵀ · dy[o], which is a sparse convolution
//! over the pairs seen from the inputs, and dweight[tap] = Σ over pairs of dy[o] ⊗ x[i]. The bias gets the sum of dy's rows.

use super::{PackedSparseConv, Rulebook, SparseConvShape, sparse_conv};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;

/// The pairs of a convolution seen from its input rows: grouped by blocks of them, `[input row, output row]`.
pub enum InputPairs<'a> {
    /// Turned around and grouped anew.
    Transposed(&'a Rulebook),
    /// The forward's own, of a convolution whose output sites are its input sites, with a window around each: if i is what o
    /// reads at a tap, then o is what i reads at the opposite tap.
    Opposite(&'a [i32], &'a [i32]),
}

/// The same pairs seen from the input rows: grouped by blocks of them, `[input row, output row]`.
pub fn transposed_rulebook(
    pairs: &[i32],
    starts: &[i32],
    taps: usize,
    input_rows: usize,
    block_rows: usize,
) -> Rulebook {
    let groups = input_rows.div_ceil(block_rows) * taps;
    let (pairs, _) = pairs.as_chunks::<2>();
    let group_of = |group: usize, input: i32| input as usize / block_rows * taps + group % taps;
    let each_pair = || {
        let spans = starts.windows(2).enumerate();
        spans.flat_map(|(group, span)| {
            let pairs = &pairs[span[0] as usize..span[1] as usize];
            pairs.iter().map(move |&pair| (group, pair))
        })
    };
    let mut ends = vec![0; groups + 1];
    for (group, [_, input]) in each_pair() {
        ends[group_of(group, input) + 1] += 1;
    }
    for group in 0..groups {
        ends[group + 1] += ends[group];
    }
    let starts = ends.clone();
    // The outputs of a tap ascend with its inputs, so that each group is in order as it comes.
    let mut turned = vec![[0; 2]; pairs.len()];
    for (group, [output, input]) in each_pair() {
        let place = &mut ends[group_of(group, input)];
        turned[*place as usize] = [input, output];
        *place += 1;
    }
    Rulebook {
        pairs: turned.into_flattened(),
        starts,
    }
}

/// dx from dy, with the weights `[out_channels][taps][in_channels]`.
pub fn input_gradient(
    cpu: &Cpu,
    shape: &SparseConvShape,
    weight: &[f32],
    dy: &[f32],
    pairs: &InputPairs<'_>,
    dx: &mut [f32],
) {
    let SparseConvShape {
        in_channels,
        out_channels,
        taps,
        ..
    } = *shape;
    assert_eq!(weight.len(), shape.weight_len(), "length of the weights");
    let turned_tap = |tap: usize| match pairs {
        InputPairs::Transposed(_) => tap,
        InputPairs::Opposite(..) => taps - 1 - tap,
    };
    let mut turned = vec![0.0; weight.len()];
    for (row, values) in weight.chunks_exact(in_channels.max(1)).enumerate() {
        let (output, tap) = (row / taps, turned_tap(row % taps));
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
    let (pairs, starts) = match *pairs {
        InputPairs::Transposed(Rulebook { pairs, starts }) => (&pairs[..], &starts[..]),
        InputPairs::Opposite(pairs, starts) => (pairs, starts),
    };
    sparse_conv(cpu, &packed, dy, pairs, starts, Epilogue::default(), dx);
}
