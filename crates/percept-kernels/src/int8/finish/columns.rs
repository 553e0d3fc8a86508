//! Columns of Winograd's tiles.

use super::{Addend, Finish, SharedOutput};
use crate::activation::Activation;
use crate::int8::scale::Steps;
use crate::int8::tile::TILE_ROWS;
use crate::simd::{LANES, Simd};

/// A row of a tile: some pixels side by side, none where the tile hangs over the map.
#[derive(Clone, Copy, Default, PartialEq)]
pub(in crate::int8) struct TileRun {
    pub(in crate::int8) sample: usize,
    /// The first of them, within its sample.
    pub(in crate::int8) pixel: usize,
    pub(in crate::int8) len: usize,
}

impl Finish<'_> {
    /// The first float of a channel's plane in the first sample, when results are floats.
    pub(in crate::int8) fn plane(&self, channel: usize, out_pixels: usize) -> Option<*const f32> {
        match &self.output {
            SharedOutput::Floats(y) => Some(
                y.as_mut_ptr()
                    .wrapping_add(channel * out_pixels)
                    .cast_const(),
            ),
            SharedOutput::Bytes { .. } => None,
        }
    }

    /// Finishes four columns of four channels, from `channel` on, of 8 tiles; `values` are `[column][channel]`.
    #[inline(always)]
    pub(in crate::int8) fn finish_columns<S: Simd>(
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
                values[column][i] = s.fused(values[column][i], factor, bias);
            }
        }
        match self.residual {
            Some(Addend::Floats(residual)) => {
                let mut added = [[[0.0; LANES]; TILE_ROWS]; 4];
                let unit = s.splat(self.unit);
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
                        let added = s.vector(added[column][i]);
                        values[column][i] = s.fused(added, unit, values[column][i]);
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
                        values[column][i] = s.fused(added[i], s.splat(scale), values[column][i]);
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
            SharedOutput::Bytes {
                y,
                per_unit,
                lowest,
            } => {
                let steps = Steps::new(s, *per_unit, *lowest);
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
