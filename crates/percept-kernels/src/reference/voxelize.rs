//! Points into voxels, one point after the other.

use std::collections::HashMap;
use std::ops::Add;

use crate::voxelize::{VoxelGrid, Voxels};

/// Gathers points (points x channels) into voxels, in the words of the specification.
pub fn voxelize(points: &[f32], channels: usize, grid: &VoxelGrid) -> Voxels {
    let (mut dropped_non_finite, mut dropped_outside) = (0, 0);
    // In the order in which voxels are first seen: the cell, and the points that count.
    let mut voxels: Vec<([i32; 3], Vec<&[f32]>)> = Vec::new();
    let mut number_of_cell: HashMap<[i32; 3], usize> = HashMap::new();
    for point in points.chunks_exact(channels) {
        if point.iter().any(|value| !value.is_finite()) {
            dropped_non_finite += 1;
            continue;
        }
        let in_range =
            (0..2).all(|axis| (grid.min()[axis]..=grid.max()[axis]).contains(&point[axis]));
        let [x, y, z]: [i64; 3] = std::array::from_fn(|axis| {
            ((point[axis] - grid.min()[axis]) / grid.voxel()[axis]).floor() as i64
        });
        let in_grid = |c: i64, axis: usize| c >= 0 && c < grid.cells()[axis] as i64;
        if !(in_range && in_grid(x, 0) && in_grid(y, 1) && in_grid(z, 2)) {
            dropped_outside += 1;
            continue;
        }
        let cell = [z, y, x].map(|c| c as i32);
        let number = match number_of_cell.get(&cell) {
            Some(&number) => number,
            None if voxels.len() >= grid.max_voxels() => continue,
            None => {
                voxels.push((cell, Vec::new()));
                number_of_cell.insert(cell, voxels.len() - 1);
                voxels.len() - 1
            }
        };
        let members = &mut voxels[number].1;
        if members.len() < grid.max_points() {
            members.push(point);
        }
    }
    let mut rows: Vec<usize> = (0..voxels.len()).collect();
    rows.sort_by_key(|&number| voxels[number].0);
    let mut first_seen = vec![0; voxels.len()];
    for (row, &number) in rows.iter().enumerate() {
        first_seen[number] = row as u32;
    }
    let mean = |number: &usize| {
        let members = &voxels[*number].1;
        let sum = |channel| {
            members
                .iter()
                .map(|point| point[channel])
                .fold(0.0, f32::add)
        };
        let count = members.len().max(1) as f32;
        (0..channels)
            .map(|channel| sum(channel) / count)
            .collect::<Vec<f32>>()
    };
    Voxels {
        coords: rows.iter().map(|&number| voxels[number].0).collect(),
        point_counts: rows
            .iter()
            .map(|&number| voxels[number].1.len() as u32)
            .collect(),
        features: rows.iter().flat_map(mean).collect(),
        first_seen,
        dropped_non_finite,
        dropped_outside,
    }
}
