//! Transposed convolutions whose marks do not overlap: a pointwise one for all taps, and its results put where they belong.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;

/// Spreads maps `[batch][tap][plane][height][width]` to `[batch][plane][height · rows][width · columns]`, where taps are numbered
/// row by row. Elements are floats or quads, which are as wide.
pub fn spread_taps(
    cpu: &Cpu,
    [batch, planes, height, width]: [usize; 4],
    [rows, columns]: [usize; 2],
    x: &[f32],
    y: &mut [f32],
) {
    let len = batch * planes * rows * columns * height * width;
    assert_eq!([x.len(), y.len()], [len; 2], "lengths of the maps");
    let plane_len = height * width;
    let target = SharedMut::new(y);
    let out_len = rows * columns * plane_len;
    cpu.parallel(batch * planes, &|block, _| {
        let (sample, plane) = (block / planes, block % planes);
        // SAFETY: each block has its own plane.
        let y = unsafe { target.slice(block * out_len..(block + 1) * out_len) };
        for row in 0..height * rows {
            let y = &mut y[row * width * columns..][..width * columns];
            for column in 0..columns {
                let tap = row % rows * columns + column;
                let from = (sample * rows * columns + tap) * planes + plane;
                let from = &x[from * plane_len + row / rows * width..][..width];
                for (y, x) in y.iter_mut().skip(column).step_by(columns).zip(from) {
                    *y = *x;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_tap_goes_where_it_belongs(
            [batch, planes, height, width] in prop::array::uniform4(0usize..4),
            [rows, columns] in prop::array::uniform2(1usize..4),
            threads in 1usize..3,
        ) {
            let cpu = Cpu::new(threads).unwrap();
            let len = batch * planes * rows * columns * height * width;
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let mut y = vec![-1.0; len];
            spread_taps(&cpu, [batch, planes, height, width], [rows, columns], &x, &mut y);
            for (at, &y) in y.iter().enumerate() {
                let (column, rest) = (at % (width * columns), at / (width * columns));
                let (row, plane) = (rest % (height * rows), rest / (height * rows));
                let tap = row % rows * columns + column % columns;
                let from = (plane / planes * rows * columns + tap) * planes + plane % planes;
                let from = (from * height + row / rows) * width + column / columns;
                prop_assert_eq!(y, x[from]);
            }
        }
    }
}
