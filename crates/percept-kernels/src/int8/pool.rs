//! Pooling of maps in quads.

use super::map::map_len;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::pool2d::Pool2dShape;
use crate::simd::Simd;

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
    let y = SharedMut::new(y);
    cpu.parallel(quads, &|quad, _| {
        // SAFETY: each quad of channels has its own map.
        let y = unsafe { y.slice(quad * out_len..(quad + 1) * out_len) };
        let x = &x[quad * in_len..][..in_len];
        cpu.isa().run(MaxPool { shape, x, y });
    });
}

struct MaxPool<'a> {
    shape: &'a Pool2dShape,
    x: &'a [i8],
    y: &'a mut [i8],
}

impl Kernel for MaxPool<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let MaxPool { shape, x, y } = self;
        let (x, width) = (x.as_chunks::<4>().0, shape.out_width());
        for (row, y) in y.chunks_exact_mut(4 * width.max(1)).enumerate() {
            let rows = shape.row_window(row);
            for (column, y) in y.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let columns = shape.column_window(column);
                let mut largest = [i8::MIN; 4];
                for row in rows.inside() {
                    for quad in &x[row * shape.width..][columns.inside()] {
                        for lane in 0..4 {
                            largest[lane] = largest[lane].max(quad[lane]);
                        }
                    }
                }
                *y = largest;
            }
        }
    }
}
