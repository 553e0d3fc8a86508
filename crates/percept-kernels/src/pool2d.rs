//! Pooling of NCHW maps.

use std::ops::Range;

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
