//! Pooling of NCHW maps.

use std::ops::Range;

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::isa::Kernel;
use crate::rows::{for_each_block, sum};
use crate::simd::{LANES, Simd};

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
    /// Floats of whole vectors of windows, the last of which may hang over the padding.
    fn padded_row(&self) -> usize {
        self.out_width().next_multiple_of(LANES) * self.stride[1]
            + (self.width + self.kernel[1]).next_multiple_of(2 * LANES)
    }

    fn column_windows(&self) -> Vec<Window> {
        (0..self.out_width())
            .map(|column| self.column_window(column))
            .collect()
    }

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
    pool(cpu, shape, Max, x, y);
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
    pool(cpu, shape, Mean { count_include_pad }, x, y);
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
    if output == [1, 1] {
        return global_avg_pool(cpu, in_area, x, y);
    }
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

/// How the numbers of a window become one.
trait Fold: Sync {
    /// Changes nothing when joined: what padding counts as.
    const NEUTRAL: f32;
    fn join<S: Simd>(s: S, a: S::V, b: S::V) -> S::V;
    /// Finishes an output row whose windows look at `rows` and `columns`.
    fn finish(&self, rows: Window, columns: &[Window], y: &mut [f32]);
}

struct Max;

impl Fold for Max {
    const NEUTRAL: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::V, b: S::V) -> S::V {
        // `max` lets a NaN in `b` win, but not one in `a`.
        s.select(s.equal(a, a), s.max(a, b), a)
    }

    #[inline(always)]
    fn finish(&self, _: Window, _: &[Window], _: &mut [f32]) {}
}

struct Mean {
    count_include_pad: bool,
}

impl Fold for Mean {
    const NEUTRAL: f32 = 0.0;

    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }

    #[inline(always)]
    fn finish(&self, rows: Window, columns: &[Window], y: &mut [f32]) {
        for (y, column) in y.iter_mut().zip(columns) {
            let count = if self.count_include_pad {
                rows.padded_len * column.padded_len
            } else {
                rows.inside().len() * column.inside().len()
            };
            *y /= count as f32;
        }
    }
}

/// As [`max_pool2d`], but threads share the rows of every plane: for maps that they wrote so.
pub(crate) fn max_pool2d_by_rows(cpu: &Cpu, shape: &Pool2dShape, x: &[f32], y: &mut [f32]) {
    /// Bands of rows.
    const BANDS: usize = 8;
    shape.check(x, y);
    let (padded, columns) = (shape.padded_row(), shape.column_windows());
    let (in_area, width) = (shape.height * shape.width, shape.out_width());
    let bands = Parts::exactly(BANDS.min(shape.out_height()), shape.out_height(), 1);
    let y = SharedMut::new(y);
    cpu.parallel(bands.count(), &|band, _| {
        let mut row = vec![Max::NEUTRAL; padded];
        let rows = bands.range(band);
        for plane in 0..shape.batch * shape.channels {
            let first = (plane * shape.out_height() + rows.start) * width;
            // SAFETY: bands have their own rows.
            let y = unsafe { y.slice(first..first + rows.len() * width) };
            cpu.isa().run(PoolPlane {
                shape,
                fold: &Max,
                columns: &columns,
                row: &mut row,
                rows: rows.clone(),
                x: &x[plane * in_area..][..in_area],
                y,
            });
        }
    });
}

fn pool<F: Fold>(cpu: &Cpu, shape: &Pool2dShape, fold: F, x: &[f32], y: &mut [f32]) {
    shape.check(x, y);
    let planes = shape.batch * shape.channels;
    let in_area = shape.height * shape.width;
    let out_area = shape.out_height() * shape.out_width();
    let (padded, columns) = (shape.padded_row(), shape.column_windows());
    for_each_block(
        cpu,
        planes,
        in_area.max(out_area),
        out_area,
        y,
        |planes, y| {
            let mut row = vec![F::NEUTRAL; padded];
            for (plane, y) in planes.zip(y.chunks_exact_mut(out_area.max(1))) {
                let x = &x[plane * in_area..][..in_area];
                cpu.isa().run(PoolPlane {
                    shape,
                    fold: &fold,
                    columns: &columns,
                    row: &mut row,
                    rows: 0..shape.out_height(),
                    x,
                    y,
                });
            }
        },
    );
}

