//! A study of a whole pipeline, from files to moved parameters, section by section of a published text.

use std::fmt;
use std::path::Path;

use percept_data::{Sample, SampleError};
use percept_graph::Graph;

use super::Component;
use crate::Model;

/// Where the time of a network with kept features goes, and what each advice of a published text is worth.
#[derive(Clone, Copy, Debug)]
pub struct PipelineStudy {
    /// Samples in a training step, where nobody says otherwise.
    pub batch: usize,
    /// Makes the pieces of work that only the network knows, of one of its samples; they may write files into the folder.
    pub pieces: fn(&Model, &Sample, &Path) -> Result<Vec<Piece>, SampleError>,
    /// What the network is made of behind its features.
    pub components: &'static [Component],
    /// What becomes of a sample, in order.
    pub stages: &'static [Stage],
    /// What the text says about the time of some stages.
    pub share: PublishedShare,
    /// A setting that makes features of a smaller network, where there is one.
    pub quick: Option<(&'static str, &'static str)>,
    /// A setting of a run that saves memory.
    pub fewer: (&'static str, &'static str),
    /// The text, section by section.
    pub sections: &'static [Section],
}

/// A piece of work that is measured apart from all others.
pub struct Piece {
    /// What figures call it.
    pub name: &'static str,
    /// What it is.
    pub work: Work,
}

/// What is measured of a piece.
pub enum Work {
    /// The time that this takes.
    Time(Box<dyn FnMut() -> Result<(), SampleError>>),
    /// How large something is.
    Bytes(usize),
    /// The time and the memory of an inference, with seeded weights, on noise of these shapes.
    Graph(Box<Graph>, Vec<(&'static str, Vec<usize>)>),
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Piece").field(&self.name).finish()
    }
}

/// A step on a sample's way.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// What people read.
    pub name: &'static str,
    /// What it takes.
    pub cost: Cost,
    /// Whether only training has it.
    pub is_training: bool,
}

/// What a stage takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A piece of work.
    Piece(&'static str),
    /// Features: made, or read.
    Features,
    /// A component of the network, forward.
    Component(usize),
    /// The whole way back.
    Backward,
    /// The optimiser.
    Update,
    /// A checkpoint, as a part of the time from one to the next.
    Checkpoint,
}

/// What a text says about the share of some stages in a training.
#[derive(Clone, Copy, Debug)]
pub struct PublishedShare {
    /// The stages, by place.
    pub stages: &'static [usize],
    /// What they are together.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    /// What its own figures come to.
    pub by_its_figures: &'static str,
}

/// A section of a published text.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its title.
    pub title: &'static str,
    /// What it says, where that needs a word.
    pub says: &'static str,
    /// What it is worth here.
    pub lines: &'static [Line],
}

/// A comparison: the way of the text, or without its advice, and the other way.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// What people read: what is compared with what.
    pub what: &'static str,
    /// Before.
    pub before: Figure,
    /// After.
    pub after: Figure,
}

/// Something that can be measured of any network whose features are kept. Times are for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// What a published text says.
    Published(&'static str),
    /// There is nothing to compare with.
    Nothing,
    /// A piece of work of the network's own.
    Piece(&'static str),
    /// Several pieces, one after the other.
    Pieces(&'static [&'static str]),
    /// What a graph among the pieces holds at its peak, without its weights.
    PieceMemory(&'static str),
    /// Features, made.
    FeaturesMade,
    /// Features, made of several samples at once.
    FeaturesTogether,
    /// Features, made by the smaller network.
    FeaturesQuick,
    /// Features, made with weights that are kept as halves and widened at every use.
    FeaturesOfHalves,
    /// Features, found by content and read: as f32 or as halves.
    FeaturesRead(Kept),
    /// What they take on disk.
    FeaturesBytes(Kept),
    /// How far answers move when features are rounded to halves.
    AnswersMoved,
    /// A training step.
    Step(Form),
    /// What it holds at its peak: values, parameters, moments.
    StepMemory(Form),
    /// The part of a training's time that waits for data.
    Waiting(Feed),
    /// Samples in a second of training.
    Pace(Feed),
    /// What training waits for a checkpoint.
    Checkpoint(Writing),
    /// What a checkpoint takes on disk.
    CheckpointBytes(Writing),
}

/// The type that features are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kept {
    F32,
    F16,
}

/// How a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As it is.
    Whole,
    /// With norms, activations and the modules of the components computed again instead of kept.
    Recomputed,
    /// As several steps on fewer samples.
    Parts,
    /// With the setting that saves memory.
    Fewer,
}

/// How a training gets its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    /// Features are made on the way.
    Made,
    /// Features are kept, and one worker prepares.
    OneWorker,
    /// Features are kept, and as many workers prepare as there are cores.
    AllWorkers,
}

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writing {
    /// While training waits.
    Waiting,
    /// While it waits, and compressed.
    Compressed,
    /// By a thread of its own.
    Aside,
}

impl PipelineStudy {
    /// All figures that its sections show.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        let lines = self.sections.iter().flat_map(|section| section.lines);
        lines.flat_map(|line| [line.before, line.after])
    }

    /// The pieces that its stages and sections speak of.
    pub fn named_pieces(&self) -> impl Iterator<Item = &'static str> {
        let of_stages = self.stages.iter().filter_map(|stage| match stage.cost {
            Cost::Piece(name) => Some(name),
            _ => None,
        });
        let of_lines = self.figures().flat_map(|figure| match figure {
            Figure::Piece(name) | Figure::PieceMemory(name) => vec![name],
            Figure::Pieces(names) => names.to_vec(),
            _ => Vec::new(),
        });
        of_stages.chain(of_lines)
    }
}
