//! Tiles of sums: four channels of up to 48 pixels.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::wide;
use super::{Addend, Finish, Rounding, SharedOutput, add_product, read_quads, write_quads};
use crate::activation::Activation;
use crate::aligned::FLOATS_PER_LINE;
use crate::conv::ConvShape;
#[cfg(target_arch = "x86_64")]
use crate::int8::has_wide;
use crate::int8::scale::Steps;
use crate::int8::tile::{GroupSums, Panel, SUM_ROW, TILE_PIXELS, TILE_ROWS};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd, prefetch_write};

/// Part of a panel: pixels that lie side by side.
#[derive(Clone, Copy)]
pub(in crate::int8) struct PixelRun {
    /// First column in the tile.
    pub(super) column: usize,
    pub(super) len: usize,
    /// The first pixel, within its sample.
    pub(super) pixel: usize,
    pub(super) sample: usize,
}

impl PixelRun {
    /// Some pixels of one sample, which are a whole panel.
    pub(in crate::int8) fn within(sample: usize, pixel: usize, len: usize) -> PixelRun {
        PixelRun {
            column: 0,
            len,
            pixel,
            sample,
        }
    }

    /// The runs of a part of the pixels that are numbered over all samples.
    pub(in crate::int8) fn of(
        pixels: Range<usize>,
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

/// A panel of each term, and where in the output its pixels go.
pub(in crate::int8) struct PlacedPanel {
    pub(in crate::int8) inputs: [Option<Panel>; 2],
    /// What it consists of, in order: these of some runs.
    pub(in crate::int8) runs: Range<usize>,
    /// Where the first two of those lie.
    pub(super) pieces: [Piece; 2],
}

/// A run as vectors of 16 columns see it.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece {
    /// Where the tile's first column would go among the quads of a group of channels, counted from the first one of the first sample.
    pub(super) quad: isize,
    /// Its columns in each vector.
    pub(super) masks: [u16; 3],
}

impl PlacedPanel {
    /// For pixels of samples that have so many, and so many quads of output; adds their runs.
    pub(in crate::int8) fn new(
        inputs: [Option<Panel>; 2],
        pixels: Range<usize>,
        [per_sample, quads]: [usize; 2],
        runs: &mut Vec<PixelRun>,
    ) -> PlacedPanel {
        let first = runs.len();
        runs.extend(PixelRun::of(pixels, per_sample));
        let mut pieces = [Piece::default(); 2];
        for (piece, run) in pieces.iter_mut().zip(&runs[first..]) {
            piece.quad = (run.sample * quads + run.pixel) as isize - run.column as isize;
            let columns = (u64::MAX >> (64 - run.len)) << run.column;
            piece.masks = [0, 16, 32].map(|column| (columns >> column) as u16);
        }
        PlacedPanel {
            inputs,
            runs: first..runs.len(),
            pieces,
        }
    }

    #[inline(always)]
    pub(super) fn pixels(&self) -> usize {
        self.inputs[0].map_or(0, |panel| panel.pixels)
    }
}

impl Finish<'_> {
    /// Asks for the lines of floats that tiles of some channels write, which come from far. Bytes are near enough: asking for them costs
    /// more than it gains, on several threads too.
    #[inline(always)]
    pub(in crate::int8) fn fetch(
        &self,
        channels: Range<usize>,
        shape: &ConvShape,
        runs: &[PixelRun],
    ) {
        let SharedOutput::Floats(y) = &self.output else {
            return;
        };
        let (all, pixels) = (shape.out_channels, shape.out_pixels());
        for run in runs {
            for channel in channels.start..channels.end.min(all) {
                let start = (run.sample * all + channel) * pixels + run.pixel;
                for at in (start..start + run.len).step_by(FLOATS_PER_LINE) {
                    prefetch_write(y.as_mut_ptr().wrapping_add(at));
                }
            }
        }
    }
}

/// Finishes the tiles of some groups of 4 channels, the first at `channel`, over a panel of pixels.
pub(in crate::int8) struct FinishTile<'a> {
    pub(in crate::int8) finish: &'a Finish<'a>,
    pub(in crate::int8) sums: &'a [GroupSums],
    /// Those of a second product, where there is one.
    pub(in crate::int8) added: &'a [GroupSums],
    pub(in crate::int8) channel: usize,
    /// Channels of the output.
    pub(in crate::int8) channels: usize,
    /// Pixels of a channel.
    pub(in crate::int8) out_pixels: usize,
    /// The panel.
    pub(in crate::int8) runs: &'a [PixelRun],
}

impl FinishTile<'_> {
    /// Finishes them by the fastest way of this CPU.
    pub(in crate::int8) fn finish(self, isa: Isa) {
        #[cfg(target_arch = "x86_64")]
        if has_wide(isa) {
            // SAFETY: this CPU has the instructions, and blocks have their own pixels or channels.
            let finished = unsafe { wide::finish(&self) };
            if finished {
                return;
            }
        }
        isa.run(self);
    }

    /// One of the groups over one of the runs.
    #[inline(always)]
    pub(super) fn group<'a>(
        &'a self,
        group: usize,
        sums: &'a GroupSums,
        run: PixelRun,
    ) -> Group<'a> {
        let second = self.finish.added.as_ref().zip(self.added.get(group));
        Group {
            finish: self.finish,
            sums,
            added: second.map(|([factors, bias], sums)| (sums, &factors[..], &bias[..])),
            channel: self.channel + group * TILE_ROWS,
            channels: self.channels,
            out_pixels: self.out_pixels,
            run,
        }
    }
}

