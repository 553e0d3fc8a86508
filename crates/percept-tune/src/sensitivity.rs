//! What each layer gains and loses when it alone computes in integers.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::Example;
use percept_engine::{Options, PrecisionPlan, Program, Quantization, RoundedWeights};
use percept_graph::{Graph, Node, Op, Operator, Tensor, ValueSource, WeightSource};
use percept_kernels::Cpu;

use crate::recipe::Scheme;
use crate::{Calibration, Calibrator, Noise, Recipe, TuneError};

/// A network in floats, and the samples that it is measured on.
pub struct Subject<'a> {
    /// The network without quantisers.
    pub graph: &'a Graph,
    /// Its weights as floats.
    pub weights: Arc<dyn WeightSource>,
    /// Threads to run on.
    pub threads: usize,
    /// How it runs.
    pub options: Options,
    /// A few samples, in memory.
    pub samples: &'a [Example],
}

/// What one layer is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSensitivity {
    /// Its name.
    pub name: String,
    /// Its op.
    pub kind: &'static str,
    /// The grids it was measured on.
    pub grids: Quantization,
    /// Signal to noise at its own output, decibels.
    pub own_db: f64,
    /// Signal to noise at the network's outputs, all of them together.
    pub network_db: f64,
    /// Layers of the same number are one step in floats or in integers: they gain or lose together, and share their times by their
    /// weights.
    pub unit: usize,
    /// Milliseconds that it takes in floats, as part of the whole network, with what is computed in the same step.
    pub float_ms: f64,
    /// The same in integers, with its quantiser, when all layers are.
    pub integer_ms: f64,
    /// Bytes of weights in floats.
    pub float_bytes: u64,
    /// Bytes of weights in integers, with their steps.
    pub integer_bytes: u64,
    /// Points of the network's metric that it loses alone; none where nobody asked.
    pub metric_loss: Option<f64>,
    /// Signal to noise at its own output by other means, where its noise stands out.
    pub remedies: Vec<(String, f64)>,
}

impl LayerSensitivity {
    /// Milliseconds saved; below zero where integers are slower.
    pub fn saved_ms(&self) -> f64 {
        self.float_ms - self.integer_ms
    }
}

/// Noise at a layer's own output that stands out, in decibels.
const NOISY_DB: f64 = 30.0;
/// Decibels that make a remedy worth naming.
const WORTH_DB: f64 = 3.0;

impl Subject<'_> {
    /// A program of the network under a plan.
    pub fn program(&self, plan: &PrecisionPlan) -> Result<Program, TuneError> {
        self.tapped(plan, None)
    }

    fn tapped(&self, plan: &PrecisionPlan, tap: Option<&Node>) -> Result<Program, TuneError> {
        let mut graph = plan.quantize(self.graph.clone())?;
        if let Some(node) = tap {
            graph = graph.with_output(TAP, node.outputs[0]);
        }
        let weights = RoundedWeights::new(Arc::clone(&self.weights), &graph);
        let cpu = Cpu::new(self.threads).map_err(percept_engine::EngineError::from)?;
        Ok(Program::new(graph, Arc::new(weights), cpu, self.options))
    }

    /// The outputs of a program on one of the samples.
    pub fn run(
        &self,
        program: &mut Program,
        sample: &Example,
    ) -> Result<Vec<(String, Tensor<'static>)>, TuneError> {
        let inputs = sample.taken_by(self.graph);
        Ok(program.run(&inputs)?.to_tensors())
    }

    /// The outputs that noise is told of: those in floats that no op of the network's own selects, such as boxes.
    fn judged(&self) -> Vec<&str> {
        let outputs = self.graph.outputs().iter();
        let is_selected = |value| match self.graph.value(value).source {
            ValueSource::Node(id, _) => matches!(self.graph.node(id).op, Op::Custom(_)),
            _ => false,
        };
        let plain: Vec<&str> = outputs
            .clone()
            .filter(|(_, value)| !is_selected(*value))
            .map(|(name, _)| name.as_str())
            .collect();
        match plain.is_empty() {
            true => outputs.map(|(name, _)| name.as_str()).collect(),
            false => plain,
        }
    }

    /// The noise of each output under a plan, against floats.
    pub fn noise(&self, plan: &PrecisionPlan) -> Result<Vec<(String, Noise)>, TuneError> {
        let (mut float, mut quantized) =
            (self.program(&PrecisionPlan::new())?, self.program(plan)?);
        let judged = self.judged();
        let mut all: BTreeMap<String, Noise> = BTreeMap::new();
        for sample in self.samples {
            let (should, is) = (
                self.run(&mut float, sample)?,
                self.run(&mut quantized, sample)?,
            );
            for (name, noise) in crate::noise_of(&should, &is) {
                if judged.contains(&name.as_str()) {
                    all.entry(name).or_default().join(noise);
                }
            }
        }
        Ok(all.into_iter().collect())
    }

    /// The noise of all outputs together.
    pub fn total_noise(&self, plan: &PrecisionPlan) -> Result<Noise, TuneError> {
        let mut total = Noise::default();
        self.noise(plan)?
            .into_iter()
            .for_each(|(_, noise)| total.join(noise));
        Ok(total)
    }
}

const TAP: &str = "percept.tap";

