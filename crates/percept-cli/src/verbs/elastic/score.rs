//! What parts of a network are worth: each is measured and scored on the same samples, and only what differs from the part
//! before is computed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use percept_engine::{Options, Program, Recalibration};
use percept_graph::{
    Choice, Graph, GraphError, NodeId, PartWeights, Scoring, Slicing, Tensor, ValueId, WeightSource,
};
use percept_models::Model;
use percept_models::zoo::Entry;

use super::judge::Judge;
use super::show::narrowed;
use crate::fail::{Blame, Fail, Result};
use crate::options::Common;

/// Tensors by name.
type Named = BTreeMap<String, Tensor<'static>>;
/// The same, borrowed.
type Inputs<'a> = Vec<(&'a str, &'a Tensor<'static>)>;

/// What the samples of a search are.
pub struct Samples {
    /// The inputs of the network, batch by batch.
    pub batches: Vec<Named>,
    /// Batches that batch norms are measured on; all are scored.
    pub measured: usize,
    /// Which sample each row of the batches is.
    pub order: Vec<usize>,
}

/// A part that was scored, and what is kept of it.
struct Known {
    choice: Choice,
    graph: Graph,
    /// What it says of each sample.
    rows: Vec<Vec<f32>>,
    /// Statistics of all its batch norms.
    statistics: BTreeMap<String, Vec<f32>>,
    /// Values in front of each axis, batch by batch; empty where they found no room. Parts share what they have in common.
    features: Vec<Kept>,
}

/// Values that are kept, by name.
type Kept = BTreeMap<String, Arc<Tensor<'static>>>;

/// What a search has spent, against what it would have without keeping anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub macs: u64,
    pub naive_macs: u64,
    /// Bytes of kept values, at most.
    pub most_bytes: u64,
    /// Parts that were scored.
    pub parts: usize,
}

/// Scores parts. It keeps the values in front of each axis of the part that the search goes on from, and of those that it has just
/// scored; others are computed from where they begin to differ.
pub struct Scorer<'a> {
    entry: &'a Entry,
    model: &'a Model,
    weights: Arc<dyn WeightSource>,
    samples: Samples,
    /// What rows are worth; nothing while it is not known.
    pub judge: Option<Judge>,
    common: &'a Common,
    options: Options,
    /// Names of the nodes at which something may begin to differ.
    cuts: BTreeSet<String>,
    /// Bytes that may be kept.
    limit: u64,
    /// The part that the search goes on from.
    here: Option<Known>,
    /// Parts that were scored since then.
    since: Vec<Known>,
    /// Parts that were scored before, while the search stood at the part before this one.
    before: Vec<Known>,
    pub spent: Spent,
}

impl<'a> Scorer<'a> {
    pub fn new(
        entry: &'a Entry,
        model: &'a Model,
        weights: Arc<dyn WeightSource>,
        samples: Samples,
        common: &'a Common,
        options: Options,
    ) -> Self {
        Self {
            entry,
            model,
            weights,
            samples,
            judge: None,
            common,
            options,
            cuts: BTreeSet::new(),
            limit: 0,
            here: None,
            since: Vec::new(),
            before: Vec::new(),
            spent: Spent::default(),
        }
    }

    /// Keeps values in front of these axes, of at most `limit` bytes.
    pub fn keep_in_front_of(&mut self, axes: &[String], limit: u64) -> Result<()> {
        for axis in axes {
            let choice = Choice::whole().with(axis, 1);
            let lowest = narrowed(self.entry, self.model, &choice).bug()?;
            let whole = &self.model.graph;
            if let Some(first) = whole.first_difference(&lowest) {
                self.cuts.insert(whole.node(first).name.clone());
            }
        }
        self.limit = limit;
        Ok(())
    }

    /// What the first output of the whole network says of each sample, with its batch norms measured on them. The search goes
    /// on from there.
    pub fn whole(&mut self) -> Result<Vec<Vec<f32>>> {
        let known = self.computed(&Choice::whole())?;
        let rows = known.rows.clone();
        self.here = Some(known);
        Ok(rows)
    }

