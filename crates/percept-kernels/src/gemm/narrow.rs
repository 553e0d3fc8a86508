//! Linear layers of few inputs, summed in f64.
//!
//! Layers that take coordinates have few inputs, and their terms cancel: metres from the origin, where decimetres matter. A
//! product of two f32 is exact in f64, so sums are rounded once, at their end, and their bits are the same on every instruction
//! set. It costs little: what such a layer waits for is memory.

use crate::aligned::SharedMut;
use crate::cpu::{Cpu, Scratch};
use crate::epilogue::Epilogue;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Layers of more inputs are summed in f32.
pub(super) const MOST_INPUTS: usize = 16;

/// Rows that are summed together: as many sums in flight hide the latency of one.
const ROWS: usize = 4;
/// Rows that a thread takes at a time.
const BLOCK_ROWS: usize = 256;

/// The weights of a layer, `[inputs][columns]`, with outputs padded to whole vectors.
#[derive(Debug)]
pub(super) struct NarrowWeights {
    inputs: usize,
    outputs: usize,
    columns: usize,
    values: Vec<f64>,
}

impl NarrowWeights {
    /// Of row-major weights `[outputs, inputs]`.
    pub(super) fn pack(weight: &[f32], outputs: usize, inputs: usize) -> NarrowWeights {
        assert!(inputs <= MOST_INPUTS, "{inputs} inputs are not few");
        let columns = outputs.next_multiple_of(LANES);
        let mut values = vec![0.0; inputs * columns];
        for output in 0..outputs {
            for input in 0..inputs {
                values[input * columns + output] = f64::from(weight[output * inputs + input]);
            }
        }
        NarrowWeights {
            inputs,
            outputs,
            columns,
            values,
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.values.len() * size_of::<f64>()
    }
}

/// `y[M, N] = activation(x[M, K] W^T + bias[N] + residual[M, N])`; lengths were checked.
pub(super) fn linear(
    cpu: &Cpu,
    weights: &NarrowWeights,
    x: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let (inputs, outputs) = (weights.inputs, weights.outputs);
    if outputs == 0 {
        return;
    }
    let rows = x.len() / inputs;
    let mut bias = vec![0.0; weights.columns];
    for (wide, &narrow) in bias.iter_mut().zip(epilogue.bias.unwrap_or_default()) {
        *wide = f64::from(narrow);
    }
    let y = SharedMut::new(y);
    cpu.parallel(rows.div_ceil(BLOCK_ROWS), &|block, scratch| {
        let first = block * BLOCK_ROWS;
        let last = rows.min(first + BLOCK_ROWS);
        let written = first * outputs..last * outputs;
        cpu.isa().run(Block {
            weights,
            bias: &bias,
            x: &x[first * inputs..last * inputs],
            residual: epilogue.residual.map(|residual| &residual[written.clone()]),
            epilogue,
            // SAFETY: blocks are disjoint.
            y: unsafe { y.slice(written) },
            scratch,
        });
    });
}

struct Block<'a> {
    weights: &'a NarrowWeights,
    /// Padded.
    bias: &'a [f64],
    x: &'a [f32],
    residual: Option<&'a [f32]>,
    epilogue: Epilogue<'a>,
    y: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NarrowWeights {
            inputs,
            outputs,
            columns,
            ..
        } = *self.weights;
        let [sums] = self.scratch.floats([ROWS * columns]);
        let all = self.x.chunks(ROWS * inputs).enumerate();
        for (tile, rows) in all {
            let mut x = [[0.0; MOST_INPUTS]; ROWS];
            for (wide, row) in x.iter_mut().zip(rows.chunks_exact(inputs)) {
                for (wide, &narrow) in wide.iter_mut().zip(row) {
                    *wide = f64::from(narrow);
                }
            }
            match s.wide() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Wide` proves AVX-512.
                Some(_) => unsafe { avx512::sum(self.weights, self.bias, &x, sums) },
                _ => sum(self.weights, self.bias, &x, sums),
            }
            for (row, sums) in sums
                .chunks_exact(columns)
                .take(rows.len() / inputs)
                .enumerate()
            {
                let start = (tile * ROWS + row) * outputs;
                for column in (0..outputs).step_by(LANES) {
                    let place = start + column..start + outputs.min(column + LANES);
                    let mut value = s.read(&sums[column..column + LANES]);
                    if let Some(residual) = self.residual {
                        value = s.add(value, s.read(&residual[place.clone()]));
                    } else if self.epilogue.residual_in_place {
                        value = s.add(value, s.read(&self.y[place.clone()]));
                    }
                    value = self.epilogue.activation.apply(s, value);
                    s.write(&mut self.y[place], value);
                }
            }
        }
    }
}

/// The sums of a few rows, bias first, `[ROWS][columns]`.
#[inline(always)]
fn sum(weights: &NarrowWeights, bias: &[f64], x: &[[f64; MOST_INPUTS]; ROWS], y: &mut [f32]) {
    let columns = weights.columns;
    for column in (0..columns).step_by(LANES) {
        for row in 0..ROWS {
            let mut sums = [0.0; LANES];
            sums.copy_from_slice(&bias[column..column + LANES]);
            for input in 0..weights.inputs {
                let values = &weights.values[input * columns + column..][..LANES];
                for lane in 0..LANES {
                    // Not fused: the product is exact, so the bits are the same.
                    sums[lane] += x[row][input] * values[lane];
                }
            }
            let y = &mut y[row * columns + column..][..LANES];
            for lane in 0..LANES {
                y[lane] = sums[lane] as f32;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{MOST_INPUTS, NarrowWeights, ROWS};
    use crate::simd::LANES;

    /// As [`sum`](super::sum).
    #[target_feature(enable = "avx512f")]
    pub(super) fn sum(
        weights: &NarrowWeights,
        bias: &[f64],
        x: &[[f64; MOST_INPUTS]; ROWS],
        y: &mut [f32],
    ) {
        let columns = weights.columns;
        assert!(weights.values.len() == weights.inputs * columns && weights.inputs <= MOST_INPUTS);
        assert!(bias.len() == columns && y.len() == ROWS * columns);
        for column in (0..columns).step_by(LANES) {
            // SAFETY: columns are whole vectors; lengths were checked above.
            unsafe {
                let mut sums = [_mm512_loadu_pd(bias.as_ptr().add(column)); ROWS];
                for input in 0..weights.inputs {
                    let at = weights.values.as_ptr().add(input * columns + column);
                    let values = _mm512_loadu_pd(at);
                    for row in 0..ROWS {
                        let x = _mm512_set1_pd(*x[row].get_unchecked(input));
                        sums[row] = _mm512_fmadd_pd(x, values, sums[row]);
                    }
                }
                for row in 0..ROWS {
                    let to = y.as_mut_ptr().add(row * columns + column);
                    _mm256_storeu_ps(to, _mm512_cvtpd_ps(sums[row]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PackedLinear, linear};
    use super::*;
    use crate::activation::Activation;
    use crate::isa::Isa;
    use crate::testing::numbers;

    /// Sums whose terms cancel are rounded once, with the same bits everywhere.
    #[test]
    fn sums_are_rounded_once() {
        for (rows, inputs, outputs) in [(0, 3, 8), (1, 1, 1), (7, 10, 8), (261, 16, 19), (9, 8, 40)]
        {
            let mut x = numbers(1, rows * inputs);
            // Far from the origin: each number is followed by one that nearly takes it back.
            for pair in x.chunks_exact_mut(2) {
                pair[0] += 1e4;
                pair[1] -= 1e4;
            }
            let weight: Vec<f32> = numbers(2, outputs * inputs)
                .iter()
                .map(|value| 1.0 + value * 1e-3)
                .collect();
            let bias = numbers(3, outputs);
            let epilogue = Epilogue {
                bias: Some(&bias),
                activation: Activation::LeakyRelu(0.25),
                ..Epilogue::default()
            };
            let expected: Vec<f32> = (0..rows * outputs)
                .map(|at| {
                    let (row, output) = (at / outputs, at % outputs);
                    let terms = (0..inputs).map(|input| {
                        f64::from(x[row * inputs + input])
                            * f64::from(weight[output * inputs + input])
                    });
                    let sum = terms.fold(f64::from(bias[output]), |sum, term| sum + term) as f32;
                    if sum < 0.0 { 0.25 * sum } else { sum }
                })
                .collect();
            for isa in Isa::available() {
                for threads in 1..=3 {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let packed = PackedLinear::pack(&cpu, &weight, outputs, inputs);
                    let mut y = vec![f32::NAN; rows * outputs];
                    linear(&cpu, &packed, &x, epilogue, &mut y);
                    assert_eq!(y, expected, "{isa}, {threads} threads, {inputs} inputs");
                }
            }
        }
    }
}
