//! A network from the zoo, configured and ready to be read, run or exported.

use std::sync::Arc;

use percept_data::seeded::Family;
use percept_data::{BatchError, Datum, Example, Sample, SampleError};
use percept_graph::{DType, Dim, Graph, GraphError, Input, Tensor};
use percept_kernels::Cpu;
use thiserror::Error;

use crate::answer::{Answer, AnswerError, Head, Ran};
use crate::intake::{InputShapes, Intake, Part, PartKind, Sizes};
use crate::{Card, ChosenSettings, SettingsError};

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
    #[error("{model} has no part `{part}`; a sample of it has {}", known.join(", "))]
    UnknownPart {
        model: &'static str,
        part: String,
        known: Vec<&'static str>,
    },
    #[error("{model} cannot do without {part}")]
    Needed {
        model: &'static str,
        part: &'static str,
    },
    #[error("{model} takes {part} as it is, so it takes no size of it")]
    NoSize { model: &'static str, part: String },
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

/// A configured network.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name in the zoo.
    pub name: &'static str,
    /// The network itself. Its symbol `N` counts samples.
    pub graph: Graph,
    /// How samples become its inputs.
    pub intake: Arc<dyn Intake>,
    /// How its outputs become answers.
    pub head: Arc<dyn Head>,
    /// The names of its classes; empty where it has none or nobody knows them.
    pub classes: Arc<[String]>,
    /// Height and width of parts of a sample, where they were chosen.
    pub sizes: Sizes,
    /// Parts of a sample that it does without.
    pub left_out: Vec<&'static str>,
    /// Whose conventions its seeded weights and inputs follow.
    pub family: Family,
    /// The whole network where this one is narrowed by elastic settings: weights of it serve too.
    pub whole: Option<Graph>,
    /// The same network in a form that holds less at a time: the same inputs, outputs and parameters, the same answers but for
    /// rounding. `None` where the engine's own rewrites are all there is to gain.
    pub lean: Option<Graph>,
    /// Other namings whose checkpoints load through a map of names.
    pub other_layouts: Vec<OtherLayout>,
    /// The settings it was built with.
    pub settings: ChosenSettings,
}

impl Model {
    /// The form to run: the lean one where memory is to be saved and there is one.
    pub fn form(&self, frugal: bool) -> &Graph {
        self.lean.as_ref().filter(|_| frugal).unwrap_or(&self.graph)
    }

    /// The network as the card of its weights describes it: their classes, and the sizes that they were made for.
    pub fn described_by(mut self, card: &Card) -> Self {
        if !card.classes.is_empty() {
            self.classes = card.classes.iter().cloned().collect();
        }
        let known = card.sizes.iter().filter(|(part, _)| self.has_size(part));
        self.sizes = known.map(|(part, size)| (part.clone(), *size)).collect();
        self
    }

    /// The network with this height and width of a part, or of every part that has a size.
    pub fn sized(mut self, part: Option<&str>, size: [usize; 2]) -> Result<Self, ModelError> {
        let parts = self.intake.parts();
        let asked: Vec<&'static str> = parts
            .iter()
            .map(|known| known.name)
            .filter(|known| part.is_none_or(|part| part == *known))
            .collect();
        let sized: Vec<&'static str> = asked
            .iter()
            .copied()
            .filter(|part| self.has_size(part))
            .collect();
        match (asked.as_slice(), sized.as_slice(), part) {
            ([], _, Some(part)) => Err(ModelError::UnknownPart {
                model: self.name,
                part: part.to_owned(),
                known: parts.iter().map(|part| part.name).collect(),
            }),
            (asked, [], _) => Err(ModelError::NoSize {
                model: self.name,
                part: asked.join(" and "),
            }),
            (_, sized, _) => {
                let sizes = sized.iter().map(|part| ((*part).to_owned(), size));
                self.sizes.extend(sizes);
                Ok(self)
            }
        }
    }

