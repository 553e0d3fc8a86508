//! What the steps of a network take in floats and in integers. Layers that either of them computes in one step are a unit: they gain
//! or lose together, and what is computed with them counts too.

use std::collections::BTreeMap;

use percept_engine::{PrecisionPlan, Program, Recording, Run};
use percept_graph::INPUT_QUANTIZER;

use crate::{Subject, TuneError};

/// Runs behind each time.
const TIMED_RUNS: usize = 5;

/// A step of a program.
struct Timed {
    /// The nodes that it computes, at least one.
    nodes: Vec<String>,
    /// Its shortest time.
    ms: f64,
}

/// Milliseconds in floats and in integers.
pub type BothMs = [f64; 2];

/// What units of nodes take in floats and in integers.
pub(crate) struct Units {
    of_node: BTreeMap<String, usize>,
    /// For each set of nodes the one that it was joined to, or itself.
    parents: Vec<usize>,
    ms: BTreeMap<usize, BothMs>,
}

impl Units {
    fn of(steps: &[Vec<Timed>; 2]) -> Units {
        let mut units = Units {
            of_node: BTreeMap::new(),
            parents: Vec::new(),
            ms: BTreeMap::new(),
        };
        for step in steps.iter().flatten() {
            units.join(&step.nodes);
        }
        for (kind, steps) in steps.iter().enumerate() {
            for step in steps {
                let unit = units.unit(&step.nodes[0]);
                units.ms.entry(unit).or_default()[kind] += step.ms;
            }
        }
        units
    }

    fn join(&mut self, nodes: &[String]) {
        let unit = self.unit(&nodes[0]);
        for node in nodes {
            let other = self.unit(node);
            self.parents[other] = unit;
        }
    }

    /// The number of a node's unit. One that no step computes is a unit by itself.
    pub(crate) fn unit(&mut self, node: &str) -> usize {
        let new = self.parents.len();
        let mut at = *self.of_node.entry(node.to_owned()).or_insert(new);
        if at == new {
            self.parents.push(new);
        }
        while self.parents[at] != at {
            at = self.parents[at];
        }
        at
    }

    /// What a unit takes.
    pub(crate) fn ms(&self, unit: usize) -> BothMs {
        self.ms.get(&unit).copied().unwrap_or_default()
    }
}

impl Subject<'_> {
    /// The units of the network under a plan, and what they take.
    pub(crate) fn units(&self, plan: &PrecisionPlan) -> Result<Units, TuneError> {
        Ok(Units::of(&self.timed(plan)?))
    }

    /// What the whole network takes in floats and under a plan, by the shortest time of each step.
    pub fn takes(&self, plan: &PrecisionPlan) -> Result<BothMs, TuneError> {
        let steps = self.timed(plan)?;
        Ok(steps.map(|steps| steps.iter().map(|step| step.ms).sum()))
    }

    /// The steps in floats and under a plan; runs take turns, so that a busy machine is busy for both.
    fn timed(&self, plan: &PrecisionPlan) -> Result<[Vec<Timed>; 2], TuneError> {
        let Some(sample) = self.samples.first() else {
            return Err(TuneError::NoSamples);
        };
        let inputs = sample.taken_by(self.graph);
        let mut programs = [self.program(&PrecisionPlan::new())?, self.program(plan)?];
        let mut recordings = [Recording::default(), Recording::default()];
        for run in 0..=TIMED_RUNS {
            for (program, recording) in programs.iter_mut().zip(&mut recordings) {
                // The first run packs weights.
                let recording = (run > 0).then_some(recording);
                program.run_recorded(&inputs, recording)?;
            }
        }
        let [float, integer] = [0, 1].map(|at| shortest(&programs[at], &recordings[at]));
        Ok([float?, integer?])
    }
}

/// The shortest time of each step.
fn shortest(program: &Program, recording: &Recording) -> Result<Vec<Timed>, TuneError> {
    let mut ms_of: BTreeMap<usize, f64> = BTreeMap::new();
    for (step, elapsed) in recording.runs.iter().flat_map(Run::step_times) {
        let ms = elapsed.as_secs_f64() * 1e3;
        let least = ms_of.entry(step).or_insert(ms);
        *least = least.min(ms);
    }
    let Some(last) = recording.runs.last() else {
        return Err(TuneError::NoSamples);
    };
    let quantizer = format!(".{INPUT_QUANTIZER}");
    let mut steps = Vec::new();
    for info in program.step_infos(&last.bindings)? {
        let Some(&ms) = ms_of.get(&info.step) else {
            continue;
        };
        // A quantiser by itself belongs to the layer whose name it bears. One that a step does for the next layer joins nothing, or
        // else all layers were one unit.
        let own = info.name.strip_suffix(&quantizer).unwrap_or(&info.name);
        let absorbed = info.absorbed.iter().map(|(name, _)| name.as_str());
        let absorbed = absorbed.filter(|name| !name.ends_with(&quantizer));
        steps.push(Timed {
            nodes: [own]
                .into_iter()
                .chain(absorbed)
                .map(str::to_owned)
                .collect(),
            ms,
        });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(steps: &[(&[&str], f64)]) -> Vec<Timed> {
        let step = |(nodes, ms): &(&[&str], f64)| Timed {
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            ms: *ms,
        };
        steps.iter().map(step).collect()
    }

    /// One step of floats that falls apart, and two that integers compute in one.
    #[test]
    fn what_is_computed_in_one_step_is_one_unit() {
        let float = steps(&[
            (&["score", "gather", "mix"], 3.0),
            (&["short"], 2.0),
            (&["last", "sum"], 4.0),
            (&["pool"], 0.5),
        ]);
        let integer = steps(&[
            (&["gather"], 5.0),
            (&["mix"], 1.0),
            (&["score"], 1.5),
            (&["last", "short", "sum"], 2.5),
            (&["pool"], 0.25),
        ]);
        let mut units = Units::of(&[float, integer]);
        let [score, mix, short, last, pool, nobody] =
            ["score", "mix", "short", "last", "pool", "nobody"].map(|node| units.unit(node));
        assert_eq!((score, short), (mix, last));
        assert!(score != short && nobody != pool);
        let ms = [score, short, pool, nobody].map(|unit| units.ms(unit));
        assert_eq!(ms, [[3.0, 7.5], [6.0, 2.5], [0.5, 0.25], [0.0, 0.0]]);
    }
}
