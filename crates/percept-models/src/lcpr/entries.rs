//! LCPR in the zoo.

use percept_data::seeded::Family;
use percept_graph::Graph;

use super::lesson::PLACES;
use super::studies::STUDIES;
use super::{DESCRIPTOR, LEVELS, Lcpr, PlaceIntake};
use crate::answer::DescriptorHead;
use crate::zoo::{Entry, Parts};
use crate::{AxisGroups, ChosenSettings, ModelError, OtherLayout, Setting};

/// VertConv's middle and the heads, block by block.
const FUSION: AxisGroups = &[
    &["fusion1.mid", "fusion1.heads"],
    &["fusion2.mid", "fusion2.heads"],
    &["fusion3.mid", "fusion3.heads"],
    &["fusion4.mid", "fusion4.heads"],
];
const STAGES: AxisGroups = &[&[
    "stage1.inner",
    "stage2.inner",
    "stage3.inner",
    "stage4.inner",
]];
const IMAGE: AxisGroups = &[&["camera.height"]];
const HEAD: AxisGroups = &[&["final.mid", "netvlad.clusters", "descriptor"]];

const SETTINGS: usize = 8;

const fn settings(defaults: Lcpr) -> [Setting; SETTINGS] {
    let Lcpr {
        width,
        features,
        clusters,
        descriptor,
    } = defaults;
    let most = LEVELS as u8;
    [
        Setting::count_within(
            "width",
            width,
            [4, 256],
            "channels of the first stage, a multiple of 4; each further stage has twice as many",
        ),
        Setting::count_within(
            "features",
            features,
            [1, 4096],
            "features of a column in front of NetVLAD",
        ),
        Setting::count_within("clusters", clusters, [1, 1024], "NetVLAD's clusters"),
        Setting::count_within(
            "descriptor",
            descriptor,
            [1, 4096],
            "numbers of the descriptor for each of cameras and LiDAR",
        ),
        Setting::levels(
            "granularity",
            FUSION,
            most,
            "elastic: quarters of the middle of VertConv, and heads, of each fusion block",
        ),
        Setting::levels(
            "stages",
            STAGES,
            most,
            "elastic: quarters of the channels inside of each stage's residual blocks",
        ),
        Setting::levels(
            "image",
            IMAGE,
            most,
            "elastic: quarters of the pictures' height that the cameras' stream sees",
        ),
        Setting::levels(
            "head",
            HEAD,
            most,
            "elastic: quarters of the last VertConv's middle, of the clusters, of the descriptor",
        ),
    ]
}

static PUBLIC: [Setting; SETTINGS] = settings(Lcpr::PUBLIC);
static SMALL: [Setting; SETTINGS] = settings(Lcpr::SMALL);

pub(crate) static ENTRIES: &[Entry] = &[
    Entry::new(
        "lcpr",
        "LCPR: a place's descriptor from six cameras and a LiDAR, elastic, the public layout",
        &PUBLIC,
        |name, settings| build(name, settings, &PUBLIC, [256, 704], [32, 1056]),
    )
    .taught_by(PLACES)
    .studied(STUDIES),
    Entry::new(
        "lcpr-small",
        "LCPR, narrow enough to be trained on a plain CPU",
        &SMALL,
        |name, settings| build(name, settings, &SMALL, [64, 176], [32, 264]),
    )
    .shipping(include_bytes!("weights.safetensors"))
    .taught_by(PLACES)
    .studied(STUDIES),
];

/// The tensors of a ResNet-18 that both streams begin with: (its name, ours). The LiDAR's stages are copies of the cameras'.
fn resnet_names(graph: &Graph) -> Vec<(String, String)> {
    let ours = graph.params().iter().map(|param| &param.name);
    ours.filter_map(|ours| {
        let (module, rest) = ours.split_once('.')?;
        let public = module.strip_suffix("_i").or(module.strip_suffix("_l"))?;
        let shared = public.starts_with("layer") || ["conv1", "bn1"].contains(&public);
        shared.then(|| (format!("{public}.{rest}"), ours.clone()))
    })
    .collect()
}

/// The network that settings describe.
pub(super) fn configured(settings: &ChosenSettings) -> Lcpr {
    Lcpr {
        width: settings.count("width"),
        features: settings.count("features"),
        clusters: settings.count("clusters"),
        descriptor: settings.count("descriptor"),
    }
}

fn build(
    model: &'static str,
    settings: &ChosenSettings,
    declared: &[Setting],
    camera: [usize; 2],
    range: [usize; 2],
) -> Result<Parts, ModelError> {
    let network = configured(settings);
    if !network.width.is_multiple_of(4) {
        let message = format!(
            "setting `width` is {}, which must be a multiple of 4: the attention has 4 heads",
            network.width
        );
        return Err(ModelError::BadCombination { model, message });
    }
    let graph = network.graph(&settings.levels(declared))?;
    let intake = PlaceIntake::new(camera, range);
    let resnet18 = OtherLayout {
        name: "ResNet-18",
        renames: resnet_names(&graph),
    };
    Ok(Parts {
        family: Family::Lcpr,
        other_layouts: vec![resnet18],
        ..Parts::new(graph, intake, DescriptorHead { output: DESCRIPTOR })
    })
}
