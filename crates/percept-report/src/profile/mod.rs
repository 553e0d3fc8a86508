//! The profile: where the time, the memory and the arithmetic of a run go.
//!
//! A row's time is the median over the recorded runs of the steps that stand at it; a parent is the sum of its
//! children, so nothing is counted twice and children never exceed their parent. What the runs took beyond their
//! steps is a row of its own.

mod step;
mod tables;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use percept_engine::{MemoryAtPeak, Recording, Run, StepInfo};
use serde::Serialize;

use crate::spread::Spread;
pub use step::{StepProfile, StepRow};

/// What a row of the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// A leaf: one layer of the network.
    Layer,
    /// A module and those inside it, down to this many name components.
    Module {
        /// Name components shown.
        depth: usize,
    },
    /// All layers of one op.
    Op,
}

/// Which rows come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Order {
    Execution,
    Time,
    Memory,
    Macs,
}

/// What part of the profile to show.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Selection {
    pub grouping: Grouping,
    pub order: Order,
    /// At most this many rows.
    pub top: Option<usize>,
}

/// A row of the profile.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileRow {
    /// Layer, module or op.
    pub name: String,
    /// The op, or the number of layers below.
    pub op: String,
    /// Nesting below the whole network.
    pub depth: usize,
    /// Time of a run spent here, over the recorded runs.
    pub time_ms: Spread,
    /// Part of the whole run.
    pub share: f64,
    /// Multiply-adds; `None` when they depend on data.
    pub macs: Option<u64>,
    /// Arithmetic that is no multiply-add of a contraction; `None` when it depends on data.
    pub other_ops: Option<u64>,
    /// 2 MACs / time. A Winograd layer multiplies less than that: its rate is an effective one.
    pub gflops_per_s: Option<f64>,
    /// The rate as a part of the machine's measured peak.
    pub share_of_peak: Option<f64>,
    /// Bytes of outputs that come into being here.
    pub allocated_bytes: usize,
    /// Most bytes of intermediate values held while it runs.
    pub live_bytes: usize,
    /// Packed weights.
    pub weight_bytes: usize,
    /// The algorithm, or where a fused layer's time stands.
    pub note: String,
}

/// A profile of one network on one machine.
#[derive(Clone, Debug)]
pub struct Profile {
    layers: Vec<Layer>,
    peak_gflops: f64,
    residual_ms: Spread,
    wall_ms: Spread,
    memory: MemoryAtPeak,
}

#[derive(Clone, Debug)]
struct Layer {
    info: StepInfo,
    times_ms: Vec<f64>,
    note: String,
}

impl Profile {
    /// Puts together what was recorded. `peak_gflops` is the measured peak of the threads used.
    pub fn new(
        infos: Vec<StepInfo>,
        recording: &Recording,
        memory: MemoryAtPeak,
        peak_gflops: f64,
    ) -> Self {
        let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (step, elapsed) in recording.runs.iter().flat_map(Run::step_times) {
            let times = times.entry(step).or_default();
            times.push(elapsed.as_secs_f64() * 1e3);
        }
        let layers = infos.into_iter().flat_map(|info| {
            let times_ms = times.remove(&info.step).unwrap_or_default();
            let fused = info
                .absorbed
                .iter()
                .map(|(name, kind)| fused_layer(&info, name, kind))
                .collect::<Vec<_>>();
            let note = if info.is_constant {
                "computed once".to_owned()
            } else {
                note_of(&info, recording)
            };
            std::iter::once(Layer {
                info,
                times_ms,
                note,
            })
            .chain(fused)
        });
        let residual = recording.runs.iter().map(|run| {
            let steps: f64 = run
                .calls
                .iter()
                .map(|time| time.elapsed.as_secs_f64())
                .sum();
            (run.total.as_secs_f64() - steps).max(0.0) * 1e3
        });
        Self {
            layers: layers.collect(),
            peak_gflops,
            residual_ms: Spread::of(residual),
            wall_ms: Spread::of(
                recording
                    .runs
                    .iter()
                    .map(|run| run.total.as_secs_f64() * 1e3),
            ),
            memory,
        }
    }

    /// The time of a whole run, over the recorded runs.
    pub fn wall_ms(&self) -> Spread {
        self.wall_ms
    }

