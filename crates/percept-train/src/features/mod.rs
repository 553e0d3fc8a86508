//! Features of what is frozen: computed once for each content, kept on disk, and given to the rest of the network.
//!
//! [`Graph::cut_frozen`](percept_graph::Graph::cut_frozen) finds what follows from data and frozen parameters alone; [`Features`]
//! computes it sample by sample and keeps it by content: the numbers that go in, their shape, the computation, its parameters, and
//! the type that is kept. [`CutLesson`] teaches the rest.

mod lesson;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use half::f16;
use half::slice::HalfFloatSliceExt;
use percept_data::Example;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{EngineError, Options, Program};
use percept_graph::{FrozenCut, Graph, SizeInput, Tensor, TensorError, WeightSource};
use percept_kernels::{Cpu, CpuError};
use percept_store::{Cache, Collection, Counters, Key, StoreError, TensorRef};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use lesson::CutLesson;

/// The records of this crate; another version is computed again.
const COLLECTION: (&str, u32) = ("features", 1);
/// What all features may take on disk, unless said otherwise.
pub const DEFAULT_LIMIT_BYTES: u64 = 8 << 30;

/// The type that features are kept in. With halves a network sees rounded features, whether they were kept or just computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    /// Half precision: half the disk.
    #[default]
    F16,
    /// As computed.
    F32,
}

impl FeatureType {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Where features are kept.
#[derive(Clone, Debug)]
pub struct FeatureOptions {
    /// The folder; nowhere when none: they are computed again for each batch.
    pub folder: Option<PathBuf>,
    /// What all of them may take on disk.
    pub limit_bytes: u64,
    /// How they are kept.
    pub kind: FeatureType,
    /// Threads that compute them.
    pub threads: usize,
}

impl FeatureOptions {
    /// Kept nowhere, made by one thread.
    pub fn nowhere() -> Self {
        Self {
            folder: None,
            limit_bytes: DEFAULT_LIMIT_BYTES,
            kind: FeatureType::F32,
            threads: 1,
        }
    }
}

/// Why there are no features.
#[derive(Debug, Error)]
pub enum FeatureError {
    /// The folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network that makes them.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its parameters.
    #[error(transparent)]
    Weights(#[from] percept_graph::WeightError),
    /// A tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Threads.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// An input that an example lacks.
    #[error("no tensor `{0}` to make features of")]
    NoInput(String),
}

/// A feature that an example needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it is known by.
    pub key: Key,
    /// Bytes of its numbers.
    pub bytes: u64,
    /// Whether it is on disk.
    pub is_kept: bool,
}

/// What was done so far, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeatureCounters {
    /// What the cache on disk did.
    pub disk: Counters,
    /// Features that were computed.
    pub computed: u64,
    /// Seconds that took.
    pub seconds: f64,
}

/// Makes and keeps what is frozen.
pub struct Features {
    pieces: Vec<Piece>,
    /// Each computation once, whichever inputs it is for.
    programs: Vec<Mutex<Program>>,
    sizes: Vec<SizeInput>,
    /// Inputs that nothing but the pieces reads.
    used_up: BTreeSet<String>,
    disk: Option<(Cache, Collection)>,
    kind: FeatureType,
    computed: AtomicU64,
    nanoseconds: AtomicU64,
}

/// A piece by names: which computation, of which inputs, called what.
struct Piece {
    program: usize,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// What the computation and its parameters are.
    key: Key,
}

/// Features of one sample.
type Made = Vec<Tensor<'static>>;

impl Features {
    /// What these cuts, of graphs that take the same inputs, leave to compute once.
    pub fn new(
        cuts: &[FrozenCut],
        weights: &Arc<dyn WeightSource>,
        options: &FeatureOptions,
    ) -> Result<Self, FeatureError> {
        let mut features = Self {
            pieces: Vec::new(),
            programs: Vec::new(),
            sizes: Vec::new(),
            used_up: BTreeSet::new(),
            disk: None,
            kind: options.kind,
            computed: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        };
        if let Some(folder) = &options.folder {
            let kind = Collection::new(COLLECTION.0, COLLECTION.1)?;
            features.disk = Some((Cache::open(folder, options.limit_bytes)?, kind));
        }
        let mut keys: Vec<Key> = Vec::new();
        for piece in cuts.iter().flat_map(|cut| &cut.pieces) {
            let names = |graph: &Graph| -> [Vec<String>; 2] {
                let inputs = graph.inputs().iter().map(|input| input.name.clone());
                let outputs = graph.outputs().iter().map(|(name, _)| name.clone());
                [inputs.collect(), outputs.collect()]
            };
            let [inputs, outputs] = names(&piece.graph);
            if features.pieces.iter().any(|known| known.outputs == outputs) {
                continue;
            }
            let key = computation(piece.signature(), &piece.graph, &**weights)?;
            let program = match keys.iter().position(|known| *known == key) {
                Some(program) => program,
                None => {
                    let cpu = Cpu::new(options.threads)?;
                    let graph = piece.graph.clone();
                    let program = Program::new(graph, Arc::clone(weights), cpu, Options::default());
                    features.programs.push(Mutex::new(program));
                    keys.push(key);
                    keys.len() - 1
                }
            };
            features.pieces.push(Piece {
                program,
                inputs,
                outputs,
                key,
            });
        }
        for cut in cuts {
            let new = cut
                .sizes
                .iter()
                .filter(|size| !features.sizes.contains(size));
            features.sizes.extend(new.cloned().collect::<Vec<_>>());
        }
        let taken = |input: &String| {
            let mut rests = cuts.iter().flat_map(|cut| cut.rest.inputs());
            rests.any(|known| known.name == *input)
        };
        let inputs = features.pieces.iter().flat_map(|piece| &piece.inputs);
        features.used_up = inputs.filter(|input| !taken(input)).cloned().collect();
        Ok(features)
    }

