//! O-MaMa in the zoo.

use super::lesson::{SMALL_PAIRS, WHOLE_PAIRS};
use super::report::{REPORT, SMALL_REPORT};
use super::{FEATURES, MatchHead, Matcher, OMama, POOLS, PairIntake};
use percept_data::seeded::Family;

use crate::dinov2::DinoV2;
use crate::zoo::{Entry, Parts};
use crate::{ChosenSettings, ModelError, Setting};

/// Register tokens of the backbone that the public system takes.
const REGISTERS: usize = 4;
/// Height and width of what the network sees from the head and from the stand.
const EGO: [usize; 2] = [700, 700];
const EXO: [usize; 2] = [532, 952];
const SMALL_EGO: [usize; 2] = [224, 224];
const SMALL_EXO: [usize; 2] = [224, 392];

const DIRECTION: Setting = Setting::choice(
    "direction",
    &["exo-to-ego", "ego-to-exo"],
    "which view shows the object, and in which it is looked for",
);
const VISIBILITY: Setting = Setting::flag(
    "visibility-head",
    false,
    "call the head that tells whether the thing is in view at all, which the public model has and never calls",
);
const THRESHOLD: Setting = Setting::number(
    "threshold",
    0.5,
    [0.0, 1.0],
    "a best candidate whose confidence is not above this is no match",
)
.of_run();

const CANDIDATES: Setting = Setting::count_within(
    "candidates",
    32,
    [1, 4096],
    "masks that the thing is looked for among",
);

static WHOLE: [Setting; 5] = [
    backbone(&["vitb14", "vits14", "vitl14"]),
    DIRECTION,
    context(100),
    THRESHOLD,
    VISIBILITY,
];
static SMALL: [Setting; 5] = [
    backbone(&["vits14", "vitb14", "vitl14"]),
    DIRECTION,
    // As much of the picture as 100 pixels are of the public one.
    context(32),
    THRESHOLD,
    VISIBILITY,
];

const fn context(pixels: usize) -> Setting {
    Setting::count_within(
        "context",
        pixels,
        [0, 10_000],
        "how far the surroundings of a mask reach, in pixels",
    )
    .of_run()
}

const fn backbone(choices: &'static [&'static str]) -> Setting {
    Setting::choice(
        "backbone",
        choices,
        "the DINOv2 with registers that makes the features",
    )
}

pub(crate) static ENTRIES: &[Entry] = &[
    Entry::new(
        "omama",
        "O-MaMa finds an object of one view among the masks of another",
        &WHOLE,
        |_, settings| build(settings, EGO, EXO),
    )
    .taught_by(WHOLE_PAIRS)
    .studied(REPORT),
    Entry::new(
        "omama-small",
        "O-MaMa on DINOv2 ViT-S/14, for pictures of 224x224 and 224x392",
        &SMALL,
        |_, settings| {
            Ok(Parts {
                family: Family::Untrained,
                ..build(settings, SMALL_EGO, SMALL_EXO)?
            })
        },
    )
    .taught_by(SMALL_PAIRS)
    .studied(SMALL_REPORT)
    .on_seeded(&["backbone", "head.mlp_visible"])
    .shipping(include_bytes!("weights.safetensors")),
];

/// Parts of O-MaMa in the public sizes, to be measured.
pub(crate) static PARTS: &[Entry] = &[
    Entry::new(
        "omama-head",
        "O-MaMa behind its backbone: features of both views and masks to similarities",
        &[CANDIDATES],
        |_, settings| {
            let head = public_head();
            let views = [head.source_grid, head.dest_grid].map(|[rows, columns]| rows * columns);
            let features = [0, 1].map(|view| (FEATURES[view], vec![1, views[view], head.width]));
            let masks = [1, settings.count("candidates")];
            let pools = [0, 1].map(|view| (POOLS[view], vec![1, masks[view], 2, views[view]]));
            let inputs = features.into_iter().chain(pools);
            Ok(Parts::of_tensors(head.graph()?, inputs))
        },
    ),
    Entry::new(
        "omama-descriptors",
        "O-MaMa's descriptors of masks: means of features, taken in the space of patches",
        &[CANDIDATES],
        |_, settings| {
            let head = public_head();
            let patches = head.dest_grid[0] * head.dest_grid[1];
            let pool = vec![1, settings.count("candidates"), 2, patches];
            let inputs = [
                (FEATURES[1], vec![1, patches, head.width]),
                (POOLS[1], pool),
            ];
            Ok(Parts::of_tensors(head.descriptor_graph()?, inputs))
        },
    ),
];

fn public_head() -> Matcher {
    OMama {
        backbone: DinoV2::BASE,
        source: EXO,
        dest: EGO,
        visibility: false,
    }
    .matcher()
}

fn build(settings: &ChosenSettings, ego: [usize; 2], exo: [usize; 2]) -> Result<Parts, ModelError> {
    let size = match settings.choice("backbone") {
        "vits14" => DinoV2::SMALL,
        "vitl14" => DinoV2::LARGE,
        _ => DinoV2::BASE,
    };
    let (source, dest) = match settings.choice("direction") {
        "ego-to-exo" => (ego, exo),
        _ => (exo, ego),
    };
    let network = OMama {
        backbone: DinoV2 {
            registers: REGISTERS,
            ..size
        },
        source,
        dest,
        visibility: settings.flag("visibility-head"),
    };
    let intake = PairIntake::new(source, dest, settings.count("context") as i64);
    let head = MatchHead {
        threshold: settings.number("threshold") as f32,
    };
    Ok(Parts::new(network.graph()?, intake, head))
}
