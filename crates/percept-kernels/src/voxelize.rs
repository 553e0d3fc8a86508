//! Points into voxels, and each voxel's mean: the first step of a LiDAR network.
//!
//! A point falls into cell c = floor((p - min) / voxel), in f32 as the public implementations compute it. The first
//! `max_points` points of a voxel count and the first `max_voxels` voxels exist, in the order in which points come.
//! A voxel's feature is the mean of its points, channel by channel.

use thiserror::Error;

use crate::radix;

/// Where voxels are, and how many points and voxels are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct VoxelGrid {
    min: [f32; 3],
    max: [f32; 3],
    voxel: [f32; 3],
    cells: [usize; 3],
    max_points: usize,
    max_voxels: usize,
}

/// Why a grid cannot be.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum VoxelGridError {
    /// The range is empty or not finite, or a voxel has no extent.
    #[error(
        "axis {axis}: a range of {min} to {max} in voxels of {voxel}: expected a finite range of at least one voxel"
    )]
    Range {
        /// x, y or z.
        axis: char,
        /// The range's lower end.
        min: f32,
        /// The range's upper end.
        max: f32,
        /// The voxel's extent.
        voxel: f32,
    },
    /// More cells than keys.
    #[error(
        "a grid of {} x {} x {} cells: at most 4294967296 are supported", cells[0], cells[1], cells[2]
    )]
    TooManyCells {
        /// Cells along x, y, z.
        cells: [usize; 3],
    },
}

impl VoxelGrid {
    /// A grid over `min` to `max` (x, y, z in metres); it has round((max - min) / voxel) cells along each axis.
    pub fn new(
        min: [f32; 3],
        max: [f32; 3],
        voxel: [f32; 3],
        max_points: usize,
        max_voxels: usize,
    ) -> Result<VoxelGrid, VoxelGridError> {
        let mut cells = [0; 3];
        for (i, axis) in ['x', 'y', 'z'].into_iter().enumerate() {
            // In f64: 108 m / 0.075 m must not round to another whole number.
            let count =
                ((f64::from(max[i]) - f64::from(min[i])) / f64::from(voxel[i])).round_ties_even();
            if !(voxel[i] > 0.0 && count >= 1.0 && count.is_finite()) {
                return Err(VoxelGridError::Range {
                    axis,
                    min: min[i],
                    max: max[i],
                    voxel: voxel[i],
                });
            }
            cells[i] = count as usize;
        }
        let total = cells
            .iter()
            .try_fold(1u64, |total, &n| total.checked_mul(n as u64));
        if total.is_none_or(|total| total > 1 << 32) {
            return Err(VoxelGridError::TooManyCells { cells });
        }
        Ok(VoxelGrid {
            min,
            max,
            voxel,
            cells,
            max_points,
            max_voxels,
        })
    }

    /// The range's lower end: x, y, z.
    pub fn min(&self) -> [f32; 3] {
        self.min
    }

    /// The range's upper end: x, y, z.
    pub fn max(&self) -> [f32; 3] {
        self.max
    }

    /// The extent of a voxel: x, y, z.
    pub fn voxel(&self) -> [f32; 3] {
        self.voxel
    }

    /// Cells along x, y, z.
    pub fn cells(&self) -> [usize; 3] {
        self.cells
    }

    /// How many points of a voxel count.
    pub fn max_points(&self) -> usize {
        self.max_points
    }

    /// How many voxels there can be.
    pub fn max_voxels(&self) -> usize {
        self.max_voxels
    }

    /// The cell (x, y, z) of a point, if it has one.
    #[inline]
    fn cell(&self, point: [f32; 3]) -> Option<[u32; 3]> {
        // The last cell may reach past the range, be it by rounding; a point there is outside nevertheless. The public
        // implementations cut the height by cells alone, so we do.
        if point[0] > self.max[0] || point[1] > self.max[1] {
            return None;
        }
        let mut cell = [0; 3];
        for axis in 0..3 {
            let place = (point[axis] - self.min[axis]) / self.voxel[axis];
            if !(place >= 0.0 && place < self.cells[axis] as f32) {
                return None;
            }
            cell[axis] = place as u32; // rounds down, being positive
        }
        Some(cell)
    }
}

