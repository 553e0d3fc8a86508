//! Points into voxels, and each voxel's mean: the first step of a LiDAR network.
//!
//! A point falls into cell c = floor((p - min) / voxel), in f32 as the public implementations compute it. The first
//! `max_points` points of a voxel count and the first `max_voxels` voxels exist, in the order in which points come.
//! A voxel's feature is the mean of its points, channel by channel.

use std::ops::Add;

use bytemuck::cast_slice_mut;
use thiserror::Error;

use crate::aligned::AlignedBuf;
use crate::radix;
use crate::simd::prefetch_read;

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
    /// More cells than f32 can tell apart along an axis, or than keys can in all.
    #[error(
        "a grid of {} x {} x {} cells: at most 2^24 along an axis and 2^32 - 1 in all are supported",
        cells[0], cells[1], cells[2]
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
            .try_fold(1u32, |total, &n| total.checked_mul(n.try_into().ok()?));
        if total.is_none() || cells.iter().any(|&n| n > 1 << f32::MANTISSA_DIGITS) {
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
/// Runs on the calling thread. Memory is in proportion to the points: they are sorted by cell, never spread over the grid.
pub fn voxelize(points: &[f32], channels: usize, grid: &VoxelGrid) -> Voxels {
    assert!(channels >= 3, "a point of {channels} channels has no place");
    assert!(
        points.len().is_multiple_of(channels),
        "{} numbers are not points of {channels} channels",
        points.len()
    );
    let point_count = points.len() / channels;
    assert!(
        point_count <= u32::MAX as usize,
        "more points than numbers for them"
    );
    let mut memory = AlignedBuf::zeroed(point_count * (2 * size_of::<u64>() + size_of::<u32>()));
    let (packs, memory) = memory
        .bytes_mut()
        .split_at_mut(point_count * size_of::<u64>());
    let (spare, memory) = memory.split_at_mut(point_count * size_of::<u64>());
    let (packs, spare) = (cast_slice_mut(packs), cast_slice_mut(spare));

    let mut voxels = Voxels::default();
    let located = locate(points, channels, grid, packs, &mut voxels);
    let all_cells = grid.cells.iter().map(|&n| n as u64).product();
    let [sorted, _] = radix::sort_by_key(&mut packs[..located], &mut spare[..located], all_cells);
    let rows = &mut cast_slice_mut(memory)[..point_count];
    take_means(points, channels, grid, sorted, rows, &mut voxels);
    voxels
}

/// Packs the cell and the number of each point that has a cell, and counts the others.
fn locate(
    points: &[f32],
    channels: usize,
    grid: &VoxelGrid,
    packs: &mut [u64],
    voxels: &mut Voxels,
) -> usize {
    let [cells_x, cells_y, _] = grid.cells.map(|n| n as u32);
    let mut located = 0;
    for (number, point) in (0..).zip(points.chunks_exact(channels)) {
        if !is_finite(point) {
            voxels.dropped_non_finite += 1;
        } else if let Some([x, y, z]) = grid.cell([point[0], point[1], point[2]]) {
            let key = (z * cells_y + y) * cells_x + x;
            packs[located] = radix::pack(key, number);
            located += 1;
        } else {
            voxels.dropped_outside += 1;
        }
    }
    located
}

/// Whether all channels are; without a branch a channel, because nearly all points are.
fn is_finite(point: &[f32]) -> bool {
    point
        .iter()
        .fold(true, |finite, value| finite & value.is_finite())
}

/// Makes a voxel of each run of equal cells in `sorted`, unless too many were seen before.
fn take_means(
    points: &[f32],
    channels: usize,
    grid: &VoxelGrid,
    sorted: &[u64],
    row_of_first_point: &mut [u32],
    voxels: &mut Voxels,
) {
    const NO_ROW: u32 = u32::MAX;
    /// Points that are on their way from memory while one is added.
    const AHEAD: usize = 16;
    let place = |pack: u64| radix::number(pack) as usize * channels;

    let borders = sorted
        .windows(2)
        .filter(|pair| !same_cell(pair[0], pair[1]));
    let seen = borders.count() + usize::from(!sorted.is_empty());
    let kept = seen.min(grid.max_voxels);
    let first_too_late = if kept < seen {
        first_point_of_seen(sorted, kept)
    } else {
        u32::MAX
    };
    row_of_first_point.fill(NO_ROW);
    voxels.coords.reserve(kept);
    voxels.point_counts.reserve(kept);
    voxels.features.reserve(kept * channels);
    let [cells_x, cells_y, _] = grid.cells.map(|n| n as u32);
    let mut ahead = sorted.iter().skip(AHEAD);
    for run in runs(sorted) {
        for _ in run {
            if let Some(&later) = ahead.next() {
                prefetch_read(points[place(later)..].as_ptr());
            }
        }
        let first_point = radix::number(run[0]);
        if first_point >= first_too_late {
            continue;
        }
        row_of_first_point[first_point as usize] = voxels.coords.len() as u32;
        let key = radix::key(run[0]);
        let (row, x) = (key / cells_x, key % cells_x);
        let coords = [row / cells_y, row % cells_y, x].map(|c| c as i32);
        voxels.coords.push(coords);
        let members = &run[..run.len().min(grid.max_points)];
        voxels.point_counts.push(members.len() as u32);
        let count = members.len().max(1) as f32;
        voxels.features.extend((0..channels).map(|channel| {
            let values = members
                .iter()
                .map(|&member| points[place(member) + channel]);
            values.fold(0.0, f32::add) / count
        }));
    }
    voxels.first_seen.reserve(kept);
    let rows = row_of_first_point.iter().filter(|&&row| row != NO_ROW);
    voxels.first_seen.extend(rows);
}

/// The first point of the voxel that was seen after `earlier` others.
fn first_point_of_seen(sorted: &[u64], earlier: usize) -> u32 {
    let mut first_points: Vec<u32> = runs(sorted).map(|run| radix::number(run[0])).collect();
    *first_points.select_nth_unstable(earlier).1
}

/// The packs of each voxel, in the order of the points.
fn runs(sorted: &[u64]) -> impl Iterator<Item = &[u64]> {
    sorted.chunk_by(|&a, &b| same_cell(a, b))
}

fn same_cell(a: u64, b: u64) -> bool {
    radix::key(a) == radix::key(b)
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
        for max in [[1e30; 3], [3e4, 1.0, 1.0], [2.0; 3]] {
            let huge = VoxelGrid::new([0.0; 3], max, [1e-3; 3], 1, 1);
            assert!(
                matches!(huge, Err(VoxelGridError::TooManyCells { .. })),
                "{max:?}"
            );
        }
    }
}
