//! The profile of a training step: what each layer takes forward, backward and in the update, and how long the step waited
//! for its data.

use std::collections::BTreeMap;

use percept_graph::StepPhase;
use serde::Serialize;

use super::{Grouping, Layer, Order, Profile, Selection, sort_by_order};
use crate::spread::Spread;
use crate::table::Table;
use crate::units::{bytes, count, milliseconds, percent};

/// A recorded training step.
#[derive(Clone, Debug)]
pub struct StepProfile {
    nodes: Vec<Node>,
    profile: Profile,
    waited_ms: Spread,
    /// Parameters of each layer.
    parameters: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
struct Node {
    phase: StepPhase,
    layer: String,
    median_ms: f64,
    /// Its place in the profile.
    place: usize,
}

/// A row of a step's table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepRow {
    /// Layer, module or op.
    pub name: String,
    /// The op of the forward pass, or the number of layers below.
    pub op: String,
    /// Nesting below the whole step.
    pub depth: usize,
    /// From the inputs to the loss.
    pub forward_ms: f64,
    /// From the loss to the gradients.
    pub backward_ms: f64,
    /// The optimiser.
    pub update_ms: f64,
    /// All of it.
    pub time_ms: f64,
    /// Part of the whole step, waiting included.
    pub share: f64,
    /// Multiply-adds, forward and backward; `None` when they depend on data.
    pub macs: Option<u64>,
    /// 2 MACs / time.
    pub gflops_per_s: Option<f64>,
    /// Parameters that it owns.
    pub parameters: u64,
    /// Bytes that come into being here.
    pub allocated_bytes: usize,
}

impl StepProfile {
    /// `waited_ms` is how long each recorded step waited for data; `parameters` has the names and sizes of all parameters.
    pub fn new(
        profile: Profile,
        waited_ms: impl IntoIterator<Item = f64>,
        parameters: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        let nodes = profile.layers.iter().enumerate().map(|(place, layer)| {
            let (phase, name) = StepPhase::of_node(&layer.info.name);
            Node {
                phase,
                layer: name.to_owned(),
                median_ms: Spread::of(layer.times_ms.iter().copied()).median,
                place,
            }
        });
        let mut of_layers = BTreeMap::new();
        for (name, size) in parameters {
            let layer = name.rfind('.').map_or("", |dot| &name[..dot]);
            *of_layers.entry(layer.to_owned()).or_default() += size;
        }
        Self {
            nodes: nodes.collect(),
            waited_ms: Spread::of(waited_ms),
            parameters: of_layers,
            profile,
        }
    }

    /// The nodes' own profile: the time of a step without waiting, its memory.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How long a step waited for data.
    pub fn waited_ms(&self) -> Spread {
        self.waited_ms
    }

    /// Everything that a step takes: its nodes, what lies between them, and waiting.
    pub fn step_ms(&self) -> f64 {
        let nodes: f64 = self.nodes.iter().map(|node| node.median_ms).sum();
        nodes + self.profile.residual_ms.median + self.waited_ms.median
    }

    /// The step as a tree: waiting, then each phase with its modules down to `depth`.
    pub fn tree(&self, depth: usize) -> Vec<(usize, String, f64)> {
        let mut rows = vec![
            (0, "step".to_owned(), self.step_ms()),
            (1, "waiting for data".to_owned(), self.waited_ms.median),
        ];
        for phase in StepPhase::ALL {
            let nodes = || self.nodes.iter().filter(|node| node.phase == phase);
            let name = match phase {
                StepPhase::Forward => "forward",
                StepPhase::Backward => "backward",
                StepPhase::Update => "update",
            };
            rows.push((1, name.to_owned(), nodes().map(|node| node.median_ms).sum()));
            let depth = if phase == StepPhase::Update { 0 } else { depth };
            for (path, level) in self.modules(depth) {
                let inside = nodes().filter(|node| is_below(&node.layer, &path));
                let times: Vec<f64> = inside.map(|node| node.median_ms).collect();
                if !times.is_empty() {
                    rows.push((1 + level, path, times.iter().sum()));
                }
            }
        }
        let between = self.profile.residual_ms.median;
        rows.push((1, "between layers".to_owned(), between));
        rows
    }

    /// The tree as a table.
    pub fn tree_table(&self, depth: usize) -> String {
        let mut table = Table::new(&["<step", "ms", "share"]);
        let whole = self.step_ms();
        for (level, name, ms) in self.tree(depth) {
            let share = percent(ms / whole.max(f64::MIN_POSITIVE));
            table.row([
                format!("{}{name}", "  ".repeat(level)),
                milliseconds(ms),
                share,
            ]);
        }
        table.render()
    }

