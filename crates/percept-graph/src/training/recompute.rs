//! Values that the way back computes again instead of finding them kept: time for memory.
//!
//! A value that is given up is no longer read behind the loss. The nodes that make it are repeated there, right before its first
//! reader, from what is still kept, by the same kernels, so gradients have the same bits: a batch norm takes the statistics that it
//! had, which move once, and a dropout its counters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::graph::{Graph, Node, NodeId, Value, ValueId, ValueSource};
use crate::ops::{BatchNormAgain, Binary, BinaryKind, Op};
use crate::{Bindings, GraphError};

/// A module that holds less than this part of what all hold is not worth a word.
const LEAST_SHARE: u64 = 1000;

/// What is computed again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompute {
    /// Modules, each from its inputs; several as one are joined by `+` (`conv1+bn1+relu`). What others read of a module is kept.
    pub modules: Vec<String>,
    /// What one pass over a kept value gives back: norms, activations, scales.
    pub elementwise: bool,
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let norms = self.elementwise.then_some("norms and activations");
        let modules = self.modules.iter().map(String::as_str);
        let parts: Vec<&str> = norms.into_iter().chain(modules).collect();
        match parts.is_empty() {
            true => f.write_str("nothing"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// A module that can be computed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecomputableModule {
    /// Its path.
    pub module: String,
    /// Bytes that need not be kept.
    pub bytes: u64,
    /// Multiply-adds that are done once more.
    pub macs: u64,
}

impl Graph {
    /// The same training step, which computes some values again on the way back.
    pub fn recomputing(self, what: &Recompute) -> Result<Self, GraphError> {
        let given_up = self.given_up(what)?;
        let forward = self.forward_count();
        let old = self.nodes.clone();
        let mut again = Again {
            next_id: old.len(),
            nodes: old[..forward].to_vec(),
            graph: self,
            given_up,
            made: BTreeMap::new(),
        };
        for mut node in old[forward..].iter().cloned() {
            for input in &mut node.inputs {
                *input = again.value(*input);
            }
            again.nodes.push(node);
        }
        again.graph.set_nodes(again.nodes);
        Ok(again.graph)
    }

    /// The modules of a training step that have something to give up, those first that give most for their work. Of a module and
    /// those inside it either is there: the outer one, unless most of what it holds is in the inner ones.
    pub fn recomputable_modules(
        &self,
        bindings: &Bindings,
    ) -> Result<Vec<RecomputableModule>, GraphError> {
        let forward = self.forward_count();
        let kept = self.kept(forward);
        let mut found: Vec<RecomputableModule> = Vec::new();
        let own: BTreeSet<usize> = self.nodes[..forward].iter().map(|n| n.scope.0).collect();
        // Scopes stand in front of those inside them, so the innermost come first.
        for scope in own.into_iter().rev().map(|scope| &self.scopes[scope]) {
            if scope.path.is_empty() {
                continue;
            }
            let module = self.recomputable(forward, &kept, &scope.path, bindings)?;
            let is_inside = |inner: &RecomputableModule| {
                let rest = inner.module.strip_prefix(&scope.path);
                rest.is_some_and(|rest| rest.starts_with('.'))
            };
            let inside: u64 = found.iter().filter(|m| is_inside(m)).map(|m| m.bytes).sum();
            if module.bytes > 2 * inside {
                found.retain(|inner| !is_inside(inner));
                found.push(module);
            }
        }
        for run in self.outermost(forward) {
            let run = self.recomputable(forward, &kept, &run, bindings)?;
            found.push(run);
        }
        let all: u64 = found.iter().map(|module| module.bytes).sum();
        found.retain(|module| module.bytes > all / LEAST_SHARE);
        found.sort_by(|a, b| {
            let gain = |m: &RecomputableModule| m.bytes as f64 / (m.macs + m.bytes) as f64;
            let order = gain(b).total_cmp(&gain(a));
            order.then_with(|| a.module.cmp(&b.module))
        });
        Ok(found)
    }

    /// Runs of nodes that stand in no module, such as the stem of a ResNet, each as one.
    fn outermost(&self, forward: usize) -> Vec<String> {
        let mut runs: Vec<Vec<&str>> = vec![Vec::new()];
        for node in &self.nodes[..forward] {
            // What an op of a network's own costs is not known.
            let joins =
                self.scope(node.scope).parent.is_none() && !matches!(node.op, Op::Custom(_));
            match (joins, runs.last_mut()) {
                (true, Some(run)) => run.push(&node.name),
                _ => runs.push(Vec::new()),
            }
        }
        let runs = runs.into_iter().filter(|run| !run.is_empty());
        runs.map(|run| run.join("+")).collect()
    }

    fn recomputable(
        &self,
        forward: usize,
        kept: &BTreeSet<ValueId>,
        module: &str,
        bindings: &Bindings,
    ) -> Result<RecomputableModule, GraphError> {
        let unit = Unit::of(self, forward, module);
        let mut module = RecomputableModule {
            module: module.to_owned(),
            bytes: 0,
            macs: 0,
        };
        for &value in self.inside(forward, &unit).intersection(kept) {
            module.bytes += self.value_bytes(value, bindings)?;
        }
        for &index in &unit.nodes {
            let cost = self.symbolic_cost(&self.nodes[index]);
            module.macs += cost.macs.eval(bindings)?.unwrap_or(0);
        }
        Ok(module)
    }

    /// Values of the forward pass that the way back reads.
    pub(super) fn kept(&self, forward: usize) -> BTreeSet<ValueId> {
        let read = self.nodes[forward..].iter().flat_map(|node| &node.inputs);
        let is_forward = |value: &&ValueId| match self.value(**value).source {
            ValueSource::Node(id, _) => id.0 < forward,
            _ => false,
        };
        read.filter(is_forward).copied().collect()
    }

    fn given_up(&self, what: &Recompute) -> Result<BTreeSet<ValueId>, GraphError> {
        let forward = self.forward_count();
        let mut given_up = BTreeSet::new();
        for module in &what.modules {
            for part in module.split('+') {
                if Unit::of(self, forward, part).nodes.is_empty() {
                    let name = part.to_owned();
                    return Err(GraphError::UnknownScope { name });
                }
            }
            let unit = Unit::of(self, forward, module);
            given_up.extend(self.inside(forward, &unit));
        }
        if what.elementwise {
            // From what is still there alone: what a module gives back comes all at once, and must not come early.
            let kept = self.kept(forward);
            let mut passes = BTreeSet::new();
            for node in &self.nodes[..forward] {
                let is_there = |value: ValueId| {
                    passes.contains(&value) || kept.contains(&value) && !given_up.contains(&value)
                };
                if self.passed(node).is_some_and(is_there) && self.may_go(node.outputs[0]) {
                    passes.insert(node.outputs[0]);
                }
            }
            given_up.extend(passes);
        }
        Ok(given_up)
    }

    /// The values of a module that nobody in front of the loss reads outside of it.
    fn inside(&self, forward: usize, unit: &Unit) -> BTreeSet<ValueId> {
        let outside = self.nodes[..forward].iter().enumerate();
        let outside = outside.filter(|(index, _)| !unit.nodes.contains(index));
        let read: BTreeSet<ValueId> = outside.flat_map(|(_, node)| node.inputs.clone()).collect();
        let mut inside = BTreeSet::new();
        for &index in &unit.nodes {
            let node = &self.nodes[index];
            // A node that defines sizes would define them twice; the statistics of a norm are few and must not move twice.
            let outputs = match &node.op {
                _ if self.defines_sizes(node) => &[],
                Op::BatchNormTraining(_) => &node.outputs[..1],
                _ => &node.outputs[..],
            };
            let goes = |value: &&ValueId| !read.contains(value) && self.may_go(**value);
            inside.extend(outputs.iter().filter(goes));
        }
        inside
    }

    /// Whether a value is made of plain numbers that nobody needs when the step is over.
    fn may_go(&self, value: ValueId) -> bool {
        self.value(value).ty.dtype.is_float()
            && self.outputs.iter().all(|(_, output)| *output != value)
            && self.states.iter().all(|state| state.next != value)
    }

    fn defines_sizes(&self, node: &Node) -> bool {
        let symbols = |value: &ValueId| {
            let shape = self.value(*value).ty.shape.clone();
            shape.into_iter().filter_map(|dim| dim.as_symbol().cloned())
        };
        let known: BTreeSet<_> = node.inputs.iter().flat_map(symbols).collect();
        node.outputs
            .iter()
            .flat_map(symbols)
            .any(|s| !known.contains(&s))
    }

    /// The one large operand of a node that makes its output in one pass over it.
    fn passed(&self, node: &Node) -> Option<ValueId> {
        let is_pass = match &node.op {
            Op::Activation(_)
            | Op::Affine(_)
            | Op::BatchNorm(_)
            | Op::BatchNormTraining(_)
            | Op::Dropout(_)
            | Op::LayerNorm(_)
            | Op::LayerScale(_)
            | Op::RandomDropout(_)
            | Op::Reshape(_) => true,
            Op::Binary(Binary { kind }) => matches!(kind, BinaryKind::Add | BinaryKind::Mul),
            _ => false,
        };
        let elements = |value: ValueId| self.value(value).ty.elements();
        let made = elements(node.outputs[0]);
        let mut large = node.inputs.iter().filter(|&&input| elements(input) == made);
        let (first, second) = (large.next(), large.next());
        first.filter(|_| is_pass && second.is_none()).copied()
    }
}

/// The nodes of a module in front of the loss.
struct Unit {
    nodes: BTreeSet<usize>,
}

impl Unit {
    fn of(graph: &Graph, forward: usize, module: &str) -> Self {
        let is_within = |name: &str| {
            module.split('+').any(|part| {
                let rest = name.strip_prefix(part);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let nodes = graph.nodes[..forward].iter().enumerate();
        let nodes = nodes.filter(|(_, node)| is_within(&node.name));
        Self {
            nodes: nodes.map(|(index, _)| index).collect(),
        }
    }
}

/// The way back, as it is written anew.
struct Again {
    graph: Graph,
    given_up: BTreeSet<ValueId>,
    /// What stands for values that were given up.
    made: BTreeMap<ValueId, ValueId>,
    nodes: Vec<Node>,
    next_id: usize,
}

impl Again {
    /// What stands for a value behind the loss, made when it is first asked for.
    fn value(&mut self, value: ValueId) -> ValueId {
        if !self.given_up.contains(&value) {
            return value;
        }
        if let Some(&made) = self.made.get(&value) {
            return made;
        }
        let ValueSource::Node(id, _) = self.graph.value(value).source else {
            unreachable!("only what a node makes is given up")
        };
        let mut node = self.graph.node(id).clone();
        let first = node.outputs.clone();
        if let Op::BatchNormTraining(training) = node.op {
            node.op = BatchNormAgain {
                norm: training.norm,
            }
            .into();
            // Operands: x, weight and bias; then the statistics that the batch had.
            node.inputs.truncate(3);
            node.inputs.extend(&first[1..3]);
            node.outputs.truncate(1);
        }
        for input in &mut node.inputs {
            *input = self.value(*input);
        }
        node.outputs = (first.iter().take(node.outputs.len()))
            .map(|&output| {
                let made = ValueId(self.graph.values.len());
                let Value { ty, source } = self.graph.value(output).clone();
                self.graph.values.push(Value { ty, source });
                if self.given_up.contains(&output) {
                    self.made.insert(output, made);
                }
                made
            })
            .collect();
        node.name = format!("{}.grad_again", node.name);
        node.id = NodeId(self.next_id);
        node.is_module = false;
        self.next_id += 1;
        self.nodes.push(node);
        self.made[&value]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BatchNorm, Builder, Conv2d, CrossEntropy, Dim, Optimiser, Reduce, ReduceKind, Sgd,
    };

    /// Two residual blocks and a loss.
    fn step() -> Graph {
        let mut b = Builder::new("Net");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let mut x = b.input("image", [n.clone(), 4.into(), h, w]);
        for block in ["first", "second"] {
            x = b.module(block, "Block", |b| {
                let y = b.conv2d("conv1", x, Conv2d::new(4, 4, 3).padding(1).no_bias());
                let y = b.batch_norm("bn1", y, BatchNorm::new(4));
                let y = b.relu("relu1", y);
                let y = b.conv2d("conv2", y, Conv2d::new(4, 4, 3).padding(1).no_bias());
                let y = b.batch_norm("bn2", y, BatchNorm::new(4));
                let y = b.add("add", y, x);
                b.relu("relu2", y)
            });
        }
        let (kind, axes) = (ReduceKind::Mean, vec![2, 3]);
        let y = b.call("pool", Reduce { kind, axes }, &[x]);
        let y = b.flatten("flatten", y, 1);
        let labels = b.integer_input("labels", [n]);
        let loss = b.call("loss", CrossEntropy { smoothing: 0.0 }, &[y, labels]);
        b.output("loss", loss);
        let training = crate::Training {
            optimiser: Optimiser::Sgd(Sgd::default()),
            clip_norm: None,
        };
        let graph = training.graph(b.finish().unwrap(), "loss", |_| true);
        graph.unwrap()
    }

    fn repeated(graph: &Graph) -> Vec<&str> {
        let names = graph.nodes().iter().map(|node| node.name.as_str());
        names
            .filter_map(|name| name.strip_suffix(".grad_again"))
            .collect()
    }

    /// What the way back reads of these nodes' first outputs.
    fn is_kept(graph: &Graph, name: &str) -> bool {
        let value = graph.find(name).unwrap();
        graph.kept(graph.forward_count()).contains(&value)
    }

    #[test]
    fn a_module_is_repeated_from_its_inputs_and_its_output_is_kept() {
        let modules = vec!["second".to_owned()];
        let what = Recompute {
            modules,
            elementwise: false,
        };
        let graph = step().recomputing(&what).unwrap();
        let expected = ["second.conv1", "second.bn1", "second.relu1", "second.conv2"];
        assert_eq!(repeated(&graph), expected);
        assert!(is_kept(&graph, "second.relu2") && is_kept(&graph, "first.relu2"));
        for inner in ["second.conv1", "second.relu1", "second.conv2"] {
            assert!(!is_kept(&graph, inner), "{inner}");
        }
        assert!(is_kept(&graph, "first.conv1"));
        let again = graph
            .nodes()
            .iter()
            .find(|n| n.name == "second.bn1.grad_again");
        let again = again.unwrap();
        assert!(matches!(again.op, Op::BatchNormAgain(_)) && again.outputs.len() == 1);
        let moves = graph.states().iter().filter(|state| {
            let source = graph.value(state.next).source;
            matches!(source, ValueSource::Node(id, _) if graph.node(id).name.ends_with("bn1"))
        });
        assert_eq!(
            moves.count(),
            4,
            "running statistics of two norms move once"
        );
    }

    #[test]
    fn one_pass_gives_back_norms_and_activations_but_no_sums() {
        let what = Recompute {
            elementwise: true,
            ..Recompute::default()
        };
        let graph = step().recomputing(&what).unwrap();
        let mut names = repeated(&graph);
        names.sort_unstable();
        assert_eq!(
            names,
            ["first.bn1", "first.relu1", "second.bn1", "second.relu1"]
        );
        assert!(is_kept(&graph, "first.conv1") && is_kept(&graph, "first.relu2"));
    }

    #[test]
    fn modules_are_known_by_name_and_ranked_by_what_they_give() {
        let what = Recompute {
            modules: vec!["third".to_owned()],
            elementwise: false,
        };
        let error = step().recomputing(&what).unwrap_err();
        assert!(matches!(error, GraphError::UnknownScope { ref name } if name == "third"));
        let graph = step();
        let inputs = [
            ("image", vec![1, 4, 32, 32]),
            ("labels", vec![1]),
            (crate::LEARNING_RATE, vec![]),
        ];
        let bindings = graph.bind(&inputs).unwrap();
        let modules = graph.recomputable_modules(&bindings).unwrap();
        let names: Vec<&str> = modules.iter().map(|m| m.module.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        assert_eq!(
            graph.outermost(graph.forward_count()),
            ["pool+flatten+loss"]
        );
        // conv1, relu1 and conv2.
        assert_eq!(modules[0].bytes, 3 * 4 * 4 * 1024);
        assert_eq!(modules[0].macs, 2 * 4 * 4 * 9 * 1024);
    }
}
