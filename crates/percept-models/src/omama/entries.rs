//! O-MaMa in the zoo.

use super::{MatchHead, OMama, PairIntake};
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
const CONTEXT: Setting = Setting::count_within(
    "context",
    100,
    [0, 10_000],
    "how far the surroundings of a mask reach, in pixels",
);
const THRESHOLD: Setting = Setting::number(
    "threshold",
    0.5,
    [0.0, 1.0],
    "a best candidate whose confidence is not above this is no match",
);

static WHOLE: [Setting; 4] = [
    backbone(&["vitb14", "vits14", "vitl14"]),
    DIRECTION,
    CONTEXT,
    THRESHOLD,
];
static SMALL: [Setting; 4] = [
    backbone(&["vits14", "vitb14", "vitl14"]),
    DIRECTION,
    CONTEXT,
    THRESHOLD,
];

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
    ),
    Entry::new(
        "omama-small",
        "O-MaMa on DINOv2 ViT-S/14, for pictures of 224x224 and 224x392",
        &SMALL,
        |_, settings| build(settings, SMALL_EGO, SMALL_EXO),
    ),
];

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
    };
    let intake = PairIntake::new(source, dest, settings.count("context") as i64);
    let head = MatchHead {
        threshold: settings.number("threshold") as f32,
    };
    Ok(Parts::new(network.graph()?, intake, head))
}
