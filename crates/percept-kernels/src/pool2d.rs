//! Pooling of NCHW maps.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::rows::{for_each_block, sum};
use crate::simd::Simd;

/// A pooling of [batch, channels, height, width] maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2dShape {
    /// Samples.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Height of the input.
    pub height: usize,
    /// Width of the input.
    pub width: usize,
    /// Window height and width.
    pub kernel: [usize; 2],
    /// Steps between windows, down and to the right.
    pub stride: [usize; 2],
    /// Padding at the top and bottom, at the left and right.
    pub padding: [usize; 2],
    /// Whether a last window that hangs over the padded edge counts, if it starts inside.
    pub ceil_mode: bool,
}

impl Pool2dShape {
    /// Height of the output.
    pub fn out_height(&self) -> usize {
        self.out_len(self.height, 0)
    }

    /// Width of the output.
    pub fn out_width(&self) -> usize {
        self.out_len(self.width, 1)
    }

    /// The rows that output row `row` looks at.
    pub fn row_window(&self, row: usize) -> Window {
        self.window(row, self.height, 0)
    }

    /// The columns that output column `column` looks at.
    pub fn column_window(&self, column: usize) -> Window {
        self.window(column, self.width, 1)
    }

    fn out_len(&self, len: usize, axis: usize) -> usize {
        let (kernel, stride, padding) = (self.kernel[axis], self.stride[axis], self.padding[axis]);
        let Some(slack) = (len + 2 * padding).checked_sub(kernel) else {
            return 0;
        };
        if !self.ceil_mode {
            return slack / stride + 1;
        }
        let out = slack.div_ceil(stride) + 1;
        let last_starts_outside = (out - 1) * stride >= len + padding;
        out - usize::from(last_starts_outside)
    }

    fn window(&self, out: usize, len: usize, axis: usize) -> Window {
        let padding = self.padding[axis];
        let start = out * self.stride[axis];
        let end = (start + self.kernel[axis]).min(len + 2 * padding);
        Window {
            start: start.saturating_sub(padding).min(len),
            end: end.saturating_sub(padding).min(len),
            padded_len: end - start,
        }
    }
}

/// One axis of a pooling window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    start: usize,
    end: usize,
    /// How much of the window lies inside the padded map.
    pub padded_len: usize,
}