/// The voxels of a cloud, sorted by (z, y, x).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Voxels {
    /// The cell of each voxel: z, y, x.
    pub coords: Vec<[i32; 3]>,
    /// The points that count in each voxel.
    pub point_counts: Vec<u32>,
    /// The mean of those points: voxels x channels.
    pub features: Vec<f32>,
    /// Rows in the order in which the voxels were first seen.
    pub first_seen: Vec<u32>,
    /// Points left out because a channel is NaN or infinite.
    pub dropped_non_finite: usize,
    /// Points left out because they are outside of the grid.
    pub dropped_outside: usize,
}

/// Gathers `points` (points x channels, of which the first three are x, y, z) into voxels and takes their means.
///
/// One thread and memory in proportion to the points: the points are sorted by cell, never spread over the grid.
pub fn voxelize(points: &[f32], channels: usize, grid: &VoxelGrid) -> Voxels {
    assert!(channels >= 3, "a point of {channels} channels has no place");
    assert!(
        points.len().is_multiple_of(channels),
        "{} numbers are not points of {channels} channels",
        points.len()
    );
    assert!(
        points.len() / channels <= u32::MAX as usize,
        "more points than numbers for them"
    );
    let mut voxels = Voxels::default();
    let sorted = sort_points(points, channels, grid, &mut voxels);
    let runs: Vec<Run> = sorted
        .chunk_by(|&a, &b| radix::key(a) == radix::key(b))
        .map(Run)
        .collect();
    let kept = keep_first_seen(&runs, points.len() / channels, grid, &mut voxels);

    voxels.coords.reserve(kept.len());
    voxels.point_counts.reserve(kept.len());
    voxels.features.reserve(kept.len() * channels);
    let [cells_x, cells_y, _] = grid.cells.map(|n| n as u64);
    for run in kept {
        let key = u64::from(radix::key(run.0[0]));
        let (x, row) = (key % cells_x, key / cells_x);
        voxels
            .coords
            .push([row / cells_y, row % cells_y, x].map(|c| c as i32));
        let members = &run.0[..run.0.len().min(grid.max_points)];
        voxels.point_counts.push(members.len() as u32);
        let mean_start = voxels.features.len();
        voxels.features.resize(mean_start + channels, 0.0);
        let mean = &mut voxels.features[mean_start..];
        for &member in members {
            let start = radix::number(member) as usize * channels;
            for (sum, &value) in mean.iter_mut().zip(&points[start..start + channels]) {
                *sum += value;
            }
        }
        let count = members.len().max(1) as f32;
        mean.iter_mut().for_each(|sum| *sum /= count);
    }
    voxels
}

/// The points of one voxel as they come, packed with the voxel's key.
#[derive(Clone, Copy)]
struct Run<'a>(&'a [u64]);

/// The points that have a cell, sorted by it; counts those that have none.
fn sort_points(points: &[f32], channels: usize, grid: &VoxelGrid, voxels: &mut Voxels) -> Vec<u64> {
    let [cells_x, cells_y, cells_z] = grid.cells.map(|n| n as u64);
    let mut packs = Vec::with_capacity(points.len() / channels);
    for (number, point) in points.chunks_exact(channels).enumerate() {
        if !point.iter().all(|value| value.is_finite()) {
            voxels.dropped_non_finite += 1;
        } else if let Some([x, y, z]) = grid.cell([point[0], point[1], point[2]]) {
            let key = (u64::from(z) * cells_y + u64::from(y)) * cells_x + u64::from(x);
            packs.push(radix::pack(key as u32, number as u32));
        } else {
            voxels.dropped_outside += 1;
        }
    }
    radix::sort_by_key(&mut packs, cells_x * cells_y * cells_z);
    packs
}