    /// What holds memory at the peak.
    pub fn memory(&self) -> &MemoryAtPeak {
        &self.memory
    }

    /// The rows: the whole network first, then the selection, then the residual.
    pub fn rows(&self, selection: Selection) -> Vec<ProfileRow> {
        let all: Vec<&Layer> = self.layers.iter().collect();
        let mut total = self.row("whole network".to_owned(), 0, &all);
        let step_ms = total.time_ms.median;
        total.time_ms.median += self.residual_ms.median;
        total.time_ms.p10 += self.residual_ms.p10;
        total.time_ms.p90 += self.residual_ms.p90;
        let mut rows = match selection.grouping {
            Grouping::Layer => self
                .layers
                .iter()
                .map(|layer| self.layer_row(layer))
                .collect(),
            Grouping::Module { depth } => self.module_rows(depth),
            Grouping::Op => self.op_rows(),
        };
        sort_by_order(&mut rows, selection.order, |row: &ProfileRow| {
            (row.time_ms.median, row.allocated_bytes, row.macs)
        });
        let hidden = selection
            .top
            .map_or(0, |top| rows.len().saturating_sub(top));
        rows.truncate(rows.len() - hidden);
        let whole_ms = step_ms + self.residual_ms.median;
        let residual = ProfileRow {
            name: "(between layers)".to_owned(),
            op: String::new(),
            depth: 1,
            time_ms: self.residual_ms,
            note: "residual".to_owned(),
            ..self.row(String::new(), 1, &[])
        };
        let mut rows: Vec<ProfileRow> = std::iter::once(total)
            .chain(rows)
            .chain([residual])
            .collect();
        for row in &mut rows {
            row.share = if whole_ms > 0.0 {
                row.time_ms.median / whole_ms
            } else {
                0.0
            };
            self.set_rate(row);
        }
        rows
    }

    fn set_rate(&self, row: &mut ProfileRow) {
        let Some(macs) = row
            .macs
            .filter(|&macs| macs > 0 && row.time_ms.median > 0.0)
        else {
            return;
        };
        let rate = 2.0 * macs as f64 / (row.time_ms.median * 1e6);
        row.gflops_per_s = Some(rate);
        row.share_of_peak = Some(rate / self.peak_gflops).filter(|_| self.peak_gflops > 0.0);
    }

    /// A row for some layers: medians add up, memory is the largest of them.
    fn row(&self, name: String, depth: usize, layers: &[&Layer]) -> ProfileRow {
        let runs = layers
            .iter()
            .map(|layer| layer.times_ms.len())
            .max()
            .unwrap_or(0);
        let per_run = (0..runs).map(|run| {
            layers
                .iter()
                .filter_map(|layer| layer.times_ms.get(run))
                .sum()
        });
        let spread = Spread::of(per_run);
        let median = layers
            .iter()
            .map(|layer| Spread::of(layer.times_ms.iter().copied()).median)
            .sum();
        let known =
            |pick: fn(&StepInfo) -> Option<u64>| layers.iter().map(|layer| pick(&layer.info)).sum();
        ProfileRow {
            name,
            op: crate::counted(layers.len(), "layer"),
            depth,
            // The sum of medians may leave the spread of the sums by a hair; a median outside its spread would look wrong.
            time_ms: Spread {
                median,
                p10: spread.p10.min(median),
                p90: spread.p90.max(median),
            },
            share: 0.0,
            macs: known(|info| info.macs),
            other_ops: known(|info| info.other_ops),
            gflops_per_s: None,
            share_of_peak: None,
            allocated_bytes: layers.iter().map(|layer| layer.info.allocated_bytes).sum(),
            live_bytes: layers
                .iter()
                .map(|layer| layer.info.live_bytes)
                .max()
                .unwrap_or(0),
            weight_bytes: layers.iter().map(|layer| layer.info.weight_bytes).sum(),
            note: String::new(),
        }
    }

    fn layer_row(&self, layer: &Layer) -> ProfileRow {
        let row = self.row(layer.info.name.clone(), 1, &[layer]);
        ProfileRow {
            op: layer.info.kind.to_owned(),
            note: layer.note.clone(),
            ..row
        }
    }