    /// The network without a part of its samples; `lidar` is another name of the part that is points.
    pub fn without(mut self, part: &str) -> Result<Self, ModelError> {
        let parts = self.intake.parts();
        let is_meant = |known: &&Part| {
            let is_points = matches!(known.kind, PartKind::Points(_));
            known.name == part || (part == "lidar" && is_points)
        };
        let Some(known) = parts.iter().find(is_meant).copied() else {
            return Err(ModelError::UnknownPart {
                model: self.name,
                part: part.to_owned(),
                known: parts.iter().map(|part| part.name).collect(),
            });
        };
        let rest = self.intake.without(known.name);
        self.intake = rest.ok_or(ModelError::Needed {
            model: self.name,
            part: known.name,
        })?;
        self.left_out.push(known.name);
        Ok(self)
    }

    fn has_size(&self, part: &str) -> bool {
        let parts = self.intake.parts().iter();
        parts
            .clone()
            .any(|known| known.name == part && known.size.is_some())
    }

    /// The shapes of all inputs for this many usual samples.
    pub fn input_shapes(&self, samples: usize) -> InputShapes {
        let mut shapes = self.intake.shapes(&self.sizes);
        for (_, shape) in &mut shapes {
            // Points, voxels and views of all samples stand in one list.
            if let Some(rows) = shape.first_mut() {
                *rows *= samples;
            }
        }
        shapes
    }

    /// The inputs of a sample. One that holds a tensor for each input is taken as it is, however many samples that are.
    pub fn example(&self, cpu: &Cpu, sample: &Sample) -> Result<Example, SampleError> {
        let inputs = self.graph.inputs();
        let is_tensor = |input: &Input| matches!(sample.get(&input.name), Some(Datum::Tensor(_)));
        if !inputs.iter().all(is_tensor) {
            return self.intake.example(cpu, sample, &self.sizes);
        }
        let tensors = inputs.iter().map(|input| {
            let tensor = sample.tensor(&input.name)?;
            Ok((input.name.clone(), self.as_taken(sample, input, tensor)?))
        });
        let tensors = tensors.collect::<Result<Vec<_>, SampleError>>()?;
        let shapes: Vec<(&str, Vec<usize>)> = tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.shape().to_vec()))
            .collect();
        let sizes = self.graph.bind(&shapes);
        let sizes = sizes.map_err(|error| unusable(sample, error))?;
        let samples = sizes.get("N").copied().unwrap_or(1);
        Ok(Example { samples, tensors })
    }

    /// At most `count` samples of an example, its first ones, where each input has a row for each of them. Elsewhere, as with points of
    /// several clouds, all of it.
    pub fn first(&self, example: Example, count: usize) -> Example {
        let by_sample = |input: &Input| {
            let dims = &self.graph.value(input.value).ty.shape;
            dims.first() == Some(&Dim::symbol("N"))
        };
        match self.graph.inputs().iter().all(by_sample) {
            true => example.first(count),
            false => example,
        }
    }

    /// A tensor in the type of its input: f32, or whole numbers where it counts.
    fn as_taken(
        &self,
        sample: &Sample,
        input: &Input,
        tensor: &Tensor<'static>,
    ) -> Result<Tensor<'static>, SampleError> {
        let named = |error| unusable(sample, format_args!("`{}`: {error}", input.name));
        let taken = match self.graph.value(input.value).ty.dtype {
            dtype if dtype == tensor.dtype() => return Ok(tensor.clone()),
            DType::I32 => {
                let whole = tensor.to_i32().map_err(named)?.into_owned();
                Tensor::from_values(tensor.shape(), whole)
            }
            _ => Tensor::from_values(tensor.shape(), tensor.to_f32().into_owned()),
        };
        taken.map_err(named)
    }

    /// Several examples at once.
    pub fn batch(&self, examples: Vec<Example>) -> Result<Example, BatchError> {
        self.intake.batch(examples)
    }

    /// What the network says of each sample of a batch.
    pub fn read(
        &self,
        outputs: &[(&str, Tensor<'_>)],
        inputs: &Example,
        samples: &[Sample],
    ) -> Result<Vec<Answer>, AnswerError> {
        self.head.read(&Ran {
            outputs,
            inputs,
            samples,
            classes: &self.classes,
        })
    }
}

fn unusable(sample: &Sample, reason: impl ToString) -> SampleError {
    SampleError::Unusable {
        sample: sample.name.clone(),
        reason: reason.to_string(),
    }
}