impl Window {
    /// The part that lies inside the map.
    pub fn inside(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The pixels that adaptive pooling from `input` to `output` pixels averages for output `index`.
pub fn adaptive_window(index: usize, input: usize, output: usize) -> Range<usize> {
    index * input / output..((index + 1) * input).div_ceil(output)
}

impl Pool2dShape {
    fn check(&self, x: &[f32], y: &[f32]) {
        let planes = self.batch * self.channels;
        assert!(
            [self.kernel, self.stride]
                .as_flattened()
                .iter()
                .all(|&n| n > 0),
            "kernel and stride are at least 1"
        );
        assert!(
            (0..2).all(|axis| 2 * self.padding[axis] <= self.kernel[axis]),
            "padding is at most half of the kernel"
        );
        assert_eq!(x.len(), planes * self.height * self.width, "length of x");
        assert_eq!(
            y.len(),
            planes * self.out_height() * self.out_width(),
            "length of y"
        );
    }
}

/// The largest number of each window; padding never wins, NaN always does.
pub fn max_pool2d(cpu: &Cpu, shape: &Pool2dShape, x: &[f32], y: &mut [f32]) {
    pool(cpu, shape, Fold::Max, x, y);
}

/// The mean of each window, dividing by the part of the window that lies inside the map or, with
/// `count_include_pad`, inside the padded map.
pub fn avg_pool2d(
    cpu: &Cpu,
    shape: &Pool2dShape,
    count_include_pad: bool,
    x: &[f32],
    y: &mut [f32],
) {
    pool(cpu, shape, Fold::Mean { count_include_pad }, x, y);
}

/// The mean of each plane of `area` numbers.
pub fn global_avg_pool(cpu: &Cpu, area: usize, x: &[f32], y: &mut [f32]) {
    assert_eq!(
        x.len(),
        y.len() * area,
        "x has one plane for each number of y"
    );
    for_each_block(cpu, y.len(), area, 1, y, |planes, y| {
        let x = &x[planes.start * area..planes.end * area];
        cpu.isa().run(PlaneMeans { area, x, y });
    });
}

/// Means of `output` windows that cover each `input` map as evenly as whole pixels can.
pub fn adaptive_avg_pool2d(
    cpu: &Cpu,
    planes: usize,
    input: [usize; 2],
    output: [usize; 2],
    x: &[f32],
    y: &mut [f32],
) {
    let (in_area, out_area) = (input[0] * input[1], output[0] * output[1]);
    assert_eq!(x.len(), planes * in_area, "length of x");
    assert!(in_area > 0 || y.is_empty(), "an empty map has no means");
    for_each_block(
        cpu,
        planes,
        in_area.max(out_area),
        out_area,
        y,
        |planes, y| {
            for (plane, y) in planes.zip(y.chunks_exact_mut(out_area.max(1))) {
                let x = &x[plane * in_area..][..in_area];
                cpu.isa().run(AdaptivePlane {
                    input,
                    output,
                    x,
                    y,
                });
            }
        },
    );
}

#[derive(Clone, Copy)]
enum Fold {
    Max,
    Mean { count_include_pad: bool },
}

fn pool(cpu: &Cpu, shape: &Pool2dShape, fold: Fold, x: &[f32], y: &mut [f32]) {
    shape.check(x, y);
    let planes = shape.batch * shape.channels;
    let in_area = shape.height * shape.width;
    let out_area = shape.out_height() * shape.out_width();
    // The rows of a window are folded to one padded row, then its columns; the last window may hang over the padding.
    let padded = shape.width + 2 * shape.padding[1] + shape.kernel[1] + shape.stride[1];
    let columns: Vec<Window> = (0..shape.out_width())
        .map(|j| shape.column_window(j))
        .collect();
    for_each_block(
        cpu,
        planes,
        in_area.max(out_area),
        out_area,
        y,
        |planes, y| {
            let mut row = vec![0.0; padded];
            for (plane, y) in planes.zip(y.chunks_exact_mut(out_area.max(1))) {
                let x = &x[plane * in_area..][..in_area];
                cpu.isa().run(PoolPlane {
                    shape,
                    fold,
                    columns: &columns,
                    row: &mut row,
                    x,
                    y,
                });
            }
        },
    );
}

struct PoolPlane<'a> {
    shape: &'a Pool2dShape,
    fold: Fold,
    columns: &'a [Window],
    row: &'a mut [f32],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for PoolPlane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            shape,
            columns,
            row,
            x,
            y,
            ..
        } = self;
        let (width, left) = (shape.width, shape.padding[1]);
        let [_, taps] = shape.kernel;
        for (i, y) in y.chunks_exact_mut(columns.len().max(1)).enumerate() {
            let rows = shape.row_window(i);
            let lines = rows.inside().map(|line| &x[line * width..][..width]);
            match self.fold {
                Fold::Max => {
                    row.fill(f32::NEG_INFINITY);
                    for line in lines {
                        fold_into(&mut row[left..][..width], line, 1, larger);
                    }
                    y.fill(f32::NEG_INFINITY);
                    for tap in 0..taps {
                        fold_into(y, &row[tap..], shape.stride[1], larger);
                    }
                }
                Fold::Mean { count_include_pad } => {
                    row.fill(0.0);
                    for line in lines {
                        fold_into(&mut row[left..][..width], line, 1, plus);
                    }
                    y.fill(0.0);
                    for tap in 0..taps {
                        fold_into(y, &row[tap..], shape.stride[1], plus);
                    }
                    for (y, column) in y.iter_mut().zip(columns) {
                        let count = if count_include_pad {
                            rows.padded_len * column.padded_len
                        } else {
                            rows.inside().len() * column.inside().len()
                        };
                        *y /= count as f32;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn plus(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

/// y\[j\] = f(y\[j\], x\[j * step\]), in loops whose step the compiler knows, so that it can use vectors.
#[inline(always)]
fn fold_into(y: &mut [f32], x: &[f32], step: usize, f: impl Fn(f32, f32) -> f32) {
    match step {
        1 => y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(*y, x)),
        2 => y
            .iter_mut()
            .zip(x.chunks(2))
            .for_each(|(y, x)| *y = f(*y, x[0])),
        _ => y
            .iter_mut()
            .zip(x.iter().step_by(step))
            .for_each(|(y, &x)| *y = f(*y, x)),
    }
}

struct PlaneMeans<'a> {
    area: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for PlaneMeans<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (i, y) in self.y.iter_mut().enumerate() {
            *y = sum(s, &self.x[i * self.area..][..self.area]) / self.area as f32;
        }
    }
}

struct AdaptivePlane<'a> {
    input: [usize; 2],
    output: [usize; 2],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for AdaptivePlane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [height, width] = self.input;
        for (index, y) in self.y.iter_mut().enumerate() {
            let rows = adaptive_window(index / self.output[1], height, self.output[0]);
            let columns = adaptive_window(index % self.output[1], width, self.output[1]);
            let count = rows.len() * columns.len();
            let mut total = 0.0;
            for row in rows {
                total += sum(s, &self.x[row * width..][columns.clone()]);
            }
            *y = total / count as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;
    use crate::testing::{check, numbers, widen};

    fn shapes() -> impl Strategy<Value = Pool2dShape> {
        let axis = || (0usize..30, 1usize..6, 1usize..4, 0usize..3);
        (0usize..3, 0usize..5, axis(), axis(), any::<bool>()).prop_map(
            |(batch, channels, rows, columns, ceil_mode)| Pool2dShape {
                batch,
                channels,
                height: rows.0,
                width: columns.0,
                kernel: [rows.1, columns.1],
                stride: [rows.2, columns.2],
                padding: [rows.3.min(rows.1 / 2), columns.3.min(columns.1 / 2)],
                ceil_mode,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn windows(shape in shapes()) {
            let planes = shape.batch * shape.channels;
            let x = numbers(1, planes * shape.height * shape.width);
            let wide = widen(&x);
            let mut expected = vec![0.0; planes * shape.out_height() * shape.out_width()];
            reference::max_pool2d(&shape, &wide, &mut expected);
            check(&expected, 0.0, |cpu, y| max_pool2d(cpu, &shape, &x, y));
            for include in [false, true] {
                reference::avg_pool2d(&shape, include, &wide, &mut expected);
                check(&expected, 1e-6, |cpu, y| avg_pool2d(cpu, &shape, include, &x, y));
            }
        }

        #[test]
        fn adaptive(
            planes in 0usize..4,
            input in prop::array::uniform2(1usize..30),
            output in prop::array::uniform2(0usize..9),
        ) {
            let x = numbers(1, planes * input[0] * input[1]);
            let wide = widen(&x);
            let mut expected = vec![0.0; planes * output[0] * output[1]];
            reference::adaptive_avg_pool2d(planes, input, output, &wide, &mut expected);
            check(&expected, 1e-6, |cpu, y| adaptive_avg_pool2d(cpu, planes, input, output, &x, y));
            let area = input[0] * input[1];
            let mut expected = vec![0.0; planes];
            reference::global_avg_pool(area, &wide, &mut expected);
            check(&expected, 1e-6, |cpu, y| global_avg_pool(cpu, area, &x, y));
        }
    }

    #[test]
    fn ceil_mode_keeps_windows_that_start_inside() {
        let shape = Pool2dShape {
            batch: 1,
            channels: 1,
            height: 5,
            width: 6,
            kernel: [2, 2],
            stride: [2, 2],
            padding: [0, 0],
            ceil_mode: true,
        };
        assert_eq!((shape.out_height(), shape.out_width()), (3, 3));
        // The third window of 3 with stride 3 would start in the right padding.
        let padded = Pool2dShape {
            width: 5,
            kernel: [2, 3],
            stride: [2, 3],
            padding: [0, 1],
            ..shape
        };
        assert_eq!(padded.out_width(), 2);
    }

    #[test]
    fn nan_wins_a_maximum() {
        let shape = Pool2dShape {
            batch: 1,
            channels: 1,
            height: 1,
            width: 4,
            kernel: [1, 2],
            stride: [1, 1],
            padding: [0, 0],
            ceil_mode: false,
        };
        let x = [1.0, 2.0, f32::NAN, 3.0];
        check(&[2.0, f64::NAN, f64::NAN], 0.0, |cpu, y| {
            max_pool2d(cpu, &shape, &x, y)
        });
    }
}
