//! What happens to finished sums: scale, bias, residual, activation, and the way to bytes or floats.

use super::scale::{ByteScale, Steps};
use super::tile::{TILE_PIXELS, TILE_ROWS};
use crate::activation::Activation;
use crate::aligned::SharedMut;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

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

/// An output that parallel blocks write disjoint parts of.
enum SharedOutput<'a> {
    Floats(SharedMut<'a, f32>),
    Bytes(SharedMut<'a, i8>, ByteScale),
}

/// How sums become results, for one call.
pub(super) struct Finish<'a> {
    /// Input scale times weight scale, for each output channel, filled up to whole tiles.
    factors: Vec<f32>,
    /// Filled up in the same way.
    bias: Vec<f32>,
    residual: Option<Addend<'a>>,
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
        let len = scales.len().next_multiple_of(together);
        let factor = |scale: &f32| scale * epilogue.input_scale;
        let mut factors: Vec<f32> = scales.iter().map(factor).collect();
        factors.resize(len, 0.0);
        let mut bias = epilogue.bias.unwrap_or(&[]).to_vec();
        bias.resize(len, 0.0);
        Finish {
            factors,
            bias,
            residual: epilogue.residual,
            activation: epilogue.activation,
            output: match output {
                ByteOutput::Floats(y) => SharedOutput::Floats(SharedMut::new(y)),
                ByteOutput::Bytes(y, scale) => SharedOutput::Bytes(SharedMut::new(y), scale),
            },
        }
    }
}

/// Part of a panel: pixels that lie side by side.
#[derive(Clone, Copy)]
pub(super) struct PixelRun {
    /// First column in the tile.
    pub(super) column: usize,
    pub(super) len: usize,
    /// The first pixel, counted over the quads of one channel group of its sample.
    pub(super) pixel: usize,
    /// Sample.
    pub(super) sample: usize,
}

impl PixelRun {
    /// The runs of a part of the pixels that are numbered over all samples.
    pub(super) fn of(
        pixels: std::ops::Range<usize>,
        per_sample: usize,
    ) -> impl Iterator<Item = PixelRun> {
        let mut next = pixels.start;
        std::iter::from_fn(move || {
            if next >= pixels.end {
                return None;
            }
            let (sample, pixel) = (next / per_sample, next % per_sample);
            let run = PixelRun {
                column: next - pixels.start,
                len: (per_sample - pixel).min(pixels.end - next),
                pixel,
                sample,
            };
            next += run.len;
            Some(run)
        })
    }
}

/// Finishes a tile of 4 channels from `channel` on (a multiple of 4 but for groups), over a run of pixels of a map.
pub(super) struct FinishMap<'a> {
    pub(super) finish: &'a Finish<'a>,
    pub(super) sums: &'a [i32; TILE_ROWS * TILE_PIXELS],
    pub(super) channel: usize,
    /// Channels of the output.
    pub(super) channels: usize,
    /// Pixels of a channel.
    pub(super) pixels: usize,
    pub(super) run: PixelRun,
}

