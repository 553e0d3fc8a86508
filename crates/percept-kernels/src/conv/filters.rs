//! The filters of a convolution where they lie. Gradients read those of the forward pass turned around, some taps only or all.

use super::ConvShape;

/// Filters by group, output channel, input channel and tap.
#[derive(Clone, Debug)]
pub(crate) struct Filters<'a> {
    weight: &'a [f32],
    group_stride: usize,
    output_stride: usize,
    input_stride: usize,
    /// Where the taps of a filter lie from its beginning.
    taps: Vec<usize>,
}

impl<'a> Filters<'a> {
    /// The filters of a convolution, as OIHW weights.
    pub(crate) fn oihw(shape: &ConvShape, weight: &'a [f32]) -> Self {
        let (inputs, taps) = (shape.group_in(), shape.taps());
        Self {
            weight,
            group_stride: shape.group_out() * inputs * taps,
            output_stride: inputs * taps,
            input_stride: taps,
            taps: (0..taps).collect(),
        }
    }

    /// The filters of a convolution with inputs for outputs, and these of its taps.
    pub(crate) fn turned(shape: &ConvShape, weight: &'a [f32], taps: Vec<usize>) -> Self {
        let there = Self::oihw(shape, weight);
        Self {
            output_stride: there.input_stride,
            input_stride: there.output_stride,
            taps,
            ..there
        }
    }

    /// Where a filter begins.
    #[inline(always)]
    fn start(&self, group: usize, output: usize, input: usize) -> usize {
        group * self.group_stride + output * self.output_stride + input * self.input_stride
    }

    /// A filter's taps.
    #[inline(always)]
    fn filter(&self, group: usize, output: usize, input: usize) -> impl Iterator<Item = f32> {
        let filter = &self.weight[self.start(group, output, input)..];
        self.taps.iter().map(|&tap| filter[tap])
    }

    /// A filter as it lies there, with [`Filters::taps`] in another order or not.
    #[inline(always)]
    pub(super) fn there(&self, group: usize, output: usize, input: usize) -> &[f32] {
        &self.weight[self.start(group, output, input)..][..self.taps.len()]
    }

    /// Where the taps of a filter lie from its beginning.
    #[inline(always)]
    pub(super) fn taps(&self) -> &[usize] {
        &self.taps
    }

    /// All input channels of the outputs of a group as the rows of a matrix, and the distance between rows, if they lie so.
    pub(super) fn rows(&self, group: usize) -> Option<(&'a [f32], usize)> {
        let in_order = self.taps.iter().copied().eq(0..self.input_stride);
        in_order.then(|| (&self.weight[self.start(group, 0, 0)..], self.output_stride))
    }

    /// OIHW weights of these filters.
    pub(super) fn to_oihw(&self, shape: &ConvShape) -> Vec<f32> {
        let mut weight = Vec::with_capacity(shape.weight_len());
        for group in 0..shape.groups {
            for output in 0..shape.group_out() {
                for input in 0..shape.group_in() {
                    weight.extend(self.filter(group, output, input));
                }
            }
        }
        weight
    }

    /// One tap of neighbouring outputs.
    #[inline(always)]
    pub(super) fn outputs(
        &self,
        group: usize,
        first: usize,
        input: usize,
        tap: usize,
        target: &mut [f32],
    ) {
        let source = &self.weight[self.start(group, first, input) + self.taps[tap]..];
        if self.output_stride == 1 {
            return target.copy_from_slice(&source[..target.len()]);
        }
        for (index, value) in target.iter_mut().enumerate() {
            *value = source[index * self.output_stride];
        }
    }

    /// Panics when there are not as many filters as the shape asks for.
    pub(super) fn check(&self, shape: &ConvShape) {
        assert_eq!(self.taps.len(), shape.taps(), "taps of the filters");
        let last = [shape.groups, shape.group_out(), shape.group_in()].map(|n| n.checked_sub(1));
        let [Some(group), Some(output), Some(input)] = last else {
            return;
        };
        let last_tap = self.taps.iter().max().copied().unwrap_or(0);
        let end = self.start(group, output, input) + last_tap + 1;
        assert!(end <= self.weight.len(), "length of the weight");
    }
}
