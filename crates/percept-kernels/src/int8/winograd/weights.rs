//! The transform of weights, G g G^T, rounded to words that no input can overflow.

use super::{ByteWeights, Chunk, POSITIONS, SPAN, pairs_of};
use crate::aligned::{AlignedBuf, SharedMut};
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::int8::tile::TILE_ROWS;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

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
        let mut rounded = vec![0; POSITIONS * inputs];
        for within in 0..TILE_ROWS.min(shape.out_channels - group * TILE_ROWS) {
            let output = group * TILE_ROWS + within;
            let row = &weights.values[output * inputs * 9..][..inputs * 9];
            let steps = cpu.isa().run(RoundRow {
                row,
                words: &mut rounded,
            });
            for (position, step) in steps.into_iter().enumerate() {
                let start = (chunk.start(position) + group - chunk.groups.start) * group_len;
                // SAFETY: each group has its own words at each position.
                let words = unsafe { word_target.slice(start..start + group_len) };
                let values = &rounded[position * inputs..][..inputs];
                for (input, &word) in values.iter().enumerate() {
                    let place = (input / 2 * TILE_ROWS + within) * 2 + input % 2;
                    words[place] = word;
                }
                scales[position * TILE_ROWS + within] =
                    (step * f64::from(weights.scales[output])) as f32;
            }
        }
    });
    (words, scales)
}

/// Transforms the weights of an output channel and rounds them; answers with the step of each position.
struct RoundRow<'a> {
    row: &'a [i8],
    /// `[position][channel]`.
    words: &'a mut [i16],
}

impl Kernel for RoundRow<'_> {
    type Output = [f64; POSITIONS];

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> [f64; POSITIONS] {
        let inputs = self.row.len() / 9;
        let transformed = transform(self.row);
        let width = inputs.next_multiple_of(LANES);
        let mut steps = [1.0; POSITIONS];
        for position in 0..POSITIONS {
            let values = &transformed[position * width..][..inputs];
            let step = step(values, largest_input(position));
            let words = &mut self.words[position * inputs..][..inputs];
            for (word, value) in words.iter_mut().zip(values) {
                *word = nearest(value / step) as i16;
            }
            steps[position] = step;
        }
        steps
    }
}

/// G g G^T of each input channel, `[position][channel]`, with zeros behind the last channel up to whole vectors.
#[inline(always)]
fn transform(row: &[i8]) -> Vec<f64> {
    let filters = row.as_chunks::<9>().0;
    let width = filters.len().next_multiple_of(LANES);
    let mut transformed = vec![0.0; POSITIONS * width];
    // Channels side by side, for vectors, and for writing whole cache lines.
    for (block, filters) in filters.chunks(LANES).enumerate() {
        let mut g = [[0.0; LANES]; 9];
        for (lane, filter) in filters.iter().enumerate() {
            for tap in 0..9 {
                g[tap][lane] = f64::from(filter[tap]);
            }
        }
        for i in 0..SPAN {
            let mut line = [[0.0; LANES]; 3];
            for x in 0..3 {
                line[x] = weighted(&G[i], [&g[x], &g[3 + x], &g[6 + x]]);
            }
            for j in 0..SPAN {
                let start = (i * SPAN + j) * width + block * LANES;
                let values = weighted(&G[j], [&line[0], &line[1], &line[2]]);
                transformed[start..start + LANES].copy_from_slice(&values);
            }
        }
    }
    transformed
}

#[inline(always)]
fn weighted(factors: &[f64; 3], [a, b, c]: [&[f64; LANES]; 3]) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for lane in 0..LANES {
        sums[lane] = a[lane] * factors[0] + b[lane] * factors[1] + c[lane] * factors[2];
    }
    sums
}

/// The nearest whole number, the one farther from zero of two, of a number below 2^31: [`f64::round`] without its call.
#[inline(always)]
pub(super) fn nearest(value: f64) -> i32 {
    let whole = value as i32;
    let rest = value - f64::from(whole);
    whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)
}

/// The finest step with which the values fit words, and no input of this size can bring their sum beyond 32 bits.
#[inline(always)]
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
    while rounded_sum(values, step) as f64 > most {
        step *= 1.0005;
    }
    step
}

/// The magnitudes in steps, rounded one by one.
#[inline(always)]
fn rounded_sum(values: &[f64], step: f64) -> i64 {
    let mut sum = 0;
    for value in values {
        sum += i64::from(nearest(value / step).abs());
    }
    sum
}
