//! Every network by name.

use std::sync::Arc;

use percept_data::seeded::Family;
use percept_graph::Graph;

use crate::answer::{ClassHead, FeatureHead, Head};
use crate::centerpoint;
use crate::dinov2::DinoV2;
use crate::efficientnet::{self, Layout};
use crate::imagenet;
use crate::intake::{ImageIntake, Intake, Sizes, TensorIntake};
use crate::layers;
use crate::lcpr;
use crate::lesson::{CLASSIFIER, Course};
use crate::omama;
use crate::paco;
use crate::preprocess::{Fit, PillowFilter, Preprocess};
use crate::randlanet;
use crate::resnet::{INNER_LEVELS, ResNet, ResNetConfig, Stem};
use crate::study::Study;
use crate::{ChosenSettings, Model, ModelError, OtherLayout, Setting, Settings, nearest};

/// A network that can be built.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What a user types.
    pub name: &'static str,
    /// One line.
    pub description: &'static str,
    /// What can be set.
    pub settings: &'static [Setting],
    /// Trained weights that come with it: a safetensors file with a card.
    pub shipped: Option<&'static [u8]>,
    /// How it is taught; none where it cannot be.
    pub course: Option<Course>,
    /// Modules that may stay seeded, because nothing trains or nothing reads them, so that weight files need not have them.
    pub seeded: &'static [&'static str],
    /// What its reports compare.
    pub studies: &'static [Study],
    build: Build,
}

/// Builds a network of this name with these settings.
type Build = fn(&'static str, &ChosenSettings) -> Result<Parts, ModelError>;

/// What the builder of an entry brings.
pub(crate) struct Parts {
    pub(crate) graph: Graph,
    /// A form of it that takes less memory, where it has one.
    pub(crate) lean: Option<Graph>,
    pub(crate) intake: Arc<dyn Intake>,
    pub(crate) head: Arc<dyn Head>,
    /// The names of its classes where weights do not tell them; empty where it has none.
    pub(crate) classes: Arc<[String]>,
    pub(crate) family: Family,
    pub(crate) other_layouts: Vec<OtherLayout>,
}

impl Parts {
    /// A network with its two ends.
    pub(crate) fn new(
        graph: Graph,
        intake: impl Intake + 'static,
        head: impl Head + 'static,
    ) -> Self {
        Self {
            graph,
            intake: Arc::new(intake),
            head: Arc::new(head),
            classes: [].into(),
            family: Family::Vision,
            lean: None,
            other_layouts: Vec::new(),
        }
    }

    /// A network that takes tensors of these shapes for one sample, and gives tensors.
    pub(crate) fn of_tensors<S: Into<Vec<usize>>>(
        graph: Graph,
        inputs: impl IntoIterator<Item = (&'static str, S)>,
    ) -> Self {
        let shapes = inputs.into_iter().map(|(name, shape)| (name, shape.into()));
        Self::new(graph, TensorIntake::new(shapes.collect()), FeatureHead)
    }
}

/// Names as a network's classes.
pub(crate) fn owned(names: &[&str]) -> Arc<[String]> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Entry {
    /// A network without weights of its own.
    pub(crate) const fn new(
        name: &'static str,
        description: &'static str,
        settings: &'static [Setting],
        build: Build,
    ) -> Self {
        Self {
            name,
            description,
            settings,
            shipped: None,
            course: None,
            seeded: &[],
            studies: &[],
            build,
        }
    }

    /// The same network, which can be trained.
    pub(crate) const fn taught_by(self, course: Course) -> Self {
        Self {
            course: Some(course),
            ..self
        }
    }

    /// The same network, with trained weights that are taken where none are named.
    pub(crate) const fn shipping(self, weights: &'static [u8]) -> Self {
        Self {
            shipped: Some(weights),
            ..self
        }
    }

    /// The same network, of which some modules are never trained: they are seeded where weights do not have them.
    pub(crate) const fn on_seeded(self, modules: &'static [&'static str]) -> Self {
        Self {
            seeded: modules,
            ..self
        }
    }

    /// The same network, with what its reports compare.
    pub(crate) const fn studied(self, studies: &'static [Study]) -> Self {
        Self { studies, ..self }
    }

    /// Whether weights may lack this parameter, because it is in a module that may stay seeded.
    pub fn may_be_seeded(&self, parameter: &str) -> bool {
        let mut rests = self
            .seeded
            .iter()
            .map(|module| parameter.strip_prefix(module));
        rests.any(|rest| rest.is_some_and(|rest| rest.starts_with('.')))
    }

    /// The network with these settings.
    pub fn build(&self, settings: &Settings) -> Result<Model, ModelError> {
        let settings = settings.resolve(self.name, self.settings)?;
        let parts = (self.build)(self.name, &settings)?;
        let whole = settings.whole(self.settings);
        let whole = match whole == settings {
            true => None,
            false => Some((self.build)(self.name, &whole)?.graph),
        };
        Ok(Model {
            whole,
            name: self.name,
            graph: parts.graph,
            intake: parts.intake,
            head: parts.head,
            classes: parts.classes,
            sizes: Sizes::new(),
            left_out: Vec::new(),
            family: parts.family,
            lean: parts.lean,
            other_layouts: parts.other_layouts,
            settings,
        })
    }
}

/// All networks, then backbones, then single layers.
pub fn entries() -> impl Iterator<Item = &'static Entry> + Clone {
    centerpoint::ENTRIES
        .iter()
        .chain(randlanet::ENTRIES)
        .chain(lcpr::ENTRIES)
        .chain(omama::ENTRIES)
        .chain(paco::ENTRIES)
        .chain(BACKBONES)
        .chain(paco::CONTRAST)
        .chain(omama::PARTS)
        .chain(layers::ENTRIES)
}