    /// Layers, modules or ops with their phases side by side.
    pub fn rows(&self, selection: Selection) -> Vec<StepRow> {
        let groups: Vec<(String, usize, Vec<&Node>)> = match selection.grouping {
            Grouping::Layer => self
                .layers()
                .into_iter()
                .map(|layer| {
                    let nodes = self.nodes.iter().filter(|node| node.layer == layer);
                    (layer.to_owned(), 1, nodes.collect())
                })
                .collect(),
            Grouping::Module { depth } => {
                let modules = self.modules(depth).into_iter();
                let group = |(path, level): (String, usize)| {
                    let below = |node: &&Node| is_below(&node.layer, &path);
                    let nodes = self.nodes.iter().filter(below).collect();
                    (path, level, nodes)
                };
                modules.map(group).collect()
            }
            Grouping::Op => self.by_op(),
        };
        let whole = self.step_ms().max(f64::MIN_POSITIVE);
        let row = |(name, depth, nodes): (String, usize, Vec<&Node>)| {
            let mut row = self.row(name, depth, &nodes);
            row.share = row.time_ms / whole;
            row
        };
        let mut rows: Vec<StepRow> = groups.into_iter().map(row).collect();
        sort_by_order(&mut rows, selection.order, |row| {
            (row.time_ms, row.allocated_bytes, row.macs)
        });
        rows.truncate(selection.top.unwrap_or(usize::MAX));
        rows
    }

    /// The rows as a table.
    pub fn table(&self, selection: Selection) -> String {
        let mut table = Table::new(&[
            "<layer",
            "<op",
            "forward ms",
            "backward",
            "update",
            "together",
            "share",
            "MACs",
            "GFLOP/s",
            "params",
            "alloc",
        ]);
        let indented = matches!(selection.grouping, Grouping::Module { .. })
            && selection.order == Order::Execution;
        let or_blank = |blank: bool, text: String| if blank { String::new() } else { text };
        let ms = |ms: f64| or_blank(ms == 0.0, milliseconds(ms));
        for row in self.rows(selection) {
            let indent = "  ".repeat(if indented { row.depth - 1 } else { 0 });
            let macs = row.macs.map_or_else(
                || "by data".to_owned(),
                |macs| or_blank(macs == 0, count(macs)),
            );
            let rate = row.gflops_per_s;
            table.row([
                format!("{indent}{}", row.name),
                row.op,
                ms(row.forward_ms),
                ms(row.backward_ms),
                ms(row.update_ms),
                ms(row.time_ms),
                percent(row.share),
                macs,
                rate.map_or_else(String::new, |rate| format!("{rate:.1}")),
                or_blank(row.parameters == 0, count(row.parameters)),
                or_blank(row.allocated_bytes == 0, bytes(row.allocated_bytes as u64)),
            ]);
        }
        table.render()
    }

    fn layer_of(&self, node: &Node) -> &Layer {
        &self.profile.layers[node.place]
    }

    fn row(&self, name: String, depth: usize, nodes: &[&Node]) -> StepRow {
        let of = |phase| {
            let own = nodes.iter().filter(move |node| node.phase == phase);
            own.map(|node| node.median_ms).sum::<f64>()
        };
        let [forward_ms, backward_ms, update_ms] = StepPhase::ALL.map(of);
        let mut layers: Vec<&str> = nodes.iter().map(|node| node.layer.as_str()).collect();
        layers.sort_unstable();
        layers.dedup();
        let forward = nodes.iter().find(|node| node.phase == StepPhase::Forward);
        let op = match (layers.len(), forward.or(nodes.first())) {
            (0 | 1, Some(node)) => self.layer_of(node).info.kind.to_owned(),
            (many, _) => crate::counted(many, "layer"),
        };
        let infos = || nodes.iter().map(|node| &self.layer_of(node).info);
        let macs: Option<u64> = infos().map(|info| info.macs).sum();
        let arithmetic_ms = forward_ms + backward_ms;
        let rate = macs.filter(|&macs| macs > 0 && arithmetic_ms > 0.0);
        let parameters = layers
            .iter()
            .filter_map(|&layer| self.parameters.get(layer));
        StepRow {
            name,
            op,
            depth,
            forward_ms,
            backward_ms,
            update_ms,
            time_ms: forward_ms + backward_ms + update_ms,
            share: 0.0,
            macs,
            gflops_per_s: rate.map(|macs| 2.0 * macs as f64 / (arithmetic_ms * 1e6)),
            parameters: parameters.sum(),
            allocated_bytes: infos().map(|info| info.allocated_bytes).sum(),
        }
    }

    /// Layers in the order in which they are first met.
    fn layers(&self) -> Vec<&str> {
        let mut layers: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if !layers.contains(&node.layer.as_str()) {
                layers.push(&node.layer);
            }
        }
        layers
    }

    /// Modules with their levels, children behind their parents.
    fn modules(&self, depth: usize) -> Vec<(String, usize)> {
        super::module_paths(self.layers().into_iter(), depth)
    }

    /// All layers of one op together: a gradient belongs to the op of its layer.
    fn by_op(&self) -> Vec<(String, usize, Vec<&Node>)> {
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        for node in &self.nodes {
            kinds
                .entry(&node.layer)
                .or_insert_with(|| self.layer_of(node).info.kind);
        }
        let mut groups: Vec<(String, usize, Vec<&Node>)> = Vec::new();
        for node in &self.nodes {
            let kind = kinds[node.layer.as_str()];
            match groups.iter_mut().find(|(name, ..)| name == kind) {
                Some((_, _, group)) => group.push(node),
                None => groups.push((kind.to_owned(), 1, vec![node])),
            }
        }
        groups
    }
}

fn is_below(layer: &str, path: &str) -> bool {
    let rest = layer.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
