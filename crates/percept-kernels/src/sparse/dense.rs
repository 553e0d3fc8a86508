//! From active sites to a dense map.

use super::sites::rows;
use crate::aligned::SharedMut;
use crate::cpu::Cpu;

/// A dense map `[samples][channels · depth][height][width]`, channel = c · depth + z: height compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct DenseShape {
    pub samples: usize,
    pub channels: usize,
    /// z, y, x.
    pub cells: [usize; 3],
}

impl DenseShape {
    /// Numbers in the map.
    pub fn len(&self) -> usize {
        self.samples * self.channels * self.cells.iter().product::<usize>()
    }

    /// Whether the map has no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Channels that a block writes together: they share the cache lines of the features.
const CHANNELS_PER_BLOCK: usize = 8;

/// Writes features `x` (one row a site) to a map that is zero elsewhere. The sites lie in the map.
pub fn to_dense(cpu: &Cpu, shape: &DenseShape, sites: &[i32], x: &[f32], y: &mut [f32]) {
    let [depth, height, width] = shape.cells;
    assert_eq!(y.len(), shape.len(), "length of y");
    let targets: Vec<usize> = rows(sites)
        .map(|[batch, z, row, column]| {
            let [batch, z, row, column] = [batch, z, row, column].map(|at| at as usize);
            assert!(
                batch < shape.samples && z < depth && row < height && column < width,
                "a site outside the map"
            );
            ((batch * shape.channels * depth + z) * height + row) * width + column
        })
        .collect();
    assert_eq!(x.len(), targets.len() * shape.channels, "length of x");
    let plane = depth * height * width;
    let blocks = shape.channels.div_ceil(CHANNELS_PER_BLOCK);
    let y = SharedMut::new(y);
    cpu.parallel(blocks, &|block, _| {
        let first = block * CHANNELS_PER_BLOCK;
        let channels = first..shape.channels.min(first + CHANNELS_PER_BLOCK);
        for sample in 0..shape.samples {
            let start = sample * shape.channels;
            // SAFETY: blocks have disjoint channels.
            unsafe { y.slice((start + channels.start) * plane..(start + channels.end) * plane) }
                .fill(0.0);
        }
        for (features, &target) in x.chunks_exact(shape.channels).zip(&targets) {
            for (channel, &value) in channels.clone().zip(&features[channels.clone()]) {
                let at = target + channel * plane;
                // SAFETY: in this block's channels, by the bounds checked above.
                unsafe { y.slice(at..at + 1).fill(value) };
            }
        }
    });
}