/// The network of this name; otherwise the error suggests the nearest.
pub fn find(name: &str) -> Result<&'static Entry, ModelError> {
    entries().find(|entry| entry.name == name).ok_or_else(|| {
        let suggestion = nearest(name, entries().map(|entry| entry.name));
        ModelError::UnknownModel {
            name: name.to_owned(),
            suggestion,
        }
    })
}

/// Finds a network and builds it with these settings.
pub fn build(name: &str, settings: &Settings) -> Result<Model, ModelError> {
    find(name)?.build(settings)
}

/// Side of the images that the classifiers were trained on, and what torchvision scales an image to for it.
pub(crate) const CLASSIFIER_SIZE: usize = 224;
const CLASSIFIER_COVERED: usize = 256;
const CLASSES: Setting = Setting::count("classes", IMAGENET_CLASSES, "classes of the classifier");
/// Classes of the public weights.
const IMAGENET_CLASSES: usize = 1000;

pub(crate) const WIDTH: Setting = Setting::count_within(
    "width",
    64,
    [1, 1024],
    "channels of a ResNet's first stage; each further one has twice as many",
);
pub(crate) const STEM: Setting = Setting::choice(
    "stem",
    &["quarter", "half", "whole"],
    "share of the image's sides that a ResNet's stages begin with: quarter is the published stem, half and whole are for small pictures",
);

/// The channels inside of a ResNet's blocks, stage by stage.
const INNER: Setting = Setting::levels(
    "widths",
    &[&[
        "layer1.inner",
        "layer2.inner",
        "layer3.inner",
        "layer4.inner",
    ]],
    INNER_LEVELS as u8,
    "elastic: quarters of the channels inside of each stage's blocks",
);

static RESNET_SETTINGS: [Setting; 4] = [CLASSES, WIDTH, STEM, INNER];
static EFFICIENTNET_SETTINGS: [Setting; 2] = [
    Setting::choice(
        "layout",
        &["torchvision", "timm"],
        "whose names the weights have",
    ),
    CLASSES,
];
static SMALL_SETTINGS: [Setting; 6] = dinov2_settings(DinoV2::SMALL);
static BASE_SETTINGS: [Setting; 6] = dinov2_settings(DinoV2::BASE);
static LARGE_SETTINGS: [Setting; 6] = dinov2_settings(DinoV2::LARGE);

static BACKBONES: &[Entry] = &[
    resnet("resnet18", "ResNet-18, torchvision's layout", |_, s| {
        build_resnet(ResNet::R18, s)
    }),
    resnet("resnet34", "ResNet-34, torchvision's layout", |_, s| {
        build_resnet(ResNet::R34, s)
    }),
    resnet("resnet50", "ResNet-50, torchvision's layout", |_, s| {
        build_resnet(ResNet::R50, s)
    }),
    resnet("resnet101", "ResNet-101, torchvision's layout", |_, s| {
        build_resnet(ResNet::R101, s)
    }),
    Entry::new(
        "efficientnet-b0",
        "EfficientNet-B0, torchvision's or timm's layout",
        &EFFICIENTNET_SETTINGS,
        build_efficientnet,
    )
    .taught_by(CLASSIFIER),
    dinov2("dinov2-vits14", "DINOv2 ViT-S/14", &SMALL_SETTINGS),
    dinov2("dinov2-vitb14", "DINOv2 ViT-B/14", &BASE_SETTINGS),
    dinov2("dinov2-vitl14", "DINOv2 ViT-L/14", &LARGE_SETTINGS),
];

const fn resnet(name: &'static str, description: &'static str, build: Build) -> Entry {
    Entry::new(name, description, &RESNET_SETTINGS, build).taught_by(CLASSIFIER)
}

