//! What happens to finished sums: scale, bias, residual, activation, and the way to bytes or floats.

use std::ops::Range;

use super::scale::{ByteScale, Steps};
use super::tile::{GroupSums, TILE_PIXELS, TILE_ROWS};
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
            activation,
            output,
        }
    }
}

/// What is left to do where results are bytes, nothing is added and no curved activation applied.
pub(super) struct PlainBytes<'a> {
    pub(super) factors: &'a [f32],
    pub(super) bias: &'a [f32],
    /// Steps of the output to the unit.
    pub(super) per_unit: f32,
    /// The smallest byte.
    pub(super) lowest: f32,
    pub(super) y: &'a SharedMut<'a, i8>,
}

impl Finish<'_> {
    /// When that is all.
    pub(super) fn plain(&self) -> Option<PlainBytes<'_>> {
        let is_plain = self.residual.is_none() && self.activation == Activation::Identity;
        match &self.output {
            SharedOutput::Bytes(y, scale, lowest) if is_plain => Some(PlainBytes {
                factors: &self.factors,
                bias: &self.bias,
                per_unit: 1.0 / scale.scale,
                lowest: *lowest,
                y,
            }),
            _ => None,
        }
    }
}

/// A row of a tile: some pixels side by side, none where the tile hangs over the map.
#[derive(Clone, Copy, Default)]
pub(super) struct TileRun {
    pub(super) sample: usize,
    /// The first of them, within its sample.
    pub(super) pixel: usize,
    pub(super) len: usize,
}

