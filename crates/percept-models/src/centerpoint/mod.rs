//! CenterPoint: "Center-based 3D Object Detection and Tracking" (Yin et al., 2021), the voxel network for nuScenes in
//! OpenPCDet's layout.
//!
//! Points become voxels, a sparse residual network shrinks them eightfold to a bird's-eye map, a dense network reads the
//! map at two scales, and six heads find the centres of ten classes.

mod backbone_2d;
mod backbone_3d;
pub mod decode;
mod detect;
mod entries;
mod head;
mod intake;
mod lesson;
mod loss;
mod studies;
mod targets;
mod training;
mod voxels;
mod widths;

use percept_graph::{Builder, Dim, Graph, GraphError, ValueId};
use percept_kernels::voxelize::{VoxelGrid, VoxelGridError};

use decode::DecodeConfig;
pub(crate) use entries::ENTRIES;
pub use head::{BRANCHES, CLASS_NAMES, HEADS};
pub use intake::SweepIntake;
pub use lesson::OBJECTS;
pub use targets::BOX_VALUES;
pub use training::{LOSS_TERMS, TRUE_BOX_COUNTS, TRUE_BOXES};
pub use widths::Widths;

/// How the points are cut into voxels, and how wide the network is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CenterPoint {
    /// The square around the sensor reaches this far along x and y.
    pub range_m: f32,
    /// Lowest and highest point.
    pub height_m: [f32; 2],
    /// Size of a voxel: x, y, z.
    pub voxel_m: [f32; 3],
    /// Points that count in a voxel.
    pub max_points: usize,
    /// Voxels at most, in the order in which points come.
    pub max_voxels: usize,
    /// Channels and layers.
    pub widths: Widths,
}

impl CenterPoint {
    /// Voxels of 7.5 cm.
    pub const FINE: CenterPoint = CenterPoint {
        range_m: 54.0,
        height_m: [-5.0, 3.0],
        voxel_m: [0.075, 0.075, 0.2],
        max_points: 10,
        max_voxels: 160_000,
        widths: Widths::PUBLIC,
    };

    /// Voxels of 10 cm.
    pub const COARSE: CenterPoint = CenterPoint {
        range_m: 51.2,
        voxel_m: [0.1, 0.1, 0.2],
        max_voxels: 60_000,
        ..CenterPoint::FINE
    };

    /// A narrow network for what is near, with voxels of 10 cm.
    pub const SMALL: CenterPoint = CenterPoint {
        range_m: 25.6,
        widths: Widths::SMALL,
        ..CenterPoint::COARSE
    };

    /// Values of a point: x, y, z, intensity, seconds before the keyframe.
    pub const POINT_CHANNELS: usize = 5;

    /// The grid of voxels.
    pub fn grid(&self) -> Result<VoxelGrid, VoxelGridError> {
        let [low, high] = self.height_m;
        VoxelGrid::new(
            [-self.range_m, -self.range_m, low],
            [self.range_m, self.range_m, high],
            self.voxel_m,
            self.max_points,
            self.max_voxels,
        )
    }

    /// The network: `points` [P, 5] of all samples and the `counts` [N] of each to the maps of the six
    /// heads and the `detections`.
    pub fn graph(&self, grid: &VoxelGrid) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CenterPoint");
        let bev = sparse_part(&mut b, self, grid);
        let heads = dense_part(&mut b, self, bev);
        detect::detections(&mut b, DecodeConfig::new(self), &heads);
        b.finish()
    }

    /// The sparse part alone, from points to `bev` [N, 256, H, W]: to be compared with other sparse convolutions.
    pub fn sparse_graph(&self, grid: &VoxelGrid) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CenterPoint");
        let bev = sparse_part(&mut b, self, grid);
        b.output("bev", bev);
        b.finish()
    }

    /// The dense part alone: `bev` [N, 256, height, width] to the maps of the six heads. What other engines can run.
    pub fn dense_graph(height: usize, width: usize) -> Result<Graph, GraphError> {
        let mut b = Builder::new("CenterPoint");
        let network = CenterPoint::FINE;
        let sides = [network.widths.bev(), height, width].map(Dim::from);
        let bev = b.input("bev", [Dim::symbol("N")].into_iter().chain(sides));
        dense_part(&mut b, &network, bev);
        b.finish()
    }
}

fn sparse_part(b: &mut Builder, network: &CenterPoint, grid: &VoxelGrid) -> ValueId {
    let points = b.input(
        intake::POINTS,
        [Dim::symbol("P"), CenterPoint::POINT_CHANNELS.into()],
    );
    let counts = b.integer_input(intake::COUNTS, [Dim::symbol("N")]);
    let [features, sites] = voxels::voxelize(b, grid, points, counts);
    let volume = backbone_3d::backbone(
        b,
        &network.widths,
        features,
        sites,
        voxels::sparse_cells(grid),
    );
    b.module("map_to_bev_module", "HeightCompression", |b| {
        volume.to_dense(b, counts)
    })
}

fn dense_part(b: &mut Builder, network: &CenterPoint, bev: ValueId) -> Vec<ValueId> {
    b.name("bev", bev);
    let x = backbone_2d::backbone(b, &network.widths, bev);
    head::heads(b, &network.widths, x)
}