    /// Adds the features to an example of one sample, and takes out what only they were made of.
    pub fn complete(&self, example: &mut Example) -> Result<(), FeatureError> {
        self.complete_with(example, |piece, example| self.made(piece, example))
    }

    /// The same with noise for features: what follows costs the same.
    pub fn rehearse(&self, example: &mut Example) -> Result<(), FeatureError> {
        self.complete_with(example, |piece, example| {
            let shapes = self.shapes(piece, example)?;
            let noise = shapes.iter().zip(&piece.outputs).map(|(shape, name)| {
                let values = seeded_values(Family::Vision, &format!("input.{name}"), shape);
                Ok(Tensor::from_values(shape.as_slice(), values)?)
            });
            noise.collect()
        })
    }

    fn complete_with(
        &self,
        example: &mut Example,
        make: impl Fn(&Piece, &Example) -> Result<Made, FeatureError>,
    ) -> Result<(), FeatureError> {
        let mut added = Vec::new();
        for piece in &self.pieces {
            let made = make(piece, example)?;
            added.extend(piece.outputs.iter().cloned().zip(made));
        }
        for size in &self.sizes {
            let of = input_of(example, &size.of)?;
            let empty = Tensor::from_values(size.shape(of.shape()), Vec::<f32>::new())?;
            added.push((size.name.clone(), empty));
        }
        example
            .tensors
            .retain(|(name, _)| !self.used_up.contains(name));
        example.tensors.extend(added);
        Ok(())
    }

    /// What an example needs: the key of each feature, the bytes that it takes, and whether it is kept already.
    pub fn needs(&self, example: &Example) -> Result<Vec<Need>, FeatureError> {
        let need = |piece: &Piece| -> Result<Need, FeatureError> {
            let key = self.content(piece, example)?;
            let is_kept = match &self.disk {
                Some((disk, kind)) => disk.get(kind, key)?.is_some(),
                None => false,
            };
            let bytes = self.bytes_of(piece, example)?;
            Ok(Need {
                key,
                bytes,
                is_kept,
            })
        };
        self.pieces.iter().map(need).collect()
    }

    /// Makes and keeps the features of an example that are not kept yet.
    pub fn extract(&self, example: &Example) -> Result<(), FeatureError> {
        for (piece, need) in self.pieces.iter().zip(self.needs(example)?) {
            if !need.is_kept {
                self.compute(piece, example, need.key)?;
            }
        }
        Ok(())
    }

    fn bytes_of(&self, piece: &Piece, example: &Example) -> Result<u64, FeatureError> {
        let shapes = self.shapes(piece, example)?;
        let numbers: usize = shapes
            .iter()
            .map(|shape| shape.iter().product::<usize>())
            .sum();
        Ok((numbers * self.kind.bytes()) as u64)
    }

    /// The shapes of a piece's features.
    fn shapes(&self, piece: &Piece, example: &Example) -> Result<Vec<Vec<usize>>, FeatureError> {
        let program = self.lock(piece);
        let graph = program.graph();
        let mut shapes = Vec::new();
        for (input, own) in piece.inputs.iter().zip(graph.inputs()) {
            let shape = input_of(example, input)?.shape().to_vec();
            shapes.push((own.name.as_str(), shape));
        }
        let sizes = graph.bind(&shapes).map_err(EngineError::from)?;
        let outputs = graph.outputs().iter();
        let shapes = outputs.map(|(_, value)| graph.value_shape(*value, &sizes));
        let shapes = shapes.collect::<Result<_, _>>();
        Ok(shapes.map_err(EngineError::from)?)
    }

    /// What was done so far.
    pub fn counters(&self) -> FeatureCounters {
        let disk = self.disk.as_ref().map(|(disk, _)| disk.counters());
        FeatureCounters {
            disk: disk.unwrap_or_default(),
            computed: self.computed.load(Ordering::Relaxed),
            seconds: self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9,
        }
    }

    fn made(&self, piece: &Piece, example: &Example) -> Result<Made, FeatureError> {
        let key = self.content(piece, example)?;
        match self.kept(piece, key)? {
            Some(made) => Ok(made),
            None => self.compute(piece, example, key),
        }
    }

