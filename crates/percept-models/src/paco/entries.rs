//! PaCo-2 in the zoo.

use super::selection::MOST_PARTS;
use std::sync::Arc;

use super::studies::STUDIES;
use super::{Backbone, LABELS, LossForm, Matching, Objective, Paco, VIEWS};
use crate::lesson::{CLASSIFIER, Classifier, Course};
use crate::preprocess::PillowFilter;
use crate::resnet::{ResNet, ResNetConfig};
use crate::zoo::{CLASSIFIER_SIZE, Entry, Parts, STEM, WIDTH, classifier};
use crate::{ChosenSettings, ModelError, Setting};

const WEIGHTS: [f64; 2] = [0.0, 1000.0];

const D: Setting = Setting::count_within("d", Paco::STABLE.d, [1, 1024], "dimensions of a part");
const PARTS: Setting = Setting::count_within(
    "parts",
    Paco::STABLE.parts,
    [1, MOST_PARTS],
    "parts of a view",
);
const LOSS: Setting = Setting::choice(
    "loss",
    &["exact", "gram", "naive"],
    "how the contrast is computed; all give the same",
);
const EPS: Setting = Setting::number(
    "eps",
    Paco::STABLE.eps,
    [1e-9, 1.0],
    "ridge of the published covariances",
);

static SETTINGS: [Setting; 17] = [
    Setting::choice(
        "backbone",
        &["resnet50", "efficientnet-b0", "resnet18"],
        "what makes the features",
    ),
    WIDTH,
    STEM,
    Setting::count("classes", Paco::STABLE.classes, "classes of the classifier"),
    Setting::count_within(
        "image_size",
        CLASSIFIER_SIZE,
        [32, 4096],
        "side of the images",
    ),
    D,
    Setting::count_within("r", Paco::STABLE.window, [1, 64], "side of a part's window"),
    PARTS,
    Setting::choice(
        "objective",
        &["stable", "published"],
        "what training minimises: repaired, or as published, which collapses",
    ),
    LOSS,
    Setting::choice(
        "matching",
        &["mahalanobis", "cosine"],
        "what makes parts of two views belong together",
    ),
    Setting::count_within(
        "hardest",
        16,
        [0, 1 << 15],
        "nearest candidates that a negative is chosen from (0: all)",
    ),
    Setting::number(
        "lambda_pac",
        Paco::STABLE.lambda_pac,
        WEIGHTS,
        "weight of the contrast",
    ),
    Setting::number(
        "eta_soc",
        Paco::STABLE.eta_soc,
        WEIGHTS,
        "weight of the consistency",
    ),
    Setting::number(
        "alpha",
        Paco::STABLE.alpha,
        WEIGHTS,
        "margin of the contrast",
    ),
    Setting::number(
        "gamma",
        Paco::STABLE.gamma,
        [0.0, 1.0],
        "weight of strong parts in the cross-entropy",
    ),
    EPS,
];

static CONTRAST_SETTINGS: [Setting; 4] = [D, PARTS, LOSS, EPS];

pub(crate) static ENTRIES: &[Entry] = &[Entry::new(
    "paco",
    "PaCo-2, fine-grained classes by parts: ResNet-50 or EfficientNet-B0",
    &SETTINGS,
    build,
)
.taught_by(COURSE)
.studied(STUDIES)];

/// As other classifiers, by its own loss over two views.
const COURSE: Course = Course {
    lesson: |model, options| {
        let training = Paco::from_settings(&model.settings).training()?;
        let lesson = Classifier::by_own_loss(model, training, VIEWS.to_vec(), options)?;
        Ok(Arc::new(lesson))
    },
    ..CLASSIFIER
};

/// The contrast alone, to measure it.
pub(crate) static CONTRAST: &[Entry] = &[Entry::new(
    "paco-contrast",
    "the published contrast of PaCo-2: parts to loss",
    &CONTRAST_SETTINGS,
    build_contrast,
)];

impl Paco {
    /// The network that the settings of the entry `paco` describe.
    pub fn from_settings(settings: &ChosenSettings) -> Self {
        Paco {
            backbone: match settings.choice("backbone") {
                "efficientnet-b0" => Backbone::EfficientNetB0,
                "resnet18" => Backbone::ResNet(ResNet::R18, ResNetConfig::from_settings(settings)),
                _ => Backbone::ResNet(ResNet::R50, ResNetConfig::from_settings(settings)),
            },
            classes: settings.count("classes"),
            d: settings.count("d"),
            window: settings.count("r"),
            parts: settings.count("parts"),
            objective: match settings.choice("objective") {
                "published" => Objective::Published,
                _ => Objective::Stable,
            },
            loss: LossForm::from_settings(settings),
            matching: match settings.choice("matching") {
                "cosine" => Matching::Cosine,
                _ => Matching::Mahalanobis,
            },
            hardest: Some(settings.count("hardest")).filter(|&most| most > 0),
            lambda_pac: settings.number("lambda_pac"),
            eta_soc: settings.number("eta_soc"),
            alpha: settings.number("alpha"),
            beta: Paco::STABLE.beta,
            gamma: settings.number("gamma"),
            eps: settings.number("eps"),
        }
    }
}

fn build(_: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let paco = Paco::from_settings(settings);
    let side = settings.count("image_size");
    // Torchvision's share; the small pictures of other stems have no margin to give away.
    let covered = match settings.choice("stem") {
        "quarter" => side * 8 / 7,
        _ => side,
    };
    let graph = paco.graph()?;
    Ok(classifier(graph, PillowFilter::Bilinear, side, covered))
}

impl LossForm {
    fn from_settings(settings: &ChosenSettings) -> Self {
        match settings.choice("loss") {
            "naive" => LossForm::Naive,
            "gram" => LossForm::Gram,
            _ => LossForm::Exact,
        }
    }
}

fn build_contrast(_: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let paco = Paco {
        d: settings.count("d"),
        parts: settings.count("parts"),
        loss: LossForm::from_settings(settings),
        eps: settings.number("eps"),
        ..Paco::PUBLISHED
    };
    // One image is two views of its parts; batches count images.
    let parts = vec![2, paco.parts, paco.d];
    Ok(Parts::of_tensors(
        paco.contrast_graph()?,
        [(LABELS, vec![1]), ("parts", parts)],
    ))
}
