//! A network from the zoo, configured and ready to be read, run or exported.

use std::fmt;

use percept_graph::{Graph, GraphError, Tensor};
use thiserror::Error;

use crate::preprocess::{Preprocess, PreprocessError};
use crate::{ChosenSettings, SettingsError};

/// What a network's outputs mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `logits` over the ImageNet classes.
    Classify,
    /// Features for other networks.
    Features,
    /// Boxes around objects in LiDAR points.
    Detect,
    /// A single layer, for measurements.
    Layer,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Classify => "classify",
            Task::Features => "features",
            Task::Detect => "detect",
            Task::Layer => "layer",
        })
    }
}

/// What can be wrong with asking for a network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ModelError {
    #[error("no model is named `{name}`")]
    UnknownModel {
        name: String,
        /// The model that was probably meant.
        suggestion: Option<&'static str>,
    },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{model}: {message}")]
    BadCombination {
        model: &'static str,
        message: String,
    },
    #[error("{model} has no image input, so it takes no image size")]
    NoImageSize { model: &'static str },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Another public naming of the same tensors, so that its checkpoints load too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLayout {
    /// Whose naming, such as `timm`.
    pub name: &'static str,
    /// (name in that layout, name in this network's graph) of every tensor.
    pub renames: Vec<(String, String)>,
}

/// What a network learns by, where it brings a loss of its own.
#[derive(Clone, Debug)]
pub struct TrainingGraph {
    /// From the views and `labels` i32 [N] to `loss`, its terms, and `logits` [N, classes].
    pub graph: Graph,
    /// The inputs [N, 3, H, W] that take views of a picture, each augmented on its own.
    pub views: Vec<&'static str>,
    /// The outputs that are terms of the loss.
    pub terms: Vec<&'static str>,
}

/// A configured network.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name in the zoo.
    pub name: &'static str,
    /// What its outputs mean.
    pub task: Task,
    /// The network itself.
    pub graph: Graph,
    /// The shape of each input, by name, for a batch of 1 at the usual size.
    pub default_shapes: Vec<(&'static str, Vec<usize>)>,
    /// What it learns by; `None` when it has no loss of its own.
    pub training: Option<TrainingGraph>,
    /// How an image becomes its input; `None` when it takes no images.
    pub preprocessing: Option<Preprocess>,
    /// Other namings whose checkpoints load through a map of names.
    pub other_layouts: Vec<OtherLayout>,
    /// The settings it was built with.
    pub settings: ChosenSettings,
}

impl Model {
    /// Whether an image can be its input.
    pub fn takes_images(&self) -> bool {
        self.preprocessing.is_some()
    }

    /// An RGB image (rows of pixels, `[height, width]`) as a batch of one, for an input of this [H, W].
    pub fn preprocess(
        &self,
        pixels: &[u8],
        image: [usize; 2],
        size: Option<[usize; 2]>,
    ) -> Result<Tensor<'static>, PreprocessError> {
        let model = self.name;
        let preprocessing = self
            .preprocessing
            .ok_or(PreprocessError::NoImages { model })?;
        preprocessing.apply(pixels, image, size)
    }

    /// Whether LiDAR points are its input: `points` of all samples, and the `counts` of each.
    pub fn takes_points(&self) -> bool {
        let inputs = self.graph.inputs();
        inputs.iter().any(|input| input.name == "points")
    }

    /// The shapes of all inputs, with this batch and this height and width of maps where given.
    pub fn input_shapes(
        &self,
        batch: Option<usize>,
        size: Option<[usize; 2]>,
    ) -> Result<Vec<(&'static str, Vec<usize>)>, ModelError> {
        let mut shapes = self.default_shapes.clone();
        for (_, shape) in &mut shapes {
            if let (Some(batch), Some(axis)) = (batch, shape.first_mut()) {
                // Points, voxels and views of all samples stand in one list.
                *axis *= batch;
            }
            if let Some(size) = size {
                let [_, _, sides @ ..] = shape.as_mut_slice() else {
                    return Err(ModelError::NoImageSize { model: self.name });
                };
                let sides: &mut [usize; 2] = sides
                    .try_into()
                    .map_err(|_| ModelError::NoImageSize { model: self.name })?;
                *sides = size;
            }
        }
        Ok(shapes)
    }
}