const fn dinov2(
    name: &'static str,
    description: &'static str,
    settings: &'static [Setting],
) -> Entry {
    Entry::new(name, description, settings, build_dinov2)
}

const fn dinov2_settings(defaults: DinoV2) -> [Setting; 6] {
    let DinoV2 {
        embed,
        depth,
        heads,
        image_size,
        registers,
        patch,
    } = defaults;
    [
        Setting::count("embed", embed, "width of a token"),
        Setting::count_within("depth", depth, [1, 256], "blocks"),
        Setting::count("heads", heads, "attention heads, which divide embed"),
        Setting::count_within(
            "image_size",
            image_size,
            [1, 4096],
            "side of the training images, a multiple of patch: sizes the position embedding",
        ),
        Setting::count_within("registers", registers, [0, 64], "register tokens (0 or 4)"),
        Setting::count_within("patch", patch, [1, 256], "side of a patch"),
    ]
}

/// A classifier of images of this side, evaluated with the shorter side of an image scaled to `covered`.
pub(crate) fn classifier(graph: Graph, filter: PillowFilter, side: usize, covered: usize) -> Parts {
    let fit = Fit::CoverAndCrop {
        covered,
        kept: side,
    };
    let intake = ImageIntake::new(Preprocess { fit, filter }, [side, side]);
    Parts::new(graph, intake, ClassHead)
}

/// The classes of a network's public weights, where it has as many as they.
fn imagenet_classes(settings: &ChosenSettings) -> Arc<[String]> {
    match settings.count(CLASSES.name) {
        IMAGENET_CLASSES => owned(imagenet::class_names()),
        _ => [].into(),
    }
}

fn build_resnet(network: ResNet, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let config = ResNetConfig::from_settings(settings);
    // Small pictures have no margin to give away.
    let (side, covered) = match config.stem {
        Stem::Half => (64, 64),
        Stem::Whole => (32, 32),
        Stem::Quarter => (CLASSIFIER_SIZE, CLASSIFIER_COVERED),
    };
    let graph = network.narrow_graph(&config, &settings.levels(&RESNET_SETTINGS))?;
    Ok(Parts {
        classes: imagenet_classes(settings),
        ..classifier(graph, PillowFilter::Bilinear, side, covered)
    })
}

impl ResNetConfig {
    /// What the settings `classes`, `width` and `stem` describe.
    pub(crate) fn from_settings(settings: &ChosenSettings) -> Self {
        Self {
            classes: settings.count("classes"),
            width: settings.count("width"),
            stem: match settings.choice("stem") {
                "half" => Stem::Half,
                "whole" => Stem::Whole,
                _ => Stem::Quarter,
            },
        }
    }
}

fn build_efficientnet(_: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let (ours, other, other_name) = match settings.choice("layout") {
        "timm" => (Layout::Timm, Layout::Torchvision, "torchvision"),
        _ => (Layout::Torchvision, Layout::Timm, "timm"),
    };
    let graph = efficientnet::graph(ours, settings.count("classes"))?;
    let other = OtherLayout {
        name: other_name,
        renames: efficientnet::renames(other, ours)?,
    };
    Ok(Parts {
        classes: imagenet_classes(settings),
        other_layouts: vec![other],
        ..classifier(
            graph,
            PillowFilter::Bicubic,
            CLASSIFIER_SIZE,
            CLASSIFIER_COVERED,
        )
    })
}

fn build_dinov2(name: &'static str, settings: &ChosenSettings) -> Result<Parts, ModelError> {
    let network = DinoV2 {
        embed: settings.count("embed"),
        depth: settings.count("depth"),
        heads: settings.count("heads"),
        image_size: settings.count("image_size"),
        registers: settings.count("registers"),
        patch: settings.count("patch"),
    };
    let (size, patch) = (network.image_size, network.patch);
    let bad = |message| ModelError::BadCombination {
        model: name,
        message,
    };
    if !size.is_multiple_of(patch) {
        let nearest = ((size + patch / 2) / patch).max(1) * patch;
        return Err(bad(format!(
            "setting `image_size` is {size}, which must be a multiple of the patch, {patch}; the nearest is {nearest}"
        )));
    }
    if !network.embed.is_multiple_of(network.heads) {
        return Err(bad(format!(
            "setting `embed` is {}, which {} heads do not divide",
            network.embed, network.heads
        )));
    }
    let preprocessing = Preprocess {
        fit: Fit::Stretch { multiple_of: patch },
        filter: PillowFilter::Bicubic,
    };
    let intake = ImageIntake::new(preprocessing, [size, size]);
    Ok(Parts::new(network.graph()?, intake, FeatureHead))
}
