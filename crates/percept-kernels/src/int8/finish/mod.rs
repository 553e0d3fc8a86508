//! What happens to finished sums: scale, bias, residual, activation, and the way to bytes or floats.

mod columns;
#[cfg(target_arch = "x86_64")]
mod registers;
mod rows;
mod tile;
#[cfg(target_arch = "x86_64")]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod wide;

use super::map::map_len;
use super::scale::ByteScale;
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::conv::ConvShape;
use crate::simd::{LANES, Simd};

pub(super) use columns::TileRun;
pub(super) use rows::FinishRows;
pub(super) use tile::{FinishTile, PixelRun, PlacedPanel};
#[cfg(target_arch = "x86_64")]
pub(super) use vectors::{cut_off, quads_of};

/// `y = activation(sum · input scale · weight scale + bias + residual)`.
#[derive(Clone, Copy, Debug)]
pub struct ByteEpilogue<'a> {
    /// What a step of the input stands for.
    pub input_scale: f32,
    /// One value for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Added element by element; has the output's shape.
    pub residual: Option<Addend<'a>>,
    /// Applied last.
    pub activation: Activation,
    /// How this is rounded.
    pub rounding: Rounding,
}

/// How sums become results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// In as few roundings as there can be: by fused multiply-adds, and counted in steps all the way where results are bytes behind a
    /// straight activation.
    #[default]
    Fused,
    /// One operator after the other, each rounded, as a file for other engines has them. Slower.
    Each,
}

/// A residual: floats in their own layout, or bytes in theirs with what a step stands for.
#[derive(Clone, Copy, Debug)]
pub enum Addend<'a> {
    /// Floats.
    Floats(&'a [f32]),
    /// Bytes.
    Bytes(&'a [i8], f32),
}

/// Where results go.
#[derive(Debug)]
pub enum ByteOutput<'a> {
    /// As floats, in their own layout: maps NCHW, rows as they are.
    Floats(&'a mut [f32]),
    /// As bytes of this scale: maps in quads, rows filled up to whole quads.
    Bytes(&'a mut [i8], ByteScale),
}

impl ByteOutput<'_> {
    /// The same, to write to once more.
    pub(super) fn again(&mut self) -> ByteOutput<'_> {
        match self {
            ByteOutput::Floats(y) => ByteOutput::Floats(y),
            ByteOutput::Bytes(y, scale) => ByteOutput::Bytes(y, *scale),
        }
    }
}

impl ByteEpilogue<'_> {
    /// Panics when a slice does not have its length; `floats` and `bytes` are those of the output in either form.
    pub(super) fn check(
        &self,
        output: &ByteOutput<'_>,
        channels: usize,
        floats: usize,
        bytes: usize,
    ) {
        if let Some(bias) = self.bias {
            assert_eq!(bias.len(), channels, "length of the bias");
        }
        match self.residual {
            Some(Addend::Floats(values)) => assert_eq!(values.len(), floats, "residual's length"),
            Some(Addend::Bytes(values, _)) => assert_eq!(values.len(), bytes, "residual's length"),
            None => {}
        }
        match output {
            ByteOutput::Floats(y) => assert_eq!(y.len(), floats, "length of the output"),
            ByteOutput::Bytes(y, _) => assert_eq!(y.len(), bytes, "length of the output"),
        }
    }
}

impl ByteEpilogue<'_> {
    /// The same, for a convolution of maps.
    pub(super) fn check_maps(&self, output: &ByteOutput<'_>, shape: &ConvShape) {
        let bytes = map_len(shape.batch, shape.out_channels, shape.out_pixels());
        self.check(output, shape.out_channels, shape.out_len(), bytes);
    }
}

/// An output that parallel blocks write disjoint parts of.
enum SharedOutput<'a> {
    Floats(SharedMut<'a, f32>),
    Bytes {
        y: SharedMut<'a, i8>,
        /// What numbers are multiplied by at the end: steps to the unit, or 1 where they were counted in steps all the way.
        per_unit: f32,
        /// The smallest byte that the activation leaves.
        lowest: f32,
    },
}

/// How sums become results, for one call.
pub(super) struct Finish<'a> {
    /// Input scale times weight scale, for each output channel, filled up to whole tiles.
    factors: Vec<f32>,
    /// Filled up in the same way.
    bias: Vec<f32>,
    residual: Option<Addend<'a>>,
    /// Factors and biases of a second product's sums, filled up too.
    added: Option<[Vec<f32>; 2]>,
    /// What all of these were multiplied by, and floats that are added have to be. Bytes behind a straight activation are counted in steps
    /// from the start, so that nothing is left to multiply at the end; else it is 1.
    unit: f32,
    rounding: Rounding,
    /// Whether no sums whatever can become numbers beyond the integers of 32 bits.
    fits_integers: bool,
    activation: Activation,
    output: SharedOutput<'a>,
}

