//! The adjoint of writing sites to a dense map: reading them back.

use crate::cpu::Cpu;
use crate::rows::for_each_block;
use crate::sparse::DenseShape;

/// The features (one row a site) that a map `[samples][channels · depth][height][width]` has at these sites.
pub fn dense_to_sparse(cpu: &Cpu, shape: &DenseShape, sites: &[i32], map: &[f32], y: &mut [f32]) {
    let [depth, height, width] = shape.cells;
    assert_eq!(map.len(), shape.len(), "length of the map");
    let (sites, rest) = sites.as_chunks::<4>();
    assert!(rest.is_empty(), "a site has four numbers");
    let channels = shape.channels;
    for_each_block(cpu, sites.len(), channels, channels, y, |rows, y| {
        for (site, y) in sites[rows].iter().zip(y.chunks_exact_mut(channels.max(1))) {
            let [sample, z, row, column] = site.map(|at| at as usize);
            assert!(
                sample < shape.samples && z < depth && row < height && column < width,
                "a site outside the map"
            );
            for (channel, y) in y.iter_mut().enumerate() {
                let plane = (sample * channels + channel) * depth + z;
                *y = map[(plane * height + row) * width + column];
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::to_dense;
    use crate::testing::{check, numbers, widen};

    #[test]
    fn reads_what_was_written() {
        let shape = DenseShape {
            samples: 2,
            channels: 5,
            cells: [2, 3, 4],
        };
        let sites = [0, 0, 2, 3, 0, 1, 0, 0, 1, 1, 2, 1];
        let x = numbers(1, 3 * shape.channels);
        check(&widen(&x), 0.0, |cpu, y| {
            let mut map = vec![0.0; shape.len()];
            to_dense(cpu, &shape, &sites, &x, &mut map);
            dense_to_sparse(cpu, &shape, &sites, &map, y);
        });
    }
}
