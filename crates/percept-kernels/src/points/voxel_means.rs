//! Thinning a cloud to one point for each cell of a grid, and bringing answers back to every row.
//!
//! As the public pipelines have it: cells are cubes from the floor of the smallest coordinates on, and a cell becomes the mean
//! of its points and of their features. Sums are in f64, so a cloud far from the origin keeps its precision.

use thiserror::Error;

use super::tree::{Numbering, PointTree, PointsError, is_usable};
use crate::cpu::Cpu;

/// Cells along an axis at most: what a key has bits for.
const MAX_CELLS: f64 = (1u64 << CELL_BITS) as f64;
const CELL_BITS: u32 = 21;

/// Why a cloud cannot be thinned.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum VoxelMeansError {
    /// A cell has no extent.
    #[error("cells of {cell} m: expected a length above 0")]
    Cell {
        /// The extent asked for.
        cell: f32,
    },
    /// The cloud is too wide for cells so small.
    #[error(
        "axis {axis}: {extent} m in cells of {cell} m: at most 2^{CELL_BITS} cells are supported"
    )]
    TooWide {
        /// x, y or z.
        axis: char,
        /// The extent of the cloud.
        extent: f64,
        /// The extent of a cell.
        cell: f32,
    },
    /// The points themselves.
    #[error(transparent)]
    Points(#[from] PointsError),
}

/// A cloud with one point for each cell that has any, in the order of their cells (x first, then y, then z).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VoxelMeans {
    /// The mean of each cell's points.
    pub points: Vec<[f32; 3]>,
    /// The mean of each cell's features, as many as a row has.
    pub features: Vec<f32>,
    /// The cell of each row; -1 where a row has none, because its coordinates are no numbers.
    pub cell_of_row: Vec<i32>,
}

impl VoxelMeans {
    /// Thins a cloud: `features` has the same number of values for each point, or none.
    pub fn new(
        points: &[[f32; 3]],
        features: &[f32],
        cell: f32,
    ) -> Result<VoxelMeans, VoxelMeansError> {
        if !(cell > 0.0 && cell.is_finite()) {
            return Err(VoxelMeansError::Cell { cell });
        }
        let width = features.len() / points.len().max(1);
        assert_eq!(
            features.len(),
            points.len() * width,
            "length of the features"
        );
        let mut sorted = cells(points, cell)?;
        sorted.sort_unstable();
        let mut means = VoxelMeans {
            cell_of_row: vec![-1; points.len()],
            ..VoxelMeans::default()
        };
        let mut sums = vec![0.0f64; 3 + width];
        for same in sorted.chunk_by(|a, b| a.0 == b.0) {
            sums.fill(0.0);
            for &(_, row) in same {
                means.cell_of_row[row as usize] = means.points.len() as i32;
                let point = &points[row as usize];
                let features = &features[row as usize * width..][..width];
                for (sum, &value) in sums.iter_mut().zip(point.iter().chain(features)) {
                    *sum += f64::from(value);
                }
            }
            let mean = |sum: &f64| (sum / same.len() as f64) as f32;
            means
                .points
                .push([mean(&sums[0]), mean(&sums[1]), mean(&sums[2])]);
            means.features.extend(sums[3..].iter().map(mean));
        }
        Ok(means)
    }

    /// Rows that have no cell.
    pub fn dropped(&self) -> usize {
        self.cell_of_row.iter().filter(|&&cell| cell < 0).count()
    }

    /// The nearest mean for each row of the cloud that was thinned; -1 for rows that have no cell.
    ///
    /// It is not always the mean of the row's own cell: another cell's may be nearer.
    pub fn nearest(&self, cpu: &Cpu, rows: &[[f32; 3]]) -> Result<Vec<i32>, PointsError> {
        assert_eq!(rows.len(), self.cell_of_row.len(), "rows of the cloud");
        let means = PointTree::build(cpu, &self.points, Numbering::Rows)?;
        let rows = PointTree::of_usable(cpu, rows, Numbering::Rows)?;
        let mut nearest = vec![-1; rows.lists() * means.list_len(1)];
        means.neighbours_of(cpu, &rows, 1, &mut nearest, None);
        // Without any mean there is no row that has one.
        nearest.resize(rows.lists(), -1);
        Ok(nearest)
    }
}

