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
use crate::simd::LANES;

pub(super) use columns::TileRun;
pub(super) use rows::FinishRows;
pub(super) use tile::{FinishTile, PixelRun};

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
    /// With the smallest byte that the activation leaves.
    Bytes(SharedMut<'a, i8>, ByteScale, f32),
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
        let [factors, bias] = filled_up(epilogue.input_scale, scales, epilogue.bias, together);
        // Bytes are cut off anyway: a ReLU is where.
        let (activation, output) = match (epilogue.activation, output) {
            (activation, ByteOutput::Floats(y)) => {
                (activation, SharedOutput::Floats(SharedMut::new(y)))
            }
            (Activation::Relu, ByteOutput::Bytes(y, scale)) => (
                Activation::Identity,
                SharedOutput::Bytes(SharedMut::new(y), scale, 0.0),
            ),
            (activation, ByteOutput::Bytes(y, scale)) => (
                activation,
                SharedOutput::Bytes(SharedMut::new(y), scale, scale.lowest()),
            ),
        };
        Finish {
            factors,
            bias,
            residual: epilogue.residual,
            added: None,
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
        let added = Some(filled_up(input_scale, scales, bias, together));
        Finish { added, ..self }
    }
}

/// Factors and biases of all channels, filled up with zeros.
fn filled_up(
    input_scale: f32,
    scales: &[f32],
    bias: Option<&[f32]>,
    together: usize,
) -> [Vec<f32>; 2] {
    let len = scales.len().next_multiple_of(together);
    let mut factors: Vec<f32> = scales.iter().map(|scale| scale * input_scale).collect();
    factors.resize(len, 0.0);
    let mut bias = bias.unwrap_or(&[]).to_vec();
    bias.resize(len, 0.0);
    [factors, bias]
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
    Bytes {
        y: &'a SharedMut<'a, i8>,
        /// Steps to the unit.
        per_unit: f32,
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

    /// When the activation is none or a ReLU.
    fn straight(&self) -> Option<StraightOutput<'_>> {
        Some(match (&self.output, self.activation) {
            // A ReLU is in the lowest byte already.
            (SharedOutput::Bytes(y, scale, lowest), Activation::Identity) => {
                StraightOutput::Bytes {
                    y,
                    per_unit: 1.0 / scale.scale,
                    lowest: *lowest,
                }
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
