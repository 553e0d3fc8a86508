//! Pooling of maps in quads.

use std::ops::Range;

use super::finish::write_quads;
use super::map::map_len;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::isa::Kernel;
use crate::pool2d::Pool2dShape;
use crate::simd::{LANES, Simd};

/// Bands of rows that maps are cut into.
const BANDS: usize = 8;

/// The largest byte of each window: what quantising the largest number gives.
pub fn max_pool_quads(cpu: &Cpu, shape: &Pool2dShape, x: &[i8], y: &mut [i8]) {
    let quads = shape.batch * shape.channels.div_ceil(4);
    let (in_len, out_len) = (
        4 * shape.height * shape.width,
        4 * shape.out_height() * shape.out_width(),
    );
    assert_eq!(
        x.len(),
        map_len(shape.batch, shape.channels, in_len / 4),
        "length of the input"
    );
    assert_eq!(y.len(), quads * out_len, "length of the output");
    // Threads share the rows of every map, because that is how convolutions write and read them.
    let bands = Parts::exactly(BANDS, shape.out_height(), 1);
    let y = SharedMut::new(y);
    // From the first column that a window looks at, padding included, to the last one.
    let line = shape.padding[1] + shape.width;
    // Places where a window may start, filled up to what vectors take every second of.
    let starts = shape.out_width().saturating_sub(1) * shape.stride[1] + 1;
    let starts = starts.next_multiple_of(2 * LANES);
    let reach = starts + shape.kernel[1] - 1;
    cpu.parallel(bands.count(), &|band, scratch| {
        let rows = bands.range(band);
        let [line, windows] = scratch.bytes([4 * line.max(reach), 4 * starts]);
        line.fill(i8::MIN);
        for quad in 0..quads {
            let start = quad * out_len + 4 * rows.start * shape.out_width();
            // SAFETY: each band has its own rows.
            let y = unsafe { y.slice(start..start + 4 * rows.len() * shape.out_width()) };
            cpu.isa().run(MaxPool {
                shape,
                rows: rows.clone(),
                x: &x[quad * in_len..][..in_len],
                y,
                line,
                windows,
            });
        }
    });
}

/// The rows of each window first, then the columns of what they leave, at every place that a window may start at: whole vectors
/// are faster than those places alone.
struct MaxPool<'a> {
    shape: &'a Pool2dShape,
    /// The rows of the output that are wanted.
    rows: Range<usize>,
    x: &'a [i8],
    y: &'a mut [i8],
    /// The largest bytes of some rows, the smallest byte where padding is.
    line: &'a mut [i8],
    /// Room for a quad for each place where a window may start, in whole pairs of vectors.
    windows: &'a mut [i8],
}

impl Kernel for MaxPool<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let MaxPool {
            shape,
            rows,
            x,
            y,
            line,
            windows,
        } = self;
        let (width, stride) = (4 * shape.width, shape.stride[1]);
        for (row, y) in rows.zip(y.chunks_exact_mut(4 * shape.out_width().max(1))) {
            let inside = &mut line[4 * shape.padding[1]..][..width];
            let rows = shape.row_window(row).inside();
            take_largest(&x[rows.start * width..], width, rows.len(), inside);
            let columns = shape.kernel[1];
            if stride == 1 {
                take_largest(line, 4, columns, y);
                continue;
            }
            take_largest(line, 4, columns, windows);
            // A quad is as wide as a float.
            let windows: &[f32] = bytemuck::cast_slice(windows);
            if stride == 2 {
                let pairs = windows.as_chunks::<{ 2 * LANES }>().0;
                for (y, pairs) in y.chunks_mut(4 * LANES).zip(pairs) {
                    let picked = s.evens(s.read(pairs), s.read(&pairs[LANES..]));
                    write_quads(bytemuck::cast(s.to_array(picked)), y);
                }
            } else {
                let picked = windows.iter().step_by(stride);
                for (y, picked) in y.as_chunks_mut::<4>().0.iter_mut().zip(picked) {
                    *y = bytemuck::cast(*picked);
                }
            }
        }
    }
}

/// The largest of the bytes at the same place of some lines, which begin so many bytes apart; the smallest byte where there are no lines.
#[inline(always)]
fn take_largest(bytes: &[i8], apart: usize, lines: usize, largest: &mut [i8]) {
    match largest.len() {
        64.. => take_largest_blocks::<64>(bytes, apart, lines, largest),
        16.. => take_largest_blocks::<16>(bytes, apart, lines, largest),
        _ => take_largest_blocks::<4>(bytes, apart, lines, largest),
    }
}

/// The same, a block at a time, which stays in registers while lines are read.
#[inline(always)]
fn take_largest_blocks<const BLOCK: usize>(
    bytes: &[i8],
    apart: usize,
    lines: usize,
    largest: &mut [i8],
) {
    let len = largest.len();
    for at in (0..len).step_by(BLOCK) {
        // The last block begins inside the one before it, rather than end outside.
        let at = at.min(len - BLOCK);
        let mut block = [i8::MIN; BLOCK];
        for line in 0..lines {
            let line = &bytes[line * apart + at..][..BLOCK];
            for i in 0..BLOCK {
                block[i] = block[i].max(line[i]);
            }
        }
        largest[at..][..BLOCK].copy_from_slice(&block);
    }
}