impl<'a> Finish<'a> {
    /// For weights of these scales, in tiles of so many channels.
    pub(super) fn new(
        epilogue: &ByteEpilogue<'a>,
        scales: &[f32],
        together: usize,
        output: ByteOutput<'a>,
    ) -> Self {
        let mut activation = epilogue.activation;
        let (unit, output) = match output {
            ByteOutput::Floats(y) => (1.0, SharedOutput::Floats(SharedMut::new(y))),
            ByteOutput::Bytes(y, scale) => {
                let lowest = match activation {
                    Activation::Relu => 0.0,
                    _ => scale.lowest(),
                };
                // Bytes are cut off anyway: a ReLU is where.
                if activation == Activation::Relu {
                    activation = Activation::Identity;
                }
                let (unit, per_unit) = match (activation, epilogue.rounding) {
                    (Activation::Identity, Rounding::Fused) => (scale.per_unit(), 1.0),
                    _ => (1.0, scale.per_unit()),
                };
                let y = SharedMut::new(y);
                let output = SharedOutput::Bytes {
                    y,
                    per_unit,
                    lowest,
                };
                (unit, output)
            }
        };
        let residual = epilogue.residual.map(|residual| match residual {
            Addend::Bytes(bytes, scale) => Addend::Bytes(bytes, scale * unit),
            floats => floats,
        });
        let [factors, bias] =
            filled_up(unit, epilogue.input_scale, scales, epilogue.bias, together);
        let residual_fits = match residual {
            None => true,
            Some(Addend::Bytes(_, scale)) => scale.abs() < (1 << 21) as f32,
            Some(Addend::Floats(_)) => false,
        };
        Finish {
            fits_integers: residual_fits && fit_integers(&factors, &bias),
            factors,
            bias,
            residual,
            added: None,
            unit,
            rounding: epilogue.rounding,
            activation,
            output,
        }
    }

    /// The same, for tiles that hold the sums of a second product as well, which has this input scale, these scales and bias.
    pub(super) fn adding(
        self,
        input_scale: f32,
        scales: &[f32],
        bias: Option<&[f32]>,
        together: usize,
    ) -> Self {
        let [factors, bias] = filled_up(self.unit, input_scale, scales, bias, together);
        Finish {
            fits_integers: self.fits_integers && fit_integers(&factors, &bias),
            added: Some([factors, bias]),
            ..self
        }
    }
}

/// `a · b + c`, rounded once or twice. Known when compiled: asked in the loops, it took 3 % of EfficientNet-B0's time.
#[inline(always)]
fn add_product<S: Simd, const FUSED: bool>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
    match FUSED {
        true => s.fused(a, b, c),
        false => s.add(s.mul(a, b), c),
    }
}

/// Factors and biases of all channels in this unit, filled up with zeros.
fn filled_up(
    unit: f32,
    input_scale: f32,
    scales: &[f32],
    bias: Option<&[f32]>,
    together: usize,
) -> [Vec<f32>; 2] {
    let len = scales.len().next_multiple_of(together);
    let factors = scales.iter().map(|scale| scale * input_scale * unit);
    let bias = bias.unwrap_or(&[]).iter().map(|bias| bias * unit);
    let [mut factors, mut bias]: [Vec<f32>; 2] = [factors.collect(), bias.collect()];
    factors.resize(len, 0.0);
    bias.resize(len, 0.0);
    [factors, bias]
}

/// Whether products stay below 2^29 + 2^28, so that two of them and a residual of as many steps fit integers of 32 bits: their sums do.
fn fit_integers(factors: &[f32], bias: &[f32]) -> bool {
    let factors_fit = factors.iter().all(|factor| factor.abs() < 0.25);
    factors_fit && bias.iter().all(|bias| bias.abs() < (1 << 28) as f32)
}

/// What is left to do where nothing is added and no curved activation applied.
#[cfg(target_arch = "x86_64")]
pub(super) struct Plain<'a> {
    pub(super) factors: &'a [f32],
    pub(super) bias: &'a [f32],
    pub(super) output: StraightOutput<'a>,
}

/// Where results of straight activations go, and the smallest of them.
#[cfg(target_arch = "x86_64")]
pub(super) enum StraightOutput<'a> {
    Floats {
        y: &'a SharedMut<'a, f32>,
        lowest: f32,
    },
    /// Counted in steps.
    Bytes {
        y: &'a SharedMut<'a, i8>,
        lowest: f32,
    },
}

#[cfg(target_arch = "x86_64")]
impl Finish<'_> {
    /// When that is all.
    pub(super) fn plain(&self) -> Option<Plain<'_>> {
        if self.residual.is_some() {
            return None;
        }
        Some(Plain {
            factors: &self.factors,
            bias: &self.bias,
            output: self.straight()?,
        })
    }

    /// When the activation is none or a ReLU, and roundings are few.
    fn straight(&self) -> Option<StraightOutput<'_>> {
        if self.rounding == Rounding::Each {
            return None;
        }
        Some(match (&self.output, self.activation) {
            // A ReLU is in the lowest byte already.
            (SharedOutput::Bytes { y, lowest, .. }, Activation::Identity) => {
                StraightOutput::Bytes { y, lowest: *lowest }
            }
            (SharedOutput::Floats(y), Activation::Identity) => StraightOutput::Floats {
                y,
                lowest: f32::NEG_INFINITY,
            },
            (SharedOutput::Floats(y), Activation::Relu) => {
                StraightOutput::Floats { y, lowest: 0.0 }
            }
            _ => return None,
        })
    }
}

#[inline(always)]
pub(super) fn read_quads(bytes: &[i8]) -> [[i8; 4]; LANES] {
    if let Some(whole) = bytes.first_chunk::<{ 4 * LANES }>() {
        return bytemuck::cast(*whole);
    }
    let mut quads = [[0; 4]; LANES];
    quads.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
    quads
}

#[inline(always)]
pub(super) fn write_quads(quads: [[i8; 4]; LANES], to: &mut [i8]) {
    if let Some(whole) = to.first_chunk_mut::<{ 4 * LANES }>() {
        *whole = bytemuck::cast(quads);
    } else {
        let len = to.len();
        to.copy_from_slice(&quads.as_flattened()[..len]);
    }
}