/// The cell of each usable row, as (key, row).
fn cells(points: &[[f32; 3]], cell: f32) -> Result<Vec<(u64, u32)>, VoxelMeansError> {
    if u32::try_from(points.len()).is_err() {
        let points = points.len();
        return Err(PointsError::TooMany { points }.into());
    }
    let usable = || {
        points
            .iter()
            .zip(0u32..)
            .filter(|(point, _)| is_usable(point))
    };
    let wide_cell = f64::from(cell);
    let mut origin = [0.0; 3];
    for axis in 0..3 {
        let values = usable().map(|(point, _)| f64::from(point[axis]));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        origin[axis] = (low / wide_cell).floor();
        let extent = high - low;
        if extent / wide_cell > MAX_CELLS - 2.0 {
            let axis = ['x', 'y', 'z'][axis];
            return Err(VoxelMeansError::TooWide { axis, extent, cell });
        }
    }
    let key = |point: &[f32; 3]| {
        (0..3).rev().fold(0, |key, axis| {
            let place = (f64::from(point[axis]) / wide_cell).floor() - origin[axis];
            key << CELL_BITS | place as u64
        })
    };
    Ok(usable().map(|(point, row)| (key(point), row)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::numbers;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn means_and_nearest_are_those_of_a_plain_search(
            len in 0usize..200, seed in any::<u64>(), width in 0usize..3, away in prop::sample::select(vec![0.0f32, 1e6]),
        ) {
            let points: Vec<[f32; 3]> = numbers(seed, 3 * len).as_chunks::<3>().0.iter().map(|p| p.map(|v| v + away)).collect();
            let features = numbers(seed ^ 1, len * width);
            let cell = 0.25;
            let means = VoxelMeans::new(&points, &features, cell).unwrap();
            let mut expected: BTreeMap<[i64; 3], Vec<usize>> = BTreeMap::new();
            for (row, point) in points.iter().enumerate() {
                let [x, y, z] = point.map(|v| (f64::from(v) / 0.25).floor() as i64);
                expected.entry([z, y, x]).or_default().push(row);
            }
            prop_assert_eq!(means.points.len(), expected.len());
            for (index, rows) in expected.values().enumerate() {
                prop_assert!(rows.iter().all(|&row| means.cell_of_row[row] == index as i32));
                let mean = |value: &dyn Fn(usize) -> f32| {
                    let sum: f64 = rows.iter().map(|&row| f64::from(value(row))).sum();
                    (sum / rows.len() as f64) as f32
                };
                for axis in 0..3 {
                    prop_assert_eq!(means.points[index][axis], mean(&|row| points[row][axis]));
                }
                for channel in 0..width {
                    prop_assert_eq!(means.features[index * width + channel], mean(&|row| features[row * width + channel]));
                }
            }
            let cpu = Cpu::new(1).unwrap();
            let distance = |a: [f32; 3], b: [f32; 3]| -> f32 { (0..3).map(|i| (a[i] - b[i]) * (a[i] - b[i])).fold(0.0, |a, b| a + b) };
            for (row, nearest) in means.nearest(&cpu, &points).unwrap().into_iter().enumerate() {
                let best = means.points.iter().map(|&mean| distance(points[row], mean)).fold(f32::MAX, f32::min);
                prop_assert_eq!(distance(points[row], means.points[nearest as usize]), best);
            }
        }
    }

    #[test]
    fn rows_without_numbers_are_dropped_and_said() {
        let points = [
            [0.0; 3],
            [f32::NAN, 0.0, 0.0],
            [0.01, 0.0, 0.0],
            [5.0, 0.0, 0.0],
        ];
        let means = VoxelMeans::new(&points, &[], 0.06).unwrap();
        assert_eq!(means.cell_of_row, [0, -1, 0, 1]);
        assert_eq!((means.points.len(), means.dropped()), (2, 1));
        let cpu = Cpu::new(1).unwrap();
        assert_eq!(means.nearest(&cpu, &points), Ok(vec![0, -1, 0, 1]));
        let nothing = [[f32::NAN; 3]; 2];
        let means = VoxelMeans::new(&nothing, &[], 0.06).unwrap();
        assert_eq!(means.nearest(&cpu, &nothing), Ok(vec![-1, -1]));
    }

    #[test]
    fn cells_that_cannot_be_are_refused() {
        for cell in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let refused = VoxelMeans::new(&[[0.0; 3]], &[], cell);
            assert!(matches!(refused, Err(VoxelMeansError::Cell { .. })));
        }
        let refused = VoxelMeans::new(&[[0.0; 3], [0.0, 1e7, 0.0]], &[], 0.06);
        assert!(matches!(
            refused,
            Err(VoxelMeansError::TooWide { axis: 'y', .. })
        ));
    }
}