impl Finish<'_> {
    /// Finishes four columns of four channels, from `channel` on, of 8 tiles; `values` are `[column][channel]`.
    #[inline(always)]
    pub(super) fn finish_columns<S: Simd>(
        &self,
        s: S,
        channel: usize,
        channels: usize,
        out_pixels: usize,
        values: &mut [[S::V; TILE_ROWS]; 4],
        runs: &[TileRun; LANES],
    ) {
        let quads = channels.div_ceil(4);
        let quad_place =
            |sample: usize, pixel: usize| (sample * quads + channel / 4) * out_pixels + pixel;
        let plane = |sample: usize, i: usize, pixel: usize| {
            (sample * channels + channel + i) * out_pixels + pixel
        };
        let count = (channels - channel).min(TILE_ROWS);
        for i in 0..TILE_ROWS {
            let (factor, bias) = (
                s.splat(self.factors[channel + i]),
                s.splat(self.bias[channel + i]),
            );
            for column in 0..4 {
                values[column][i] = s.add(s.mul(values[column][i], factor), bias);
            }
        }
        match self.residual {
            Some(Addend::Floats(residual)) => {
                let mut added = [[[0.0; LANES]; TILE_ROWS]; 4];
                for (tile, &TileRun { sample, pixel, len }) in runs.iter().enumerate() {
                    for i in 0..count {
                        let from = &residual[plane(sample, i, pixel)..][..len];
                        for (column, &value) in from.iter().enumerate() {
                            added[column][i][tile] = value;
                        }
                    }
                }
                for column in 0..4 {
                    for i in 0..count {
                        values[column][i] = s.add(values[column][i], s.vector(added[column][i]));
                    }
                }
            }
            Some(Addend::Bytes(residual, scale)) => {
                let mut added = [[[0; 4]; LANES]; 4];
                for (tile, &TileRun { sample, pixel, len }) in runs.iter().enumerate() {
                    let from = &residual[4 * quad_place(sample, pixel)..][..4 * len];
                    for (column, &quad) in from.as_chunks::<4>().0.iter().enumerate() {
                        added[column][tile] = quad;
                    }
                }
                for column in 0..4 {
                    let added = s.widen_quads(added[column]);
                    for i in 0..TILE_ROWS {
                        let added = s.mul(added[i], s.splat(scale));
                        values[column][i] = s.add(values[column][i], added);
                    }
                }
            }
            None => {}
        }
        if self.activation != Activation::Identity {
            for value in values.as_flattened_mut() {
                *value = self.activation.apply(s, *value);
            }
        }
        match &self.output {
            SharedOutput::Floats(y) => {
                for i in 0..count {
                    let mut columns = [[0.0; LANES]; 4];
                    for column in 0..4 {
                        columns[column] = s.to_array(values[column][i]);
                    }
                    for (tile, &TileRun { sample, pixel, len }) in runs.iter().enumerate() {
                        let start = plane(sample, i, pixel);
                        // SAFETY: blocks have their own tiles.
                        let y = unsafe { y.slice(start..start + len) };
                        for (column, y) in y.iter_mut().enumerate() {
                            *y = columns[column][tile];
                        }
                    }
                }
            }
            SharedOutput::Bytes(y, scale, lowest) => {
                let steps = scale.steps_from(s, *lowest);
                let mut columns = [[[0; 4]; LANES]; 4];
                for column in 0..4 {
                    for i in 0..TILE_ROWS {
                        values[column][i] = steps.of(s, values[column][i]);
                    }
                    columns[column] = s.to_quads(values[column]);
                }
                // A quad is as wide as a float: the four of a tile's row come together as floats do.
                let mut quads = [s.splat(0.0); 4];
                for column in 0..4 {
                    let floats: [f32; LANES] = bytemuck::cast(columns[column]);
                    quads[column] = s.vector(floats);
                }
                let rows = s.merge4(quads);
                for (pair, row) in runs.as_chunks::<2>().0.iter().zip(rows) {
                    if let [TileRun { len: 4, .. }, TileRun { len: 4, .. }] = pair {
                        let [low, high] = pair.map(|TileRun { sample, pixel, .. }| {
                            let start = 4 * quad_place(sample, pixel);
                            // SAFETY: blocks have their own tiles.
                            unsafe { y.slice(start..start + 16) }.as_mut_ptr()
                        });
                        // SAFETY: 16 bytes each.
                        unsafe { s.store_halves(low.cast(), high.cast(), row) };
                        continue;
                    }
                    let both: [[i8; 16]; 2] = bytemuck::cast(s.to_array(row));
                    for (&TileRun { sample, pixel, len }, quads) in pair.iter().zip(both) {
                        let start = 4 * quad_place(sample, pixel);
                        // SAFETY: as above.
                        let y = unsafe { y.slice(start..start + 4 * len) };
                        y.copy_from_slice(&quads[..4 * len]);
                    }
                }
            }
        }
    }
}

/// Part of a panel: pixels that lie side by side.
#[derive(Clone, Copy)]
struct PixelRun {
    /// First column in the tile.
    column: usize,
    len: usize,
    /// The first pixel, within its sample.
    pixel: usize,
    sample: usize,
}

impl PixelRun {
    /// The runs of a part of the pixels that are numbered over all samples.
    fn of(pixels: Range<usize>, per_sample: usize) -> impl Iterator<Item = PixelRun> {
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

/// Finishes the tiles of some groups of 4 channels, the first at `channel`, over a panel of pixels that are numbered over all
/// samples.
pub(super) struct FinishTile<'a> {
    pub(super) finish: &'a Finish<'a>,
    pub(super) sums: &'a [GroupSums],
    pub(super) channel: usize,
    /// Channels of the output.
    pub(super) channels: usize,
    /// Pixels of a channel.
    pub(super) out_pixels: usize,
    pub(super) pixels: Range<usize>,
}

impl Kernel for FinishTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for run in PixelRun::of(self.pixels.clone(), self.out_pixels) {
            for (group, sums) in self.sums.iter().enumerate() {
                let group = Group {
                    finish: self.finish,
                    sums,
                    channel: self.channel + group * TILE_ROWS,
                    channels: self.channels,
                    out_pixels: self.out_pixels,
                    run,
                };
                let done = group.finish_plain(s);
                group.finish_from(s, done);
            }
        }
    }
}