    /// A part with its statistics measured on the samples.
    pub fn network(&mut self, choice: &Choice) -> Result<(Graph, PartWeights)> {
        let known = self.computed(choice)?;
        let slicing = Slicing::between(&self.model.graph, &known.graph).bug()?;
        let weights = PartWeights::new(Arc::clone(&self.weights), slicing);
        Ok((known.graph, weights.replacing(known.statistics)))
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// The node to begin with: the last one in front of all differences to some part whose values are kept, and that part.
    fn begin(&self, graph: &Graph) -> Option<(NodeId, &Known)> {
        let known = self.here.iter().chain(&self.before);
        let begins = known.filter_map(|known| Some((self.begin_from(graph, known)?, known)));
        begins.max_by_key(|(node, _)| *node)
    }

    fn begin_from(&self, graph: &Graph, known: &Known) -> Option<NodeId> {
        let kept = known.features.first()?;
        let differs = graph.first_difference(&known.graph);
        let differs = differs.or(graph.nodes().last().map(|node| node.id))?;
        let cuts = graph.nodes()[..=differs.index()].iter().rev();
        let mut cuts = cuts.filter(|node| self.cuts.contains(&node.name));
        let cut = cuts.find(|node| {
            let carried = graph.carried_into(node.id);
            carried.iter().all(|(name, _)| kept.contains_key(name))
        });
        cut.map(|node| node.id)
    }

    /// What a part says, and what may be kept of it.
    fn computed(&mut self, choice: &Choice) -> Result<Known> {
        let graph = narrowed(self.entry, self.model, choice).bug()?;
        let slicing = Slicing::between(&self.model.graph, &graph).bug()?;
        let (begin, base) = match (self.begin(&graph), graph.nodes().first()) {
            (Some((node, base)), _) => (node, Some(base)),
            (None, Some(first)) => (first.id, None),
            (None, None) => return Err(Fail::usage("a network without a node")),
        };
        let mut rest = graph.rest_from(begin);
        let names: Vec<String> = rest.inputs().iter().map(|i| i.name.clone()).collect();
        let batches = self.samples.batches.iter().enumerate();
        let inputs: Vec<Inputs<'_>> = batches
            .map(|(batch, own)| {
                let kept = base.and_then(|base| base.features.get(batch));
                let given = |name: &String| own.get(name).or_else(|| Some(&**kept?.get(name)?));
                let names = names.iter();
                names
                    .filter_map(|name| Some((name.as_str(), given(name)?)))
                    .collect()
            })
            .collect();
        let mut statistics = base.map(|base| base.statistics.clone()).unwrap_or_default();
        let part = || PartWeights::new(Arc::clone(&self.weights), slicing.clone());
        let cpu = || self.common.cpu();
        let first = rest.nodes()[0].id;
        let mut measured =
            Recalibration::new(&rest, first, Arc::new(part()), cpu()?, self.options)?;
        for inputs in &inputs[..self.samples.measured] {
            measured.add(inputs)?;
        }
        statistics.extend(measured.statistics());
        drop(measured);

        let Some((output, _)) = rest.outputs().first().cloned() else {
            return Err(Fail::usage("a network without an output"));
        };
        let (macs, naive) = self.cost(&graph, &rest, &inputs).bug()?;
        // What later parts may begin with.
        let cuts = rest.nodes().iter().filter(|n| self.cuts.contains(&n.name));
        let wanted: BTreeMap<String, ValueId> =
            cuts.flat_map(|node| rest.carried_into(node.id)).collect();
        for (name, value) in &wanted {
            rest = rest.with_output(&format!("{KEPT}{name}"), *value);
        }
        let weights = part().replacing(statistics.clone());
        let mut program = Program::new(rest, Arc::new(weights), cpu()?, self.options);
        let (mut rows, mut features) = (Vec::new(), Vec::new());
        for (batch, inputs) in inputs.iter().enumerate() {
            // What lies in front is the same; what follows is replaced.
            let in_front = base.and_then(|base| base.features.get(batch));
            let mut kept = in_front.cloned().unwrap_or_default();
            for (name, tensor) in program.run(inputs)?.iter() {
                if name == output {
                    let samples = tensor.shape().first().copied().unwrap_or(1).max(1);
                    let values = tensor.to_f32();
                    let width = (values.len() / samples).max(1);
                    rows.extend(values.chunks(width).map(<[f32]>::to_vec));
                } else if let Some(name) = name.strip_prefix(KEPT) {
                    let tensor = tensor.clone().into_owned();
                    kept.insert(name.to_owned(), Arc::new(tensor));
                }
            }
            features.push(kept);
        }
        let order = self.samples.order.iter();
        let rows: BTreeMap<usize, Vec<f32>> = order.copied().zip(rows).collect();
        self.spent.macs += macs;
        self.spent.naive_macs += naive;
        self.spent.parts += 1;
        Ok(Known {
            choice: choice.clone(),
            graph,
            rows: rows.into_values().collect(),
            statistics,
            features,
        })
    }

    /// Multiply-adds of measuring and scoring: of what is computed, and of all of the part.
    fn cost(
        &self,
        graph: &Graph,
        rest: &Graph,
        inputs: &[Inputs<'_>],
    ) -> std::result::Result<(u64, u64), GraphError> {
        let macs = |graph: &Graph, inputs: &Inputs<'_>| {
            let is_own = |name: &str| graph.inputs().iter().any(|input| input.name == name);
            let own = inputs.iter().filter(|(name, _)| is_own(name));
            let shapes: Vec<(&str, Vec<usize>)> = own
                .map(|(name, tensor)| (*name, tensor.shape().to_vec()))
                .collect();
            graph.total_macs(&graph.bind(&shapes)?)
        };
        let (mut spent, mut naive) = (0, 0);
        for (number, inputs) in inputs.iter().enumerate() {
            let times = 1 + u64::from(number < self.samples.measured);
            spent += times * macs(rest, inputs)?;
            naive += times * macs(graph, inputs)?;
        }
        Ok((spent, naive))
    }

    /// Bytes that are kept now; what parts share counts once.
    fn kept_bytes(&self) -> u64 {
        let parts = self.here.iter().chain(&self.before).chain(&self.since);
        let tensors = parts.flat_map(|known| known.features.iter().flat_map(BTreeMap::values));
        let unique: BTreeMap<*const Tensor<'static>, usize> = tensors
            .map(|tensor| (Arc::as_ptr(tensor), tensor.bytes().len()))
            .collect();
        unique.values().map(|bytes| *bytes as u64).sum()
    }

    /// Gives up what is kept until it is within the limit: first of parts that were scored long ago.
    fn stay_within_limit(&mut self) {
        let mut bytes = self.kept_bytes();
        while bytes > self.limit {
            if self.before.is_empty() {
                let Some(last) = self.since.last_mut() else {
                    return;
                };
                last.features.clear();
                bytes = self.kept_bytes();
                break;
            }
            self.before.remove(0);
            bytes = self.kept_bytes();
        }
        self.spent.most_bytes = self.spent.most_bytes.max(bytes);
    }
}

/// Outputs that are kept have this in front of their names.
const KEPT: &str = "kept ";

impl Scoring<Fail> for Scorer<'_> {
    fn score(&mut self, choice: &Choice) -> Result<f64> {
        let worth = |judge: &Option<Judge>, rows: &[Vec<f32>]| {
            judge.as_ref().map_or(f64::NAN, |judge| judge.score(rows))
        };
        if let Some(here) = self.here.as_ref().filter(|here| here.choice == *choice) {
            return Ok(worth(&self.judge, &here.rows));
        }
        let known = self.computed(choice)?;
        let score = worth(&self.judge, &known.rows);
        self.since.push(known);
        self.stay_within_limit();
        Ok(score)
    }

    fn goes_on_from(&mut self, choice: &Choice) -> Result<()> {
        if self
            .here
            .as_ref()
            .is_some_and(|here| here.choice == *choice)
        {
            return Ok(());
        }
        let place = self.since.iter().position(|known| known.choice == *choice);
        self.before = std::mem::take(&mut self.since);
        let known = match place {
            Some(place) if !self.before[place].features.is_empty() => self.before.remove(place),
            // It found no room before; now there is some.
            _ => {
                self.before.clear();
                self.computed(choice)?
            }
        };
        self.here = Some(known);
        Ok(())
    }
}