/// Folds the rows of a window to one padded row, then that row's columns.
struct PoolPlane<'a, F> {
    shape: &'a Pool2dShape,
    fold: &'a F,
    columns: &'a [Window],
    /// Neutral where there is padding, and for good.
    row: &'a mut [f32],
    /// The output rows that `y` has.
    rows: Range<usize>,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<F: Fold> Kernel for PoolPlane<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (width, left) = (self.shape.width, self.shape.padding[1]);
        let ([_, taps], [_, stride]) = (self.shape.kernel, self.shape.stride);
        let out_width = self.columns.len();
        for (i, row) in self.rows.enumerate() {
            let rows = self.shape.row_window(row);
            let lines = &self.x[rows.start * width..rows.end * width];
            fold_lines::<S, F>(s, lines, &mut self.row[left..][..width]);
            let y = &mut self.y[i * out_width..];
            for j in (0..out_width).step_by(LANES) {
                // A vector that is longer than the row runs into the next one, which is written later.
                let folded = fold_taps::<S, F>(s, &self.row[j * stride..], taps, stride);
                s.write(&mut y[j..], folded);
            }
            self.fold.finish(rows, self.columns, &mut y[..out_width]);
        }
    }
}

/// Folds lines as long as `row`, one below the other, to `row`.
#[inline(always)]
fn fold_lines<S: Simd, F: Fold>(s: S, lines: &[f32], row: &mut [f32]) {
    /// Vectors that are folded together.
    const VECTORS: usize = 4;
    let width = row.len();
    let mut parts = row.chunks_exact_mut(VECTORS * LANES);
    let mut at = 0;
    for part in &mut parts {
        let mut folded = [s.splat(F::NEUTRAL); VECTORS];
        for line in lines.chunks_exact(width) {
            let line = &line[at..][..VECTORS * LANES];
            for v in 0..VECTORS {
                folded[v] = F::join(s, folded[v], s.read(&line[v * LANES..]));
            }
        }
        for v in 0..VECTORS {
            s.write(&mut part[v * LANES..], folded[v]);
        }
        at += VECTORS * LANES;
    }
    for part in parts.into_remainder().chunks_mut(LANES) {
        let mut folded = s.splat(F::NEUTRAL);
        for line in lines.chunks_exact(width) {
            folded = F::join(s, folded, s.read(&line[at..][..part.len()]));
        }
        s.write(part, folded);
        at += LANES;
    }
}

/// Folds `LANES` windows of a row, the first of which starts with `row`.
#[inline(always)]
fn fold_taps<S: Simd, F: Fold>(s: S, row: &[f32], taps: usize, stride: usize) -> S::V {
    let mut folded = s.splat(F::NEUTRAL);
    match stride {
        1 => {
            for tap in 0..taps {
                folded = F::join(s, folded, s.read(&row[tap..]));
            }
        }
        2 => {
            for tap in (0..taps).step_by(2) {
                let pairs = &row[tap..][..2 * LANES];
                // SAFETY: 16 floats are there.
                let [this, next] = unsafe { s.load_split2(pairs.as_ptr()) };
                folded = F::join(s, folded, this);
                if tap + 1 < taps {
                    folded = F::join(s, folded, next);
                }
            }
        }
        _ => {
            for tap in 0..taps {
                let mut numbers = [0.0; LANES];
                for (lane, number) in numbers.iter_mut().enumerate() {
                    *number = row[lane * stride + tap];
                }
                folded = F::join(s, folded, s.vector(numbers));
            }
        }
    }
    folded
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
