//! A convolution as a matrix product whose input is gathered panel by panel, or lies as tiles read it.

use std::ops::Range;

use super::conv::ByteConv;
#[cfg(target_arch = "x86_64")]
use super::gather::Pieces;
#[cfg(target_arch = "x86_64")]
use super::has_wide;
use super::map::check_input;
use super::tile::{FEW_PIXELS, Panel, READ_TOGETHER, SPREAD_DEEP, TILE_ROWS, TileRows, lift};
use super::weights::QuadOrder;
use crate::aligned::FLOATS_PER_LINE;
use crate::conv::ConvShape;
use crate::conv::gather::{PanelPlan, SLACK};
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Room behind a gathered panel, and so that panels do not all begin in the same cache sets.
const PANEL_PADDING: usize = SLACK + FLOATS_PER_LINE;

/// One convolution, maybe of a sum.
pub(super) struct Term<'a> {
    pub(super) shape: ConvShape,
    /// The same, with quads for channels: what is gathered.
    quads: ConvShape,
    pub(super) weights: &'a ByteConv,
    /// The input, a float for each quad.
    x: &'a [f32],
    /// Whether panels of one sample lie in the input as tiles read them.
    is_in_order: bool,
}

impl<'a> Term<'a> {
    pub(super) fn new(shape: &ConvShape, weights: &'a ByteConv, x: &'a [i8]) -> Term<'a> {
        assert_eq!(
            (weights.order, weights.groups, weights.scales.len()),
            (
                QuadOrder::maps(shape.group_in(), shape.taps()),
                shape.groups,
                shape.out_channels
            ),
            "the weights were packed for other channels"
        );
        check_input(shape, x);
        let shape = shape.flattened();
        let is_plain = shape.taps() == 1 && shape.stride == [1, 1] && shape.padding == [0, 0];
        let is_whole = weights.depth() == shape.group_in().div_ceil(4);
        Term {
            is_in_order: is_plain && is_whole && !weights.tiles.lifts,
            quads: ConvShape {
                in_channels: shape.in_channels.div_ceil(4),
                out_channels: shape.out_channels.div_ceil(4),
                ..shape
            },
            shape,
            weights,
            x: bytemuck::cast_slice(x),
        }
    }

    /// Quads of a gathered panel, or of one of few pixels that was gathered and spread.
    pub(super) fn panel_len(&self) -> usize {
        self.weights.tiles.pixels * self.weights.depth().next_multiple_of(SPREAD_DEEP)
            + PANEL_PADDING
    }

    /// Quads in front of what is spread of a panel: what was gathered of it.
    fn before_spread(&self) -> usize {
        FEW_PIXELS * self.weights.depth().next_multiple_of(SPREAD_DEEP) + FLOATS_PER_LINE
    }

    /// The quads of a panel where they lie in the input as tiles read them, so that nothing need be gathered.
    fn in_place(&self, group: usize, pixels: &Range<usize>) -> Option<&'a [f32]> {
        let in_pixels = self.shape.in_pixels().max(1);
        let (sample, first) = (pixels.start / in_pixels, pixels.start % in_pixels);
        if !self.is_in_order || first + pixels.len() > in_pixels {
            return None;
        }
        let quads = self.weights.depth();
        let start = (sample * self.quads.in_channels + group * quads) * in_pixels + first;
        let read = pixels.len().next_multiple_of(READ_TOGETHER);
        let len = quads.checked_sub(1)? * in_pixels + read;
        self.x.get(start..start + len)
    }

    /// Gathers panels that it does not have in place: their pixels and where they go.
    pub(super) fn gather<'t>(
        &self,
        cpu: &Cpu,
        group: usize,
        panels: impl Iterator<Item = (Range<usize>, &'t mut [f32])>,
    ) {
        let panels = panels.filter(|(pixels, _)| self.in_place(group, pixels).is_none());
        #[cfg(target_arch = "x86_64")]
        if has_wide(cpu.isa()) && Pieces::supports(&self.quads) {
            let mut pieces = Pieces::default();
            for (pixels, target) in panels {
                pieces.set(&self.quads, pixels);
                let (quads, lifts) = (self.quads_of(group), self.weights.tiles.lifts);
                // SAFETY: this CPU has the instructions.
                unsafe { pieces.gather(&self.quads, self.x, quads, lifts, target) };
            }
            return;
        }
        cpu.isa().run(Gather {
            term: self,
            group,
            panels,
        });
    }

    /// The quads of channels that a group reads.
    fn quads_of(&self, group: usize) -> Range<usize> {
        let per_group = self.shape.group_in().div_ceil(4);
        group * per_group..(group + 1) * per_group
    }

    /// Lays out a panel of few pixels as tiles want it, behind what was gathered of it.
    pub(super) fn spread(&self, group: usize, pixels: &Range<usize>, target: &mut [f32]) {
        let Some(spread) = self.weights.tiles.spread(pixels.len()) else {
            return;
        };
        let depth = self.weights.depth();
        let (gathered, target) = target.split_at_mut(self.before_spread());
        let panel = self.gathered(group, pixels, gathered);
        let len = FEW_PIXELS * depth.next_multiple_of(SPREAD_DEEP) * SPREAD_DEEP;
        // SAFETY: this CPU has the instructions, and there is room for as many pixels as can be.
        unsafe { spread(depth, panel, target[..len].as_mut_ptr().cast()) };
    }

    /// Where the quads of a panel lie as tiles read them: all of their depth.
    pub(super) fn place(&self, group: usize, pixels: &Range<usize>, gathered: &[f32]) -> Panel {
        let panel = self.gathered(group, pixels, gathered);
        match self.weights.tiles.spread(pixels.len()) {
            Some(_) => Panel {
                quads: gathered[self.before_spread()..].as_ptr().cast(),
                ..panel
            },
            None => panel,
        }
    }

    /// Where the quads of a panel lie, in place or gathered.
    fn gathered(&self, group: usize, pixels: &Range<usize>, gathered: &[f32]) -> Panel {
        let (quads, stride) = match self.in_place(group, pixels) {
            Some(quads) => (quads, self.shape.in_pixels()),
            None => (gathered, pixels.len().next_multiple_of(LANES)),
        };
        let (depth, pixels) = (self.weights.depth(), pixels.len());
        let read = pixels.next_multiple_of(READ_TOGETHER);
        assert!(depth == 0 || quads.len() >= (depth - 1) * stride + read);
        Panel {
            quads: quads.as_ptr().cast(),
            stride,
            pixels,
        }
    }

    /// The first of some rows of a group's weights: as many as a tile takes.
    pub(super) fn rows(&self, group: usize, rows: Range<usize>) -> TileRows {
        let weights = self.weights;
        let tiles = &weights.tiles;
        let depth = weights.depth();
        let row_bytes = depth * tiles.width.quad_bytes();
        let (tile, groups) = tiles.get(rows.len().div_ceil(TILE_ROWS));
        let read = (groups * TILE_ROWS).next_multiple_of(tiles.packing.height);
        let a = &weights.packed[group].bytes()[rows.start * row_bytes..][..read * row_bytes];
        let channel = group * self.shape.group_out() + rows.start;
        TileRows {
            groups,
            depth,
            a: a.as_ptr(),
            start: weights.starts[channel..][..groups * TILE_ROWS].as_ptr(),
            tile,
        }
    }
}