impl Kernel for FinishTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for &run in self.runs {
            for (index, sums) in self.sums.iter().enumerate() {
                let group = self.group(index, sums, run);
                let done = group.finish_plain(s);
                match self.finish.rounding {
                    Rounding::Fused => group.finish_from::<S, true>(s, done),
                    Rounding::Each => group.finish_from::<S, false>(s, done),
                }
            }
        }
    }
}

/// One group of channels over one run of pixels.
pub(super) struct Group<'a> {
    pub(super) finish: &'a Finish<'a>,
    pub(super) sums: &'a GroupSums,
    /// The sums of a second product, with factors and biases of all channels.
    pub(super) added: Option<(&'a GroupSums, &'a [f32], &'a [f32])>,
    pub(super) channel: usize,
    channels: usize,
    out_pixels: usize,
    pub(super) run: PixelRun,
}

impl Group<'_> {
    /// Channels of the group that there are.
    #[inline(always)]
    pub(super) fn rows(&self) -> usize {
        (self.channels - self.channel).min(TILE_ROWS)
    }

    /// The run's first place among quads.
    #[inline(always)]
    pub(super) fn quad_place(&self) -> usize {
        let quads = self.channels.div_ceil(4);
        (self.run.sample * quads + self.channel / 4) * self.out_pixels + self.run.pixel
    }

    /// The run's first place in the plane of a channel.
    #[inline(always)]
    pub(super) fn plane(&self, i: usize) -> usize {
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
        let SharedOutput::Bytes {
            y,
            per_unit,
            lowest,
        } = &finish.output
        else {
            return 0;
        };
        let residual = match finish.residual {
            Some(Addend::Floats(_)) => return 0,
            Some(Addend::Bytes(bytes, scale)) => Some((bytes, scale)),
            None => None,
        };
        let whole = self.run.len / LANES * LANES;
        if finish.activation != Activation::Identity
            || finish.rounding == Rounding::Each
            || whole == 0
            || self.added.is_some()
        {
            return 0;
        }
        let start = 4 * self.quad_place();
        let (factors, bias) = (self.splat(s, &finish.factors), self.splat(s, &finish.bias));
        let steps = Steps::new(s, *per_unit, *lowest);
        // SAFETY: blocks have their own pixels or channels.
        let y = unsafe { y.slice(start..start + 4 * whole) };
        let (y, _) = y.as_chunks_mut::<{ 4 * LANES }>();
        assert!(self.run.column + whole <= TILE_PIXELS);
        let sums = self.sums.0[self.run.column..].as_ptr();
        // SAFETY: the run lies inside the tile.
        let sum =
            |i: usize, at: usize| unsafe { s.load_integers(sums.add(i * SUM_ROW + at * LANES)) };
        match residual {
            None => {
                for (at, y) in y.iter_mut().enumerate() {
                    let mut values = [s.splat(0.0); TILE_ROWS];
                    for i in 0..TILE_ROWS {
                        values[i] = steps.cut_off(s, s.fused(sum(i, at), factors[i], bias[i]));
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
                        let own = s.fused(sum(i, at), factors[i], bias[i]);
                        values[i] = steps.cut_off(s, s.fused(values[i], scale, own));
                    }
                    *y = bytemuck::cast(s.to_quads(values));
                }
            }
        }
        whole
    }

    /// Finishes everything from a pixel on.
    #[inline(always)]
    fn finish_from<S: Simd, const FUSED: bool>(&self, s: S, first: usize) {
        let (finish, run) = (self.finish, self.run);
        let (factors, bias) = (self.splat(s, &finish.factors), self.splat(s, &finish.bias));
        let quad_place = self.quad_place();
        let count = self.rows();
        for done in (first..run.len).step_by(LANES) {
            let n = (run.len - done).min(LANES);
            let column = run.column + done;
            let mut values = [s.splat(0.0); TILE_ROWS];
            for i in 0..TILE_ROWS {
                // The last vector may hang over its row.
                let sums = &self.sums.0[i * SUM_ROW + column..][..LANES];
                // SAFETY: 8 sums are there.
                let sum = unsafe { s.load_integers(sums.as_ptr()) };
                values[i] = add_product::<S, FUSED>(s, sum, factors[i], bias[i]);
            }
            if let Some((sums, factors, bias)) = self.added {
                for i in 0..TILE_ROWS {
                    let sums = &sums.0[i * SUM_ROW + column..][..LANES];
                    let [factor, bias] = [factors, bias].map(|all| s.splat(all[self.channel + i]));
                    // SAFETY: 8 sums are there.
                    let sum = unsafe { s.load_integers(sums.as_ptr()) };
                    values[i] = s.add(values[i], add_product::<S, FUSED>(s, sum, factor, bias));
                }
            }
            match finish.residual {
                Some(Addend::Floats(residual)) => {
                    for i in 0..count {
                        let residual = &residual[self.plane(i) + done..][..n];
                        let unit = s.splat(finish.unit);
                        values[i] = add_product::<S, FUSED>(s, s.read(residual), unit, values[i]);
                    }
                }
                Some(Addend::Bytes(residual, scale)) => {
                    let residual = &residual[4 * (quad_place + done)..][..4 * n];
                    let residual = s.widen_quads(read_quads(residual));
                    for i in 0..TILE_ROWS {
                        values[i] =
                            add_product::<S, FUSED>(s, residual[i], s.splat(scale), values[i]);
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
                SharedOutput::Bytes {
                    y,
                    per_unit,
                    lowest,
                } => {
                    let steps = Steps::new(s, *per_unit, *lowest);
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