    /// What is on disk under this key.
    fn kept(&self, piece: &Piece, key: Key) -> Result<Option<Made>, FeatureError> {
        let Some((disk, kind)) = &self.disk else {
            return Ok(None);
        };
        let Some(blob) = disk.get(kind, key)? else {
            return Ok(None);
        };
        let tensors: Vec<_> = blob.tensors().collect();
        let read: Option<Made> = tensors.iter().map(read_back).collect();
        Ok(read.filter(|made| made.len() == piece.outputs.len()))
    }

    /// Everything that a feature depends on.
    fn content(&self, piece: &Piece, example: &Example) -> Result<Key, FeatureError> {
        let mut key = Key::of()
            .part(piece.key.to_string().as_bytes())
            .part(&[self.kind.bytes() as u8]);
        for input in &piece.inputs {
            let tensor = input_of(example, input)?;
            let shape: Vec<u64> = tensor.shape().iter().map(|&size| size as u64).collect();
            key = key.part(&shape).part(tensor.bytes());
        }
        Ok(key.finish())
    }

    fn compute(&self, piece: &Piece, example: &Example, key: Key) -> Result<Made, FeatureError> {
        let mut program = self.lock(piece);
        // Another thread may have made it while this one waited.
        if let Some(made) = self.kept(piece, key)? {
            return Ok(made);
        }
        let begun = Instant::now();
        let own = program.graph().inputs().iter();
        let own: Vec<String> = own.map(|input| input.name.clone()).collect();
        let mut inputs = Vec::new();
        for (input, own) in piece.inputs.iter().zip(&own) {
            inputs.push((own.as_str(), input_of(example, input)?));
        }
        let outputs = program.run(&inputs)?;
        let mut made = Vec::new();
        for (_, tensor) in outputs.iter() {
            let values = tensor.to_f32();
            let values = match self.kind {
                FeatureType::F32 => values.into_owned(),
                FeatureType::F16 => rounded(&values),
            };
            made.push(Tensor::from_values(tensor.shape(), values)?);
        }
        if let Some((disk, kind)) = &self.disk {
            self.keep(disk, kind, key, &made)?;
        }
        self.computed.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        Ok(made)
    }

    fn keep(
        &self,
        disk: &Cache,
        kind: &Collection,
        key: Key,
        made: &Made,
    ) -> Result<(), FeatureError> {
        let halves: Vec<Vec<f16>> = match self.kind {
            FeatureType::F32 => Vec::new(),
            FeatureType::F16 => made
                .iter()
                .map(|tensor| halves_of(&tensor.to_f32()))
                .collect(),
        };
        let values: Vec<Cow<'_, [f32]>> = made.iter().map(Tensor::to_f32).collect();
        let names: Vec<String> = (0..made.len()).map(|number| number.to_string()).collect();
        let refs = made.iter().enumerate().map(|(n, tensor)| match self.kind {
            FeatureType::F32 => TensorRef::new(&names[n], tensor.shape(), &values[n]),
            FeatureType::F16 => TensorRef::new(&names[n], tensor.shape(), &halves[n]),
        });
        match disk.put(kind, key, &refs.collect::<Vec<_>>()) {
            // What does not fit is computed again.
            Err(StoreError::TooLarge { .. }) => Ok(()),
            written => Ok(written?),
        }
    }

    fn lock(&self, piece: &Piece) -> std::sync::MutexGuard<'_, Program> {
        // A program that was interrupted begins its next run anew.
        let program = &self.programs[piece.program];
        program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn input_of<'e>(example: &'e Example, name: &str) -> Result<&'e Tensor<'static>, FeatureError> {
    example
        .get(name)
        .ok_or_else(|| FeatureError::NoInput(name.to_owned()))
}

/// What a piece computes: its nodes, and the numbers of its parameters.
fn computation(
    signature: String,
    graph: &Graph,
    weights: &dyn WeightSource,
) -> Result<Key, FeatureError> {
    let mut key = Key::of().part(signature.as_bytes());
    for param in graph.params() {
        let values = weights.read(&param.name, &param.shape)?;
        key = key.part(param.name.as_bytes()).part(&values);
        weights.release(&param.name);
    }
    Ok(key.finish())
}

fn halves_of(values: &[f32]) -> Vec<f16> {
    let mut halves = vec![f16::ZERO; values.len()];
    halves.convert_from_f32_slice(values);
    halves
}

fn rounded(values: &[f32]) -> Vec<f32> {
    widened(&halves_of(values))
}

fn widened(halves: &[f16]) -> Vec<f32> {
    let mut values = vec![0.0; halves.len()];
    halves.convert_to_f32_slice(&mut values);
    values
}

fn read_back(tensor: &percept_store::Tensor<'_>) -> Option<Tensor<'static>> {
    let values = match tensor.numbers::<f16>() {
        Some(halves) => widened(halves),
        None => tensor.numbers::<f32>()?.to_vec(),
    };
    Tensor::from_values(&*tensor.shape, values).ok()
}
