//! RandLA-Net in the zoo.

use std::sync::Arc;

use percept_data::points::LEARNED_CLASS_NAMES;

use super::head::PointHead;
use super::intake::ScanIntake;
use super::lesson::SEGMENTER;
use super::studies::STUDIES;
use super::{KnnCache, RandLaNet, SeedFileError};
use crate::answer::FeatureHead;
use crate::zoo::{Entry, Parts, owned};
use crate::{ChosenSettings, ModelError, Setting};

const CLASSES: usize = LEARNED_CLASS_NAMES.len() - 1;

const GRID: Setting = Setting::number(
    "grid",
    0.06,
    [0.0, 10.0],
    "side of the cells that become one point each, metres; 0 takes every point",
)
.of_run();
const VOTES: Setting = Setting::count_within(
    "votes",
    1,
    [1, 64],
    "times that a scan is looked at, each time with another shuffle",
)
.of_run();
const CACHE: Setting = Setting::count_within(
    "cache",
    0,
    [0, 1 << 20],
    "MB of neighbours that are kept for clouds that come again; 0 searches every time",
)
.of_run();
const SHUFFLE: Setting = Setting::count_within(
    "shuffle",
    0,
    [0, 1 << 30],
    "what the shuffles follow from, which say which points stay",
)
.of_run();

static FAITHFUL: [Setting; 6] = [
    Setting::count("classes", CLASSES, "classes of a point"),
    Setting::count_within(
        "neighbours",
        16,
        [1, 64],
        "neighbours that a point looks at",
    ),
    GRID,
    VOTES,
    SHUFFLE,
    CACHE,
];

static SEED: [Setting; 6] = [
    Setting::choice(
        "config",
        &["cfg3", "cfg7", "bench"],
        "which configuration of the repository; the library reads others from their files",
    ),
    Setting::count("classes", 10, "classes of a point"),
    GRID,
    VOTES,
    SHUFFLE,
    CACHE,
];

pub(crate) static ENTRIES: &[Entry] = &[
    Entry::new(
        "randlanet",
        "RandLA-Net labels the points of LiDAR scans, Open3D-ML's layout",
        &FAITHFUL,
        build,
    )
    .shipping(include_bytes!("weights.safetensors"))
    .taught_by(SEGMENTER)
    .studied(STUDIES),
    Entry::new(
        SEED_NAME,
        "RandLA-Net as kalmary/RandLANet_Segmentation has it, on points and intensities",
        &SEED,
        build,
    )
    .taught_by(SEGMENTER)
    .studied(STUDIES),
    Entry::new(
        "randlanet-levels",
        "RandLA-Net's levels alone: the search for neighbours, and the way back up",
        &FAITHFUL,
        build_levels,
    ),
];

const SEED_NAME: &str = "randlanet-seed";

/// The network of this name with these settings, and what scans become for it.
pub(super) fn configured(
    name: &'static str,
    settings: &ChosenSettings,
) -> Result<(RandLaNet, ScanIntake), ModelError> {
    let classes = settings.count("classes");
    let network = if name == SEED_NAME {
        let text = match settings.choice("config") {
            "cfg7" => include_str!("configs/cfg7.json"),
            "bench" => include_str!("configs/bench.json"),
            _ => include_str!("configs/cfg3.json"),
        };
        let bad = |error: SeedFileError| ModelError::BadCombination {
            model: name,
            message: error.to_string(),
        };
        RandLaNet::from_seed_file(text, classes).map_err(bad)?
    } else {
        RandLaNet {
            neighbours: settings.count("neighbours"),
            ..RandLaNet::faithful(classes)
        }
    };
    let intake = ScanIntake {
        channels: network.channels_in,
        grid_m: settings.number("grid") as f32,
        votes: settings.count("votes"),
        seed: settings.count("shuffle") as u64,
    };
    Ok((network, intake))
}

fn build(name: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let (network, intake) = configured(name, settings)?;
    let classes = match network.classes == CLASSES {
        true => owned(&LEARNED_CLASS_NAMES[1..]),
        false => owned(&[]),
    };
    let head = PointHead {
        intake,
        classes: network.classes,
    };
    let cache = cache(settings);
    Ok(Parts {
        classes,
        lean: Some(network.lean_graph(cache.clone())?),
        ..Parts::new(network.graph_with_cache(cache)?, intake, head)
    })
}

fn build_levels(name: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let (network, intake) = configured(name, settings)?;
    let graph = network.levels_graph(cache(settings))?;
    Ok(Parts::new(graph, intake, FeatureHead))
}

/// Where neighbours are kept, where that is asked for.
fn cache(settings: &ChosenSettings) -> Option<Arc<KnnCache>> {
    let megabytes = settings.count("cache") as u64;
    (megabytes > 0).then(|| Arc::new(KnnCache::new().with_limit(megabytes * 1_000_000)))
}
