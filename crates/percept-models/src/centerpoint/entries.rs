//! CenterPoint in the zoo.

use percept_graph::Graph;
use percept_kernels::voxelize::VoxelGrid;

use super::detect::DetectionHead;
use super::lesson::DETECTOR;
use super::studies::STUDIES;
use super::{CLASS_NAMES, CenterPoint, SweepIntake, Widths, backbone_2d, backbone_3d};
use crate::answer::{FeatureHead, Head};
use crate::zoo::{Entry, Parts, owned};
use crate::{ChosenSettings, ModelError, Setting};

static FINE_SETTINGS: [Setting; SETTINGS] = settings(CenterPoint::FINE, 54.0, 0.075);
static COARSE_SETTINGS: [Setting; SETTINGS] = settings(CenterPoint::COARSE, 51.2, 0.1);
static SMALL_SETTINGS: [Setting; SETTINGS] = settings(CenterPoint::SMALL, 25.6, 0.1);

const SETTINGS: usize = 17;

static DENSE_SETTINGS: [Setting; 2] = [
    Setting::count("height", 180, "cells of the map, top to bottom"),
    Setting::count("width", 180, "cells of the map, left to right"),
];

/// How much the sparse part and the dense part shrink the grid together.
const GRID_MULTIPLE: usize = 8 * backbone_2d::STRIDE;

pub(crate) static ENTRIES: &[Entry] = &[
    entry(
        "centerpoint",
        "CenterPoint on LiDAR points, voxels of 7.5 cm, OpenPCDet's layout",
        &FINE_SETTINGS,
    ),
    entry(
        "centerpoint-voxel01",
        "CenterPoint on LiDAR points, voxels of 10 cm, OpenPCDet's layout",
        &COARSE_SETTINGS,
    ),
    entry(
        "centerpoint-small",
        "CenterPoint for 25.6 m around the sensor, narrow enough to be trained on a plain CPU",
        &SMALL_SETTINGS,
    )
    .shipping(include_bytes!("weights.safetensors")),
    Entry::new(
        "centerpoint-sparse",
        "CenterPoint's sparse part: points to bird's-eye map",
        &FINE_SETTINGS,
        |name, settings| {
            let (network, grid) = configured(name, settings)?;
            Ok(sweeps(network.sparse_graph(&grid)?, FeatureHead))
        },
    ),
    Entry::new(
        "centerpoint-dense",
        "CenterPoint's dense part: bird's-eye map to heads, as other engines can run it",
        &DENSE_SETTINGS,
        |name, settings| {
            let sides = ["height", "width"].map(|side| settings.count(side));
            let [height, width] = sides;
            if sides.iter().any(|side| side % backbone_2d::STRIDE != 0) {
                let message =
                    format!("a map of {height} x {width} cells, whose sides must be even");
                return Err(ModelError::BadCombination {
                    model: name,
                    message,
                });
            }
            let shape = [1, Widths::PUBLIC.bev(), height, width];
            Ok(Parts::of_tensors(
                CenterPoint::dense_graph(height, width)?,
                [("bev", shape)],
            ))
        },
    ),
];

const fn entry(
    name: &'static str,
    description: &'static str,
    settings: &'static [Setting],
) -> Entry {
    Entry::new(name, description, settings, |name, settings| {
        let (network, grid) = configured(name, settings)?;
        let head = DetectionHead {
            reach_m: network.range_m,
        };
        Ok(Parts {
            classes: owned(&CLASS_NAMES),
            ..sweeps(network.graph(&grid)?, head)
        })
    })
    .taught_by(DETECTOR)
    .studied(STUDIES)
}

fn sweeps(graph: Graph, head: impl Head + 'static) -> Parts {
    Parts::new(graph, SweepIntake, head)
}

