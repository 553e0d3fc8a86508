//! CenterPoint's first step against the public implementation: points in, voxels out, equal to the last bit.

use crate::stored::{Golden, shared};
use percept_data::points::read_merged_f16;
use percept_kernels::voxelize::{VoxelGrid, voxelize};

/// The grid of voxels of 0.075 m, over this many metres to each side.
fn grid(reach_m: f32) -> VoxelGrid {
    let (min, max) = ([-reach_m, -reach_m, -5.0], [reach_m, reach_m, 3.0]);
    VoxelGrid::new(min, max, [0.075, 0.075, 0.2], 10, 160_000).expect("a grid")
}

fn check(golden: &Golden, points: &[f32], reach_m: f32) {
    let voxels = voxelize(points, 5, &grid(reach_m));
    let coords: Vec<usize> = voxels
        .coords
        .iter()
        .flat_map(|&[z, y, x]| [0, z, y, x].map(|c| c as usize))
        .collect();
    let shape = vec![voxels.coords.len(), 4];
    assert_eq!(golden.shape("voxel.coords"), Some(shape));
    assert_eq!(coords, golden.indices("voxel.coords"));
    let widened = |values: &[u32]| values.iter().map(|&v| v as usize).collect::<Vec<_>>();
    let counts = widened(&voxels.point_counts);
    assert_eq!(counts, golden.indices("voxel.num_points"));
    let first_seen = widened(&voxels.first_seen);
    assert_eq!(first_seen, golden.indices("voxel.first_seen_order"));
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let features = golden.values("voxel.features");
    assert_eq!(bits(&voxels.features), bits(&features));
    assert_eq!(voxels.dropped_non_finite, 0);
}

#[test]
fn generated_cloud() {
    let golden = Golden::fixture("centerpoint_synth_voxels");
    check(&golden, &golden.values("points_raw"), 12.0);
}

#[test]
fn real_keyframe() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    let golden = Golden::open(&folder.join("keyframe_v0075.safetensors"));
    check(&golden, &golden.values("points_raw"), 54.0);
}

#[test]
fn real_ten_sweeps() {
    let (Some(folder), Some(data)) = (shared("golden/centerpoint"), shared("data/nuscenes")) else {
        return;
    };
    let golden = Golden::open(&folder.join("ten_sweeps_v0075.safetensors"));
    let cloud = read_merged_f16(&data.join("ten_sweeps_fp16x5.bin")).expect("the cloud reads");
    let points: Vec<f32> = cloud
        .points
        .iter()
        .flat_map(|p| {
            let [x, y, z] = p.position;
            [x, y, z, p.intensity, p.age_s]
        })
        .collect();
    check(&golden, &points, 54.0);
}