impl Kernel for FinishMap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FinishMap {
            finish,
            sums,
            channel,
            channels,
            pixels,
            run,
        } = self;
        let quads = channels.div_ceil(4);
        let factors: [f32; 4] = std::array::from_fn(|i| finish.factors[channel + i]);
        let bias: [f32; 4] = std::array::from_fn(|i| finish.bias[channel + i]);
        let quad_place = (run.sample * quads + channel / 4) * pixels + run.pixel;
        let plane = |i: usize| (run.sample * channels + channel + i) * pixels + run.pixel;
        let count = (channels - channel).min(TILE_ROWS);
        for done in (0..run.len).step_by(LANES) {
            let n = (run.len - done).min(LANES);
            let column = run.column + done;
            let mut values = [s.splat(0.0); TILE_ROWS];
            for i in 0..TILE_ROWS {
                // The last vector may hang over its row, but not over the end of the last one.
                let sums = &sums[i * TILE_PIXELS..];
                let sum = if column + LANES <= sums.len() {
                    // SAFETY: 8 sums are there.
                    unsafe { s.load_integers(sums.as_ptr().add(column)) }
                } else {
                    let mut lanes = [0.0; LANES];
                    for (lane, sum) in lanes.iter_mut().zip(&sums[column..]) {
                        *lane = *sum as f32;
                    }
                    s.vector(lanes)
                };
                values[i] = s.add(s.mul(sum, s.splat(factors[i])), s.splat(bias[i]));
            }
            match finish.residual {
                Some(Addend::Floats(residual)) => {
                    for i in 0..count {
                        let residual = &residual[plane(i) + done..][..n];
                        values[i] = s.add(values[i], s.read(residual));
                    }
                }
                Some(Addend::Bytes(residual, scale)) => {
                    let residual = &residual[4 * (quad_place + done)..][..4 * n];
                    let residual = s.widen_quads(read_quads(residual));
                    for i in 0..TILE_ROWS {
                        let residual = s.mul(residual[i], s.splat(scale));
                        values[i] = s.add(values[i], residual);
                    }
                }
                None => {}
            }
            match &finish.output {
                SharedOutput::Floats(y) => {
                    for i in 0..count {
                        let start = plane(i) + done;
                        // SAFETY: blocks have their own pixels or channels.
                        let y = unsafe { y.slice(start..start + n) };
                        s.write(y, finish.activation.apply(s, values[i]));
                    }
                }
                SharedOutput::Bytes(y, scale) => {
                    let steps = scale.steps(s);
                    for i in 0..TILE_ROWS {
                        values[i] = steps.of(s, finish.activation.apply(s, values[i]));
                    }
                    let start = 4 * (quad_place + done);
                    // SAFETY: as above.
                    let y = unsafe { y.slice(start..start + 4 * n) };
                    write_quads(s.to_quads(values), y);
                }
            }
        }
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

/// Finishes some rows of sums, `stride` apart, from column `column` on.
pub(super) struct FinishRows<'a> {
    pub(super) finish: &'a Finish<'a>,
    pub(super) sums: &'a [i32],
    pub(super) stride: usize,
    /// First row of the output.
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    /// Columns to finish.
    pub(super) columns: usize,
    /// Columns of the output.
    pub(super) width: usize,
}

impl Kernel for FinishRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FinishRows {
            finish,
            sums,
            stride,
            row,
            rows,
            column,
            columns,
            width,
        } = self;
        let byte_width = width.next_multiple_of(4);
        for i in 0..rows {
            for done in (0..columns).step_by(LANES) {
                let n = (columns - done).min(LANES);
                let at = column + done;
                let sums = &sums[i * stride + done..][..LANES];
                // SAFETY: 8 sums are there.
                let sum = unsafe { s.load_integers(sums.as_ptr()) };
                let factors = s.read(&finish.factors[at..]);
                let mut value = s.add(s.mul(sum, factors), s.read(&finish.bias[at..]));
                let (float_place, byte_place) =
                    ((row + i) * width + at, (row + i) * byte_width + at);
                match finish.residual {
                    Some(Addend::Floats(residual)) => {
                        let residual = &residual[float_place..][..n];
                        value = s.add(value, s.read(residual));
                    }
                    Some(Addend::Bytes(residual, scale)) => {
                        let mut bytes = [0; LANES];
                        bytes[..n].copy_from_slice(&residual[byte_place..][..n]);
                        value = s.add(value, s.mul(s.widen_bytes(bytes), s.splat(scale)));
                    }
                    None => {}
                }
                let value = finish.activation.apply(s, value);
                match &finish.output {
                    SharedOutput::Floats(y) => {
                        // SAFETY: blocks have their own rows or columns.
                        let y = unsafe { y.slice(float_place..float_place + n) };
                        s.write(y, value);
                    }
                    SharedOutput::Bytes(y, scale) => {
                        let steps: Steps<S> = scale.steps(s);
                        let bytes = s.to_bytes(steps.of(s, value));
                        // The last quad is filled up with zeros.
                        let whole = if at + n == width { byte_width - at } else { n };
                        // SAFETY: as above.
                        let y = unsafe { y.slice(byte_place..byte_place + whole) };
                        y[n..].fill(0);
                        y[..n].copy_from_slice(&bytes[..n]);
                    }
                }
            }
        }
    }
}
