//! Pooling of maps in quads.

use std::ops::Range;

use super::map::map_len;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::gemm::blocking::Parts;
use crate::isa::Kernel;
use crate::pool2d::Pool2dShape;
use crate::simd::Simd;

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
    let reach = shape.out_width().saturating_sub(1) * shape.stride[1] + shape.kernel[1];
    cpu.parallel(bands.count(), &|band, scratch| {
        let rows = bands.range(band);
        let [line, taken] = scratch.bytes([4 * line.max(reach), 4 * shape.out_width()]);
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
                taken,
            });
        }
    });
}

/// The rows of each window first, then the columns of what they leave.
struct MaxPool<'a> {
    shape: &'a Pool2dShape,
    /// The rows of the output that are wanted.
    rows: Range<usize>,
    x: &'a [i8],
    y: &'a mut [i8],
    /// The largest bytes of some rows, the smallest byte where padding is.
    line: &'a mut [i8],
    /// Room for a quad for each output column.
    taken: &'a mut [i8],
}

impl Kernel for MaxPool<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let MaxPool {
            shape,
            rows,
            x,
            y,
            line,
            taken,
        } = self;
        let (width, stride) = (shape.out_width(), shape.stride[1]);
        for (row, y) in rows.zip(y.chunks_exact_mut(4 * width.max(1))) {
            let inside = &mut line[4 * shape.padding[1]..][..4 * shape.width];
            inside.fill(i8::MIN);
            for row in shape.row_window(row).inside() {
                take_larger(inside, &x[4 * row * shape.width..][..4 * shape.width]);
            }
            y.fill(i8::MIN);
            let quads = line.as_chunks::<4>().0;
            for column in 0..shape.kernel[1] {
                let quads = quads[column..].iter();
                let taken = taken.as_chunks_mut::<4>().0;
                // Spelled out, so that the loops over the common strides are short.
                match stride {
                    1 => taken.iter_mut().zip(quads).for_each(|(t, q)| *t = *q),
                    2 => {
                        let quads = quads.step_by(2);
                        taken.iter_mut().zip(quads).for_each(|(t, q)| *t = *q);
                    }
                    _ => {
                        let quads = quads.step_by(stride);
                        taken.iter_mut().zip(quads).for_each(|(t, q)| *t = *q);
                    }
                }
                take_larger(y, taken.as_flattened());
            }
        }
    }
}

#[inline(always)]
fn take_larger(largest: &mut [i8], bytes: &[i8]) {
    for (largest, &byte) in largest.iter_mut().zip(bytes) {
        *largest = byte.max(*largest);
    }
}