/// One group of channels over one run of pixels.
struct Group<'a> {
    finish: &'a Finish<'a>,
    sums: &'a GroupSums,
    channel: usize,
    channels: usize,
    out_pixels: usize,
    run: PixelRun,
}

impl Group<'_> {
    /// The run's first place among quads.
    #[inline(always)]
    fn quad_place(&self) -> usize {
        let quads = self.channels.div_ceil(4);
        (self.run.sample * quads + self.channel / 4) * self.out_pixels + self.run.pixel
    }

    /// The run's first place in the plane of a channel.
    #[inline(always)]
    fn plane(&self, i: usize) -> usize {
        (self.run.sample * self.channels + self.channel + i) * self.out_pixels + self.run.pixel
    }

    #[inline(always)]
    fn splat<S: Simd>(&self, s: S, values: &[f32]) -> [S::V; TILE_ROWS] {
        let mut vectors = [s.splat(0.0); TILE_ROWS];
        for i in 0..TILE_ROWS {
            vectors[i] = s.splat(values[self.channel + i]);
        }
        vectors
    }

    /// Finishes whole vectors of the common kind, bytes without a curved activation and without floats to add; returns how
    /// many pixels are done. A short loop whose constants stay in registers.
    #[inline(always)]
    fn finish_plain<S: Simd>(&self, s: S) -> usize {
        let finish = self.finish;
        let SharedOutput::Bytes(y, scale, lowest) = &finish.output else {
            return 0;
        };
        let residual = match finish.residual {
            Some(Addend::Floats(_)) => return 0,
            Some(Addend::Bytes(bytes, scale)) => Some((bytes, scale)),
            None => None,
        };
        let whole = self.run.len / LANES * LANES;
        if finish.activation != Activation::Identity || whole == 0 {
            return 0;
        }
        let start = 4 * self.quad_place();
        let (factors, bias) = (self.splat(s, &finish.factors), self.splat(s, &finish.bias));
        let steps = scale.steps_from(s, *lowest);
        // SAFETY: blocks have their own pixels or channels.
        let y = unsafe { y.slice(start..start + 4 * whole) };
        let (y, _) = y.as_chunks_mut::<{ 4 * LANES }>();
        assert!(self.run.column + whole <= TILE_PIXELS);
        let sums = self.sums[self.run.column..].as_ptr();
        // SAFETY: the run lies inside the tile.
        let sum = |i: usize, at: usize| unsafe {
            s.load_integers(sums.add(i * TILE_PIXELS + at * LANES))
        };
        match residual {
            None => {
                for (at, y) in y.iter_mut().enumerate() {
                    let mut values = [s.splat(0.0); TILE_ROWS];
                    for i in 0..TILE_ROWS {
                        values[i] = steps.of(s, s.add(s.mul(sum(i, at), factors[i]), bias[i]));
                    }
                    *y = bytemuck::cast(s.to_quads(values));
                }
            }
            Some((residual, scale)) => {
                let (residual, _) = residual[start..][..4 * whole].as_chunks();
                let scale = s.splat(scale);
                for (at, (y, residual)) in y.iter_mut().zip(residual).enumerate() {
                    let residual: &[i8; 4 * LANES] = residual;
                    let mut values = s.widen_quads(bytemuck::cast(*residual));
                    for i in 0..TILE_ROWS {
                        let own = s.add(s.mul(sum(i, at), factors[i]), bias[i]);
                        values[i] = steps.of(s, s.add(own, s.mul(values[i], scale)));
                    }
                    *y = bytemuck::cast(s.to_quads(values));
                }
            }
        }
        whole
    }

    /// Finishes everything from a pixel on.
    #[inline(always)]
    fn finish_from<S: Simd>(&self, s: S, first: usize) {
        let (finish, run) = (self.finish, self.run);
        let (factors, bias) = (self.splat(s, &finish.factors), self.splat(s, &finish.bias));
        let quad_place = self.quad_place();
        let count = (self.channels - self.channel).min(TILE_ROWS);
        for done in (first..run.len).step_by(LANES) {
            let n = (run.len - done).min(LANES);
            let column = run.column + done;
            let mut values = [s.splat(0.0); TILE_ROWS];
            for i in 0..TILE_ROWS {
                // The last vector may hang over its row.
                let sums = &self.sums[i * TILE_PIXELS + column..][..LANES];
                // SAFETY: 8 sums are there.
                let sum = unsafe { s.load_integers(sums.as_ptr()) };
                values[i] = s.add(s.mul(sum, factors[i]), bias[i]);
            }
            match finish.residual {
                Some(Addend::Floats(residual)) => {
                    for i in 0..count {
                        let residual = &residual[self.plane(i) + done..][..n];
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
            if finish.activation != Activation::Identity {
                for i in 0..TILE_ROWS {
                    values[i] = finish.activation.apply(s, values[i]);
                }
            }
            match &finish.output {
                SharedOutput::Floats(y) => {
                    for i in 0..count {
                        let start = self.plane(i) + done;
                        // SAFETY: blocks have their own pixels or channels.
                        s.write(unsafe { y.slice(start..start + n) }, values[i]);
                    }
                }
                SharedOutput::Bytes(y, scale, lowest) => {
                    let steps = scale.steps_from(s, *lowest);
                    for i in 0..TILE_ROWS {
                        values[i] = steps.of(s, values[i]);
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
        for done in (0..columns).step_by(LANES) {
            let n = (columns - done).min(LANES);
            let at = column + done;
            let (factors, bias) = (s.read(&finish.factors[at..]), s.read(&finish.bias[at..]));
            for i in 0..rows {
                let sums = &sums[i * stride + done..][..LANES];
                // SAFETY: 8 sums are there.
                let sum = unsafe { s.load_integers(sums.as_ptr()) };
                let mut value = s.add(s.mul(sum, factors), bias);
                let (float_place, byte_place) =
                    ((row + i) * width + at, (row + i) * byte_width + at);
                match finish.residual {
                    Some(Addend::Floats(residual)) => {
                        let residual = &residual[float_place..][..n];
                        value = s.add(value, s.read(residual));
                    }
                    Some(Addend::Bytes(residual, scale)) => {
                        let bytes = read_bytes(&residual[byte_place..][..n]);
                        value = s.add(value, s.mul(s.widen_bytes(bytes), s.splat(scale)));
                    }
                    None => {}
                }
                if finish.activation != Activation::Identity {
                    value = finish.activation.apply(s, value);
                }
                match &finish.output {
                    SharedOutput::Floats(y) => {
                        // SAFETY: blocks have their own rows or columns.
                        let y = unsafe { y.slice(float_place..float_place + n) };
                        s.write(y, value);
                    }
                    SharedOutput::Bytes(y, scale, lowest) => {
                        let steps: Steps<S> = scale.steps_from(s, *lowest);
                        let bytes = s.to_bytes(steps.of(s, value));
                        // The last quad is filled up with zeros.
                        let whole = if at + n == width { byte_width - at } else { n };
                        // SAFETY: as above.
                        let y = unsafe { y.slice(byte_place..byte_place + whole) };
                        match y.as_mut_array::<LANES>() {
                            Some(y) if n == LANES => *y = bytes,
                            _ => {
                                y[n..].fill(0);
                                y[..n].copy_from_slice(&bytes[..n]);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn read_bytes(bytes: &[i8]) -> [i8; LANES] {
    if let Some(whole) = bytes.as_array::<LANES>() {
        return *whole;
    }
    let mut lanes = [0; LANES];
    lanes[..bytes.len()].copy_from_slice(bytes);
    lanes
}