/// Gathers some panels, all of their depth.
struct Gather<'a, P> {
    term: &'a Term<'a>,
    group: usize,
    panels: P,
}

impl<'t, P: Iterator<Item = (Range<usize>, &'t mut [f32])>> Kernel for Gather<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gather {
            term,
            group,
            panels,
        } = self;
        let mut plan = PanelPlan::default();
        for (pixels, target) in panels {
            let target = &mut target[..term.panel_len()];
            plan.set(&term.quads, pixels);
            plan.pack(s, &term.quads, term.x, None, term.quads_of(group), target);
            if term.weights.tiles.lifts {
                lift(bytemuck::cast_slice_mut(target));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::activation::Activation;
    use crate::conv::ConvShape;
    use crate::cpu::Cpu;
    use crate::int8::{
        Addend, ByteConv, ByteEpilogue, ByteOutput, ByteScale, ByteTerm, ByteWeights, Rounding,
        byte_conv2d, byte_conv2d_sum, map_len,
    };
    use crate::isa::Isa;
    use crate::testing::numbers;

    fn input(seed: u64, shape: &ConvShape, signed: bool) -> Vec<f32> {
        let quads = map_len(shape.batch, shape.in_channels, shape.in_pixels()) / 4;
        let scale = ByteScale::reaching(0.9, signed);
        let bytes: Vec<i8> = numbers(seed, 4 * quads)
            .into_iter()
            .map(|x| scale.quantize(x))
            .collect();
        bytemuck::pod_collect_to_vec(&bytes)
    }

    /// A sum has the bits of a convolution whose residual is the other one's floats.
    fn check(shape: &ConvShape, inputs: usize, signed: [bool; 2], activation: Activation) {
        let second = ConvShape {
            in_channels: inputs,
            height: shape.out_height(),
            width: shape.out_width(),
            kernel: [1; 2],
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            ..*shape
        };
        let weights = |seed, shape: &ConvShape| {
            ByteWeights::quantize(shape.out_channels, &numbers(seed, shape.weight_len()))
        };
        let (weights, second_weights) = (weights(1, shape), weights(2, &second));
        let [x, second_x] = [input(3, shape, signed[0]), input(4, &second, signed[1])];
        let [x, second_x] = [&x, &second_x].map(|x| bytemuck::cast_slice::<f32, i8>(x));
        let bias = [5, 6].map(|seed| numbers(seed, shape.out_channels));
        // A power of two, so that sums in steps and in units have the same digits.
        let step = ByteScale {
            scale: 1.0 / 32.0,
            signed: activation != Activation::Relu,
        };
        let byte_len = map_len(shape.batch, shape.out_channels, shape.out_pixels());
        for (isa, threads, rounding) in Isa::available_for_bytes()
            .into_iter()
            .flat_map(|isa| [(isa, 1, Rounding::Each), (isa, 3, Rounding::Fused)])
        {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let packed = ByteConv::pack(&cpu, shape, &weights, signed[0]);
            let second_packed = ByteConv::pack(&cpu, &second, &second_weights, signed[1]);
            let plain = |index: usize, input_scale| ByteEpilogue {
                input_scale,
                bias: Some(&bias[index]),
                residual: None,
                activation: Activation::Identity,
                rounding,
            };
            let mut residual = vec![0.0; shape.out_len()];
            let output = ByteOutput::Floats(&mut residual);
            let epilogue = plain(1, 0.02);
            byte_conv2d(&cpu, &second, &second_packed, second_x, epilogue, output);
            let term = ByteTerm {
                shape: &second,
                weights: &second_packed,
                x: second_x,
                input_scale: 0.02,
                bias: Some(&bias[1]),
            };
            let whole = ByteEpilogue {
                activation,
                ..plain(0, 0.03)
            };
            let apart = ByteEpilogue {
                residual: Some(Addend::Floats(&residual)),
                ..whole
            };
            let both = |sum: ByteOutput<'_>, by_residual: ByteOutput<'_>| {
                byte_conv2d_sum(&cpu, shape, &packed, x, term, whole, sum);
                byte_conv2d(&cpu, shape, &packed, x, apart, by_residual);
            };
            let mut floats = [vec![f32::NAN; shape.out_len()], vec![0.0; shape.out_len()]];
            let [got, expected] = &mut floats;
            both(ByteOutput::Floats(got), ByteOutput::Floats(expected));
            assert_eq!(got, expected, "{isa}, {threads} threads");
            let mut bytes = [vec![1; byte_len], vec![0; byte_len]];
            let [got, expected] = &mut bytes;
            both(
                ByteOutput::Bytes(got, step),
                ByteOutput::Bytes(expected, step),
            );
            assert_eq!(got, expected, "{isa}, {threads} threads");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn sums_are_those_of_a_residual_of_floats(
            (batch, side, channels) in (0usize..3, [0usize..12, 0..12], [1usize..40, 1..40, 1..20]),
            (kernel, stride) in (1usize..4, 1usize..3),
            signed in any::<[bool; 2]>(),
            activation in prop_oneof![Just(Activation::Relu), Just(Activation::Identity), Just(Activation::LeakyRelu(0.1))],
        ) {
            let shape = ConvShape {
                batch,
                in_channels: channels[0],
                height: side[0],
                width: side[1],
                out_channels: channels[2],
                kernel: [kernel; 2],
                stride: [stride; 2],
                padding: [kernel / 2; 2],
                dilation: [1; 2],
                groups: 1,
            };
            check(&shape, channels[1], signed, activation);
        }
    }

    #[test]
    fn sums_of_several_blocks() {
        let shape = ConvShape {
            batch: 2,
            in_channels: 40,
            height: 39,
            width: 41,
            out_channels: 33,
            kernel: [1; 2],
            stride: [2; 2],
            padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
        };
        check(&shape, 24, [false, false], Activation::Relu);
        check(&shape, 24, [true, false], Activation::Identity);
    }
}
