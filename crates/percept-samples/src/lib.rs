//! The one place that turns what a user names into samples: files, folders, tensors and the synthetic world.
//!
//! [`open`] looks at what a network's samples are made of ([`Part`]s) and at the paths, and gives [`Samples`]: indexed, and read
//! one by one when they are asked for, so that a folder of a hundred thousand files is a list of names and nothing more.
//!
//! ```
//! use percept_models::{Settings, zoo};
//! use percept_samples::{OpenOptions, open};
//!
//! let network = zoo::build("resnet18", &Settings::none())?;
//! // Nothing was named, so numbers by seed stand in.
//! let samples = open(&network, &[], &OpenOptions { count: 2, ..OpenOptions::default() })?;
//! assert_eq!(samples.len(), 2);
//! assert_eq!(samples.sample(1)?.tensor("image")?.shape(), [1, 3, 224, 224]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod frames;
mod given;
mod images;
mod pairs;
mod places;
mod resize;
mod seeded;
mod street;
mod tensors;
pub mod training;
mod zipped;

use std::path::Path;

use percept_data::Samples;
use percept_data::points::PointFormat;
use percept_models::Model;
use percept_models::intake::{Part, PartKind};
use percept_world::{WorldConfig, WorldKind};

pub use error::OpenError;
use frames::Frames;
pub use given::Given;
use images::Images;
use pairs::{MaskFiles, Pairs, Rooms};
pub use places::Places;
pub use resize::with_points;
use seeded::SeededSamples;
use street::Street;
use tensors::TensorFiles;
use zipped::Zipped;

/// What stands in where nothing is named, and how paths are read.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// How many samples stand in where no path is named.
    pub count: usize,
    /// The seed that they follow from; 0 is the public reference stream.
    pub seed: u64,
    /// Points: sweeps merged into a sample.
    pub sweeps: usize,
    /// Points: the one frame of each folder that is wanted; all when none.
    pub frame: Option<usize>,
    /// Points: how files store them; by name and length when none.
    pub format: Option<PointFormat>,
    /// Threads that the synthetic world is made on.
    pub threads: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            count: 1,
            seed: 0,
            sweeps: 1,
            frame: None,
            format: None,
            threads: 1,
        }
    }
}

/// The samples that these paths hold for a network; what stands in for them where there are none.
pub fn open(
    network: &Model,
    given: &[Given],
    options: &OpenOptions,
) -> Result<Box<dyn Samples>, OpenError> {
    let parts = network.intake.parts();
    for part in given.iter().filter_map(|given| given.part.as_ref()) {
        if !parts.iter().any(|known| known.name == part) && !network_input(network, part) {
            return Err(OpenError::UnknownPart {
                network: network.name,
                part: part.clone(),
                known: parts.iter().map(|part| part.name).collect(),
            });
        }
    }
    let (unnamed, named): (Vec<&Given>, Vec<&Given>) =
        given.iter().partition(|given| given.part.is_none());
    match (unnamed.as_slice(), named.as_slice()) {
        ([], []) => stand_in(network, options),
        (unnamed, []) => open_whole(network, unnamed, options),
        ([], named) => open_parts(network, named, options),
        ([unnamed, ..], _) => Err(OpenError::PartOrWhole {
            path: unnamed.path.clone(),
            known: parts.iter().map(|part| part.name).collect(),
        }),
    }
}

/// Whether a network takes a tensor under this name.
fn network_input(network: &Model, name: &str) -> bool {
    let inputs = network.graph.inputs().iter();
    inputs.clone().any(|input| input.name == name)
}

/// Whether samples of a network are pairs of pictures with masks.
fn has_masks(network: &Model) -> bool {
    let mut parts = network.intake.parts().iter();
    parts.any(|part| part.kind == PartKind::Masks)
}