/// The defaults as a user writes them; f32 values widened to f64 would show their rounding.
const fn settings(defaults: CenterPoint, range_m: f64, voxel_m: f64) -> [Setting; SETTINGS] {
    let widths = defaults.widths;
    const METRES: [f64; 2] = [0.1, 1000.0];
    const HEIGHTS: [f64; 2] = [-100.0, 100.0];
    const VOXELS: [f64; 2] = [0.01, 10.0];
    const MOST: [usize; 2] = [1, 1 << 24];
    [
        Setting::number(
            "range",
            range_m,
            METRES,
            "half the side of the square around the sensor, metres",
        ),
        Setting::number(
            "z_min",
            defaults.height_m[0] as f64,
            HEIGHTS,
            "lowest point, metres",
        ),
        Setting::number(
            "z_max",
            defaults.height_m[1] as f64,
            HEIGHTS,
            "highest point, metres",
        ),
        Setting::number(
            "voxel",
            voxel_m,
            VOXELS,
            "side of a voxel seen from above, metres",
        ),
        Setting::number("voxel_z", 0.2, VOXELS, "height of a voxel, metres"),
        Setting::count_within(
            "max_points",
            defaults.max_points,
            MOST,
            "points that count in a voxel",
        ),
        Setting::count_within("max_voxels", defaults.max_voxels, MOST, "voxels at most"),
        channels("stage1", widths.stages[0], "channels of the voxels"),
        channels(
            "stage2",
            widths.stages[1],
            "channels at half the resolution",
        ),
        channels(
            "stage3",
            widths.stages[2],
            "channels at a quarter of the resolution",
        ),
        channels(
            "stage4",
            widths.stages[3],
            "channels at an eighth of the resolution",
        ),
        layers(
            "blocks",
            widths.blocks,
            "residual blocks of each of these stages",
        ),
        channels("map1", widths.map[0], "channels of the map seen from above"),
        channels(
            "map2",
            widths.map[1],
            "channels of the map at half its resolution",
        ),
        layers(
            "map_depth",
            widths.map_depth,
            "convolutions of each map behind its first",
        ),
        channels(
            "map_out",
            widths.map_out,
            "channels that each map hands to the heads",
        ),
        channels("head", widths.head, "channels of the heads' branches"),
    ]
}

const fn channels(name: &'static str, default: usize, help: &'static str) -> Setting {
    Setting::count_within(name, default, [1, 1 << 10], help)
}

const fn layers(name: &'static str, default: usize, help: &'static str) -> Setting {
    Setting::count_within(name, default, [1, 32], help)
}

/// The network that was chosen, and its grid.
pub(super) fn configured(
    name: &'static str,
    settings: &ChosenSettings,
) -> Result<(CenterPoint, VoxelGrid), ModelError> {
    let metres = |setting: &str| settings.number(setting) as f32;
    let network = CenterPoint {
        range_m: metres("range"),
        height_m: [metres("z_min"), metres("z_max")],
        voxel_m: [metres("voxel"), metres("voxel"), metres("voxel_z")],
        max_points: settings.count("max_points"),
        max_voxels: settings.count("max_voxels"),
        widths: Widths {
            stages: ["stage1", "stage2", "stage3", "stage4"].map(|stage| settings.count(stage)),
            blocks: settings.count("blocks"),
            map: ["map1", "map2"].map(|map| settings.count(map)),
            map_depth: settings.count("map_depth"),
            map_out: settings.count("map_out"),
            head: settings.count("head"),
        },
    };
    let bad = |message| ModelError::BadCombination {
        model: name,
        message,
    };
    let grid = network.grid().map_err(|error| bad(error.to_string()))?;
    let [x, y, z] = grid.cells();
    if !x.is_multiple_of(GRID_MULTIPLE) {
        return Err(bad(format!(
            "`range` and `voxel` make a grid of {x} x {y} cells, whose sides must be multiples of {GRID_MULTIPLE}"
        )));
    }
    // Two heights of the last stage become the channels of the map.
    if backbone_3d::output_heights(z + 1) != backbone_3d::BEV_HEIGHTS {
        return Err(bad(format!(
            "`z_min`, `z_max` and `voxel_z` make {z} layers; the network takes 40 to 55, so that two remain"
        )));
    }
    Ok((network, grid))
}