/// The runs of the first `max_voxels` voxels by their first point; notes the order in which they were seen.
fn keep_first_seen<'a>(
    runs: &[Run<'a>],
    points: usize,
    grid: &VoxelGrid,
    voxels: &mut Voxels,
) -> Vec<Run<'a>> {
    let mut seen: Vec<u64> = (0..)
        .zip(runs)
        .map(|(run, members)| radix::pack(radix::number(members.0[0]), run))
        .collect();
    radix::sort_by_key(&mut seen, points as u64);
    seen.truncate(grid.max_voxels);
    let mut is_kept = vec![false; runs.len()];
    for &run in &seen {
        is_kept[radix::number(run) as usize] = true;
    }
    let mut kept = Vec::with_capacity(seen.len());
    let mut row_of_run = vec![0; runs.len()];
    for (run, members) in runs.iter().enumerate().filter(|&(run, _)| is_kept[run]) {
        row_of_run[run] = kept.len() as u32;
        kept.push(*members);
    }
    let rows = seen
        .iter()
        .map(|&run| row_of_run[radix::number(run) as usize]);
    voxels.first_seen = rows.collect();
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reference;

    fn grid(max_points: usize, max_voxels: usize) -> VoxelGrid {
        let (min, max) = ([-2.0, -1.0, -3.0], [2.0, 1.0, 1.0]);
        VoxelGrid::new(min, max, [0.5, 0.4, 0.8], max_points, max_voxels).unwrap()
    }

    /// Coordinates within and around the grid, its very borders, and what is no number.
    fn coordinate() -> impl Strategy<Value = f32> {
        prop_oneof![
            20 => -3.5f32..2.5,
            2 => prop::sample::select(vec![-3.0, -2.0, -1.0, 0.0, -0.0, 1.0, 2.0, 1e30]),
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn equals_the_reference(
            channels in 3usize..7,
            values in prop::collection::vec(coordinate(), 0..900),
            max_points in 0usize..5,
            max_voxels in prop::sample::select(vec![0usize, 1, 7, 40, 1000]),
        ) {
            let points = &values[..values.len() / channels * channels];
            let grid = grid(max_points, max_voxels);
            prop_assert_eq!(
                voxelize(points, channels, &grid),
                reference::voxelize(points, channels, &grid)
            );
        }
    }

    #[test]
    fn a_full_grid_still_fills_its_voxels() {
        let points = [0.1, 0.1, 0.0, 1.1, 0.1, 0.0, 0.2, 0.1, 0.0, 0.3, 0.1, 0.0];
        let voxels = voxelize(&points, 3, &grid(2, 1));
        assert_eq!(voxels.coords, [[3, 2, 4]]);
        assert_eq!(voxels.point_counts, [2]);
        assert_eq!(voxels.features, [(0.1f32 + 0.2) / 2.0, 0.1, 0.0]);
    }

    #[test]
    fn a_point_past_the_range_is_outside_even_where_a_voxel_reaches_it() {
        let (min, max) = ([-54.0, -54.0, -5.0], [54.0, 54.0, 3.0]);
        let grid = VoxelGrid::new(min, max, [0.075, 0.075, 0.2], 10, 10).unwrap();
        assert_eq!(grid.cells(), [1440, 1440, 40]);
        assert_eq!(grid.cell([53.99, -54.0, 0.0]), Some([1439, 0, 25]));
        // Three voxels reach past the end of this range.
        let grid = VoxelGrid::new([0.0; 3], [1.0; 3], [0.3334; 3], 10, 10).unwrap();
        assert_eq!(grid.cells(), [3; 3]);
        assert_eq!(grid.cell([1.0, 1.0, 1.0001]), Some([2; 3]));
        assert_eq!(grid.cell([1.0001, 1.0, 1.0]), None);
        assert_eq!(grid.cell([1.0, 1.0001, 1.0]), None);
    }

    #[test]
    fn impossible_grids_are_refused() {
        for (max, voxel) in [
            (1.0, 0.0),
            (1.0, -0.5),
            (0.0, 0.5),
            (-1.0, 0.5),
            (f32::NAN, 0.5),
            (f32::INFINITY, 0.5),
            (1.0, f32::NAN),
        ] {
            let grid = VoxelGrid::new([0.0; 3], [max, 1.0, 1.0], [voxel, 0.5, 0.5], 1, 1);
            assert!(
                matches!(grid, Err(VoxelGridError::Range { axis: 'x', .. })),
                "{max} {voxel}"
            );
        }
        let huge = VoxelGrid::new([0.0; 3], [1e30; 3], [1e-3; 3], 1, 1);
        assert!(matches!(huge, Err(VoxelGridError::TooManyCells { .. })));
    }
}