/// What each layer of a recipe gains and loses alone. `on_layer` hears how many are done, and of how many.
pub fn sensitivity(
    subject: &Subject<'_>,
    recipe: &Recipe,
    calibration: Option<&Calibration>,
    mut on_layer: impl FnMut(usize, usize),
) -> Result<Vec<LayerSensitivity>, TuneError> {
    if subject.samples.is_empty() {
        return Err(TuneError::NoSamples);
    }
    let whole = recipe.plan(subject.graph, calibration)?;
    let mut units = subject.units(&whole)?;
    let layers: Vec<&Node> = recipe.takes(subject.graph).collect();
    let weights = |node: &Node| subject.graph.param(node.params[0]);
    let mut unit_bytes: BTreeMap<usize, u64> = BTreeMap::new();
    for &node in &layers {
        let bytes = unit_bytes.entry(units.unit(&node.name)).or_default();
        *bytes += weights(node).bytes();
    }
    let mut found = Vec::new();
    for (done, node) in layers.iter().enumerate() {
        on_layer(done, layers.len());
        let grids = recipe.grids(node, calibration)?;
        let (own, network) = alone(subject, node, grids)?;
        let param = weights(node);
        let mut small = param.clone();
        small.grid = Some(grids.weight);
        let unit = units.unit(&node.name);
        let share = param.bytes() as f64 / unit_bytes[&unit].max(1) as f64;
        let [float_ms, integer_ms] = units.ms(unit).map(|ms| ms * share);
        let own_db = own.sqnr_db();
        let remedies = match own_db < NOISY_DB {
            true => remedies(subject, recipe, calibration, node, own_db)?,
            false => Vec::new(),
        };
        found.push(LayerSensitivity {
            name: node.name.clone(),
            kind: node.op.kind(),
            grids,
            own_db,
            network_db: network.sqnr_db(),
            unit,
            float_ms,
            integer_ms,
            float_bytes: param.bytes(),
            integer_bytes: small.bytes(),
            metric_loss: None,
            remedies,
        });
    }
    on_layer(layers.len(), layers.len());
    Ok(found)
}

/// The noise at a layer's own output and at the network's, when it alone is on grids.
fn alone(
    subject: &Subject<'_>,
    node: &Node,
    grids: Quantization,
) -> Result<(Noise, Noise), TuneError> {
    let mut float = subject.tapped(&PrecisionPlan::new(), Some(node))?;
    let plan = PrecisionPlan::new().with(&node.name, grids);
    let mut quantized = subject.tapped(&plan, Some(node))?;
    let judged = subject.judged();
    let (mut own, mut network) = (Noise::default(), Noise::default());
    for sample in subject.samples {
        let should = subject.run(&mut float, sample)?;
        let is = subject.run(&mut quantized, sample)?;
        for (name, noise) in crate::noise_of(&should, &is) {
            if name == TAP {
                own.join(noise);
            } else if judged.contains(&name.as_str()) {
                network.join(noise);
            }
        }
    }
    Ok((own, network))
}

/// What brings the noise of a layer down: other ranges, or wider inputs.
fn remedies(
    subject: &Subject<'_>,
    recipe: &Recipe,
    calibration: Option<&Calibration>,
    node: &Node,
    own_db: f64,
) -> Result<Vec<(String, f64)>, TuneError> {
    let mut tried: Vec<(String, Recipe)> = Vec::new();
    let wide = Recipe {
        wide: vec![node.name.clone()],
        ..recipe.clone()
    };
    tried.push(("16 bit".to_owned(), wide));
    if recipe.scheme == Scheme::Static {
        for calibrator in [Calibrator::Percentile(99.9), Calibrator::Mse] {
            let other = Recipe {
                calibrator,
                ..recipe.clone()
            };
            tried.push((calibrator.to_string(), other));
        }
    }
    let mut found = Vec::new();
    for (name, recipe) in tried {
        let (own, _) = alone(subject, node, recipe.grids(node, calibration)?)?;
        let gained = own.sqnr_db() - own_db;
        if gained >= WORTH_DB {
            found.push((name, gained));
        }
    }
    Ok(found)
}

/// What helps a layer whose noise stands out, for people; none where it does not.
pub fn outlier_advice(graph: &Graph, layer: &LayerSensitivity) -> Option<String> {
    if layer.own_db >= NOISY_DB {
        return None;
    }
    let mut helps: Vec<String> = layer
        .remedies
        .iter()
        .map(|(name, gained)| format!("{name} (+{gained:.1} dB)"))
        .collect();
    let node = graph.nodes().iter().find(|node| node.name == layer.name);
    // Few channels of different units share one scale: the largest unit sets it.
    let channels = node.and_then(|node| match &node.op {
        Op::Conv2d(conv) => Some(conv.in_channels),
        Op::SparseConv3d(conv) => Some(conv.in_channels),
        Op::Linear(linear) => Some(linear.in_features),
        _ => None,
    });
    if channels.is_some_and(|channels| channels <= 8) {
        helps.push("channels of the input scaled alike".to_owned());
    }
    Some(match helps.is_empty() {
        true => format!(
            "{:.1} dB at its output; nothing tried helps but f32",
            layer.own_db
        ),
        false => format!("{:.1} dB at its output; {}", layer.own_db, helps.join(", ")),
    })
}
