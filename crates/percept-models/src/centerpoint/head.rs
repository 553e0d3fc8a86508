//! CenterHead: six groups of classes, each with maps of where centres are and what the boxes look like there.

use percept_graph::{BatchNorm, Builder, Conv2d, Initializer, ValueId};

use super::Widths;

/// The ten classes of nuScenes, by class id.
pub const CLASS_NAMES: [&str; 10] = [
    "car",
    "truck",
    "construction_vehicle",
    "bus",
    "trailer",
    "barrier",
    "motorcycle",
    "bicycle",
    "pedestrian",
    "traffic_cone",
];

/// The class ids of each head.
pub const HEADS: [&[usize]; 6] = [&[0], &[1, 2], &[3, 4], &[5], &[6, 7], &[8, 9]];

/// What a head says about a centre besides its heat map: name and channels.
pub const BRANCHES: [(&str, usize); 5] = [
    ("center", 2),
    ("center_z", 1),
    ("dim", 3),
    ("rot", 2),
    ("vel", 2),
];

/// Where the heat maps start: most cells hold no centre, and a tenth is expected.
const COLD: f32 = -2.19;

/// The map of the backbone to the outputs `head0.center`, ..., `head5.hm`, which are returned in this order.
pub(super) fn heads(b: &mut Builder, widths: &Widths, x: ValueId) -> Vec<ValueId> {
    let channels = [2 * widths.map_out, widths.head];
    let mut maps = Vec::new();
    b.module("dense_head", "CenterHead", |b| {
        let shared = b.module("shared_conv", "Sequential", |b| {
            conv_bn_relu(b, x, channels)
        });
        b.module("heads_list", "ModuleList", |b| {
            let mut last = shared;
            for (head, classes) in HEADS.iter().enumerate() {
                last = b.module(&head.to_string(), "SeparateHead", |b| {
                    let branches = BRANCHES.iter().copied().chain([("hm", classes.len())]);
                    let mut map = shared;
                    for (name, channels) in branches {
                        map = branch(b, name, shared, [widths.head, channels]);
                        if name == "hm" {
                            b.starts_as(map, "bias", Initializer::Constant(COLD));
                        }
                        b.output(&format!("head{head}.{name}"), map);
                        maps.push(map);
                    }
                    map
                });
            }
            last
        })
    });
    maps
}

fn branch(b: &mut Builder, name: &str, x: ValueId, [width, channels]: [usize; 2]) -> ValueId {
    b.module(name, "Sequential", |b| {
        let x = b.module("0", "Sequential", |b| conv_bn_relu(b, x, [width; 2]));
        b.conv2d("1", x, Conv2d::new(width, channels, 3).padding(1))
    })
}

fn conv_bn_relu(b: &mut Builder, x: ValueId, [from, to]: [usize; 2]) -> ValueId {
    let x = b.conv2d("0", x, Conv2d::new(from, to, 3).padding(1));
    let x = b.batch_norm("1", x, BatchNorm::new(to));
    b.relu("2", x)
}