    fn op_rows(&self) -> Vec<ProfileRow> {
        let mut groups: Vec<(&str, Vec<&Layer>)> = Vec::new();
        for layer in &self.layers {
            match groups.iter_mut().find(|(kind, _)| *kind == layer.info.kind) {
                Some((_, group)) => group.push(layer),
                None => groups.push((layer.info.kind, vec![layer])),
            }
        }
        groups
            .into_iter()
            .map(|(kind, group)| self.row(kind.to_owned(), 1, &group))
            .collect()
    }

    fn module_rows(&self, depth: usize) -> Vec<ProfileRow> {
        let names = self.layers.iter().map(|layer| layer.info.name.as_str());
        let ordered = module_paths(names, depth);
        let row = |(path, level): &(String, usize)| {
            let inside = format!("{path}.");
            let below =
                |layer: &&Layer| layer.info.name == *path || layer.info.name.starts_with(&inside);
            let layers: Vec<&Layer> = self.layers.iter().filter(below).collect();
            match layers.as_slice() {
                [one] if one.info.name == *path => ProfileRow {
                    depth: *level,
                    ..self.layer_row(one)
                },
                many => self.row(path.clone(), *level, many),
            }
        };
        ordered.iter().map(row).collect()
    }
}

/// The modules of these layers with their levels, down to `depth` name components: children behind their parents.
fn module_paths<'a>(names: impl Iterator<Item = &'a str>, depth: usize) -> Vec<(String, usize)> {
    let mut paths: Vec<(String, usize)> = Vec::new();
    for name in names {
        let parts: Vec<&str> = name.split('.').collect();
        for level in 1..=parts.len().min(depth) {
            let path = parts[..level].join(".");
            if !paths.iter().any(|(known, _)| *known == path) {
                paths.push((path, level));
            }
        }
    }
    // A layer that is met late, as fused ones are, must not scatter its module's rows.
    let order = |path: &str| -> Vec<usize> {
        let parts: Vec<&str> = path.split('.').collect();
        let place = |level: usize| {
            let prefix = parts[..level].join(".");
            paths
                .iter()
                .position(|(known, _)| *known == prefix)
                .unwrap_or(usize::MAX)
        };
        (1..=parts.len()).map(place).collect()
    };
    let mut ordered = paths.clone();
    ordered.sort_by_key(|(path, _)| order(path));
    ordered
}

/// The algorithm, the slices of a batch, and the share of its tiles that was computed where empty ones were skipped.
fn note_of(info: &StepInfo, recording: &Recording) -> String {
    let mut notes: Vec<String> = info.algorithm.iter().cloned().collect();
    if info.turns > 1 {
        notes.push(format!("{} slices", info.turns));
    }
    let shares = recording.runs.iter();
    let shares: Vec<f64> = shares
        .filter_map(|run| run.computed.get(&info.step).copied())
        .collect();
    if !shares.is_empty() {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        notes.push(format!("{:.0} % of the map computed", 100.0 * mean));
    }
    notes.join(", ")
}

/// A fused layer: its time stands at the step that computes it, its cost too.
fn fused_layer(host: &StepInfo, name: &str, kind: &'static str) -> Layer {
    let info = StepInfo {
        name: name.to_owned(),
        kind,
        algorithm: None,
        absorbed: Vec::new(),
        macs: Some(0),
        other_ops: Some(0),
        allocated_bytes: 0,
        live_bytes: 0,
        weight_bytes: 0,
        ..host.clone()
    };
    Layer {
        info,
        times_ms: Vec::new(),
        note: format!("in {}", host.name),
    }
}

/// Sorts rows by what `keys` gives of each: time, memory, MACs.
fn sort_by_order<R>(rows: &mut [R], order: Order, keys: impl Fn(&R) -> (f64, usize, Option<u64>)) {
    match order {
        Order::Execution => {}
        Order::Time => rows.sort_by(|a, b| keys(b).0.total_cmp(&keys(a).0)),
        Order::Memory => rows.sort_by_key(|row| Reverse(keys(row).1)),
        Order::Macs => rows.sort_by_key(|row| Reverse(keys(row).2)),
    }
}

#[cfg(test)]
mod tests;
