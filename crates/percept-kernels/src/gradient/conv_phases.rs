//! The adjoint of a strided convolution, phase by phase.
//!
//! With stride s, the rows h of dx with (h + padding) mod s = r meet only the taps r, r + s, r + 2s, ..: dx falls into s × s
//! interleaved maps, and each is an ordinary convolution of dy with some of the taps, turned around.

use crate::conv::{ConvShape, Mode, PackedConv, choose_algorithm, conv2d};
use crate::cpu::Cpu;
use crate::epilogue::Epilogue;
use crate::rows::for_each_block;

/// Whether the phases can be computed: dense kernels on groups that are worth a matrix product.
pub(super) fn supports(shape: &ConvShape) -> bool {
    shape.dilation == [1, 1] && shape.groups == 1
}

/// dx = adjoint(dy) + residual.
pub(super) fn input_gradient(
    cpu: &Cpu,
    shape: &ConvShape,
    mode: Mode,
    dy: &[f32],
    weight: &[f32],
    residual: Option<&[f32]>,
    dx: &mut [f32],
) {
    for row in 0..shape.stride[0] {
        for column in 0..shape.stride[1] {
            let phase = Phase {
                shape,
                offset: [row, column],
            };
            let map = phase.compute(cpu, mode, dy, weight);
            phase.scatter(cpu, &map, residual, dx);
        }
    }
}

/// One of the interleaved maps.
struct Phase<'a> {
    shape: &'a ConvShape,
    /// Its first tap.
    offset: [usize; 2],
}

impl Phase<'_> {
    /// Taps along an axis.
    fn taps(&self, axis: usize) -> usize {
        let left = self.shape.kernel[axis].saturating_sub(self.offset[axis]);
        left.div_ceil(self.shape.stride[axis])
    }

    /// The convolution of dy that gives the map, with every position that some tap reaches.
    fn convolution(&self) -> ConvShape {
        let kernel = [self.taps(0), self.taps(1)];
        ConvShape {
            in_channels: self.shape.out_channels,
            height: self.shape.out_height(),
            width: self.shape.out_width(),
            out_channels: self.shape.in_channels,
            kernel,
            stride: [1, 1],
            padding: kernel.map(|taps| taps.saturating_sub(1)),
            ..*self.shape
        }
    }

    /// The map; empty when the phase has no taps.
    fn compute(&self, cpu: &Cpu, mode: Mode, dy: &[f32], weight: &[f32]) -> Vec<f32> {
        if self.taps(0) * self.taps(1) == 0 {
            return Vec::new();
        }
        let conv = self.convolution();
        let algorithm = choose_algorithm(&conv, mode, cpu.isa());
        let packed = PackedConv::pack(cpu, &conv, algorithm, &self.weight(weight));
        let mut map = vec![0.0; conv.out_len()];
        conv2d(cpu, &conv, &packed, dy, None, Epilogue::default(), &mut map);
        map
    }

    /// The phase's taps, turned around, with inputs for outputs.
    fn weight(&self, weight: &[f32]) -> Vec<f32> {
        let [rows, columns] = [self.taps(0), self.taps(1)];
        let (inputs, outputs) = (self.shape.in_channels, self.shape.out_channels);
        let all = self.shape.taps();
        let mut turned = Vec::with_capacity(inputs * outputs * rows * columns);
        for input in 0..inputs {
            for output in 0..outputs {
                let filter = &weight[(output * inputs + input) * all..][..all];
                for row in (0..rows).rev() {
                    let row = self.offset[0] + row * self.shape.stride[0];
                    let line = &filter[row * self.shape.kernel[1]..];
                    let taps = (0..columns).rev();
                    turned
                        .extend(taps.map(|tap| line[self.offset[1] + tap * self.shape.stride[1]]));
                }
            }
        }
        turned
    }

    /// The first position of the map that lies in dx, and where.
    fn first(&self, axis: usize) -> (usize, usize) {
        let (stride, padding) = (self.shape.stride[axis], self.shape.padding[axis]);
        let position = padding.saturating_sub(self.offset[axis]).div_ceil(stride);
        (position, position * stride + self.offset[axis] - padding)
    }

    /// Writes the map to its places in dx.
    fn scatter(&self, cpu: &Cpu, map: &[f32], residual: Option<&[f32]>, dx: &mut [f32]) {
        if dx.is_empty() {
            return;
        }
        let ConvShape { height, width, .. } = *self.shape;
        let conv = self.convolution();
        let [rows, columns] = match map.is_empty() {
            true => [0, 0],
            false => [conv.out_height(), conv.out_width()],
        };
        let [(first_row, top), (first_column, left)] = [self.first(0), self.first(1)];
        let [row_step, column_step] = self.shape.stride;
        let planes = self.shape.batch * self.shape.in_channels;
        for_each_block(
            cpu,
            planes,
            height * width,
            height * width,
            dx,
            |planes, dx| {
                for (plane, dx) in planes.zip(dx.chunks_exact_mut(height * width)) {
                    let residual = residual.map(|r| &r[plane * height * width..][..height * width]);
                    for (row, target) in (first_row..).zip((top..height).step_by(row_step)) {
                        let line = match row < rows {
                            true => &map[(plane * rows + row) * columns..][..columns],
                            // The stride stepped over these: no window has them.
                            false => &[],
                        };
                        let line = line.get(first_column..).unwrap_or_default();
                        let places = (left..width).step_by(column_step);
                        for (index, place) in places.enumerate() {
                            let at = target * width + place;
                            let added = residual.map_or(0.0, |residual| residual[at]);
                            dx[at] = line.get(index).copied().unwrap_or(0.0) + added;
                        }
                    }
                }
            },
        );
    }
}