/// What stands in for samples: places where there are cameras, rooms where there are masks, the street where there are points, and
/// numbers elsewhere.
fn stand_in(network: &Model, options: &OpenOptions) -> Result<Box<dyn Samples>, OpenError> {
    if Places::takes(network) {
        let mut config = WorldConfig::new(WorldKind::Places, options.seed);
        config.frames_per_pass = config
            .frames_per_pass
            .max(options.count.div_ceil(config.passes));
        let places = Places::new(network, config, options.threads)?;
        return Ok(Box::new(places.first(options.count)));
    }
    let points = network
        .intake
        .parts()
        .iter()
        .find_map(|part| match part.kind {
            PartKind::Points(convention) => Some((part.name, convention)),
            _ => None,
        });
    if has_masks(network) {
        return Ok(Box::new(Rooms::new(network, options)?));
    }
    match points {
        Some((part, convention)) => Ok(Box::new(Street::new(part, convention, options)?)),
        None => Ok(Box::new(SeededSamples::new(network, options))),
    }
}

/// Paths that each hold whole samples.
fn open_whole(
    network: &Model,
    given: &[&Given],
    options: &OpenOptions,
) -> Result<Box<dyn Samples>, OpenError> {
    let paths: Vec<&Path> = given.iter().map(|given| given.path.as_path()).collect();
    if paths.iter().all(|path| TensorFiles::takes(path)) {
        let inputs = network.graph.inputs().iter();
        let inputs = inputs.map(|input| input.name.clone()).collect();
        return Ok(Box::new(TensorFiles::open(&paths, inputs)?));
    }
    match network.intake.parts() {
        [part] => open_part(part, &paths, options),
        _ if has_masks(network) => Ok(Box::new(Pairs::open(network, &paths)?)),
        // A folder of frames has the points and the cameras of each moment.
        parts => Ok(Box::new(Frames::open(parts, &paths, options)?)),
    }
}

/// Paths that each hold one part of samples.
fn open_parts(
    network: &Model,
    given: &[&Given],
    options: &OpenOptions,
) -> Result<Box<dyn Samples>, OpenError> {
    let mut names: Vec<&str> = Vec::new();
    for part in given.iter().filter_map(|given| given.part.as_deref()) {
        if !names.contains(&part) {
            names.push(part);
        }
    }
    let sources = names.iter().map(|name| {
        let paths: Vec<&Path> = given
            .iter()
            .filter(|given| given.part.as_deref() == Some(name))
            .map(|given| given.path.as_path())
            .collect();
        let part = network
            .intake
            .parts()
            .iter()
            .find(|part| part.name == *name);
        // Stacks of masks come as .npz and .npy too.
        let are_tensors = |part: &Part| {
            part.kind != PartKind::Masks && paths.iter().all(|path| TensorFiles::takes(path))
        };
        match part {
            Some(part) if !are_tensors(part) => open_part(part, &paths, options),
            _ => {
                let files = TensorFiles::open(&paths, vec![(*name).to_owned()])?;
                Ok(Box::new(files) as Box<dyn Samples>)
            }
        }
    });
    let mut sources = sources.collect::<Result<Vec<_>, OpenError>>()?;
    match sources.len() {
        1 => Ok(sources.remove(0)),
        _ => Ok(Box::new(Zipped::new(names, sources)?)),
    }
}

/// Paths to one part of samples that have no other.
fn open_part(
    part: &Part,
    paths: &[&Path],
    options: &OpenOptions,
) -> Result<Box<dyn Samples>, OpenError> {
    Ok(match part.kind {
        PartKind::Image => Box::new(Images::open(part.name, paths)?),
        PartKind::Images | PartKind::Points(_) => {
            Box::new(Frames::open(std::slice::from_ref(part), paths, options)?)
        }
        PartKind::Masks => Box::new(MaskFiles::open(part.name, paths)),
        PartKind::Tensor => Box::new(TensorFiles::open(paths, vec![part.name.to_owned()])?),
    })
}
