//! The transform of weights, G g G^T, rounded to words that no input can overflow.

use super::{ByteWeights, Chunk, POSITIONS, SPAN, pairs_of};
use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::int8::tile::TILE_ROWS;

/// G of F(4x4, 3x3).
const G: [[f64; 3]; SPAN] = [
    [0.25, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];

/// How much each row of B^T can enlarge an input: the sum of its magnitudes.
const GROWTH: [i64; SPAN] = [10, 10, 10, 6, 6, 10];

/// The largest magnitude that an input's transform can have at a position.
pub(super) fn largest_input(position: usize) -> i64 {
    127 * GROWTH[position / SPAN] * GROWTH[position % SPAN]
}

/// The words `[chunk][position][group][pair][4 channels][2]` and their scales `[group][position][4 channels]`.
pub(super) fn pack(cpu: &Cpu, shape: &ConvShape, weights: &ByteWeights) -> (AlignedBuf, Vec<f32>) {
    let (inputs, pairs) = (shape.in_channels, pairs_of(shape.in_channels));
    let groups = shape.out_channels.div_ceil(TILE_ROWS);
    let group_len = pairs * TILE_ROWS * 2;
    let mut words = AlignedBuf::zeroed(POSITIONS * groups * group_len * size_of::<i16>());
    let mut scales = vec![0.0; groups * POSITIONS * TILE_ROWS];
    let word_target = SharedMut::new(bytemuck::cast_slice_mut::<u8, i16>(words.bytes_mut()));
    let scale_target = SharedMut::new(&mut scales);
    cpu.parallel(groups, &|group, _| {
        // SAFETY: each group has its own scales.
        let scales = unsafe {
            let len = POSITIONS * TILE_ROWS;
            scale_target.slice(group * len..(group + 1) * len)
        };
        let chunk = Chunk::of(group, groups);
        for within in 0..TILE_ROWS.min(shape.out_channels - group * TILE_ROWS) {
            let output = group * TILE_ROWS + within;
            let row = &weights.values[output * inputs * 9..][..inputs * 9];
            let transformed = transform(row);
            for (position, values) in transformed.chunks_exact(inputs.max(1)).enumerate() {
                let start = (chunk.start(position) + group - chunk.groups.start) * group_len;
                // SAFETY: each group has its own words at each position.
                let words = unsafe { word_target.slice(start..start + group_len) };
                let step = step(values, largest_input(position));
                for (input, value) in values.iter().enumerate() {
                    let place = (input / 2 * TILE_ROWS + within) * 2 + input % 2;
                    words[place] = (value / step).round() as i16;
                }
                scales[position * TILE_ROWS + within] =
                    (step * f64::from(weights.scales[output])) as f32;
            }
        }
    });
    (words, scales)
}

/// G g G^T of each input channel, `[position][channel]`.
fn transform(row: &[i8]) -> Vec<f64> {
    let inputs = row.len() / 9;
    let mut transformed = vec![0.0; POSITIONS * inputs];
    for (input, filter) in row.as_chunks::<9>().0.iter().enumerate() {
        let g = filter.map(f64::from);
        for i in 0..SPAN {
            let line: [f64; 3] =
                std::array::from_fn(|x| (0..3).map(|y| G[i][y] * g[3 * y + x]).sum());
            for j in 0..SPAN {
                transformed[(i * SPAN + j) * inputs + input] =
                    (0..3).map(|x| line[x] * G[j][x]).sum();
            }
        }
    }
    transformed
}

/// The finest step with which the values fit words, and no input of this size can bring their sum beyond 32 bits.
pub(super) fn step(values: &[f64], largest_input: i64) -> f64 {
    let largest = values
        .iter()
        .fold(0.0f64, |largest, v| largest.max(v.abs()));
    let sum: f64 = values.iter().map(|value| value.abs()).sum();
    if largest == 0.0 {
        return 1.0;
    }
    let most = f64::from(i32::MAX) / largest_input as f64;
    let mut step = (largest / f64::from(i16::MAX)).max(sum / most);
    // Rounding may add half a step to each value.
    while values.iter().map(|v| (v / step).round().abs()).sum::<f64>() > most {
        step *= 1.0005;
    }
    step
}
