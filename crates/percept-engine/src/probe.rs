//! Probes: the time of every step of every recorded run, and what layers multiply.

use std::collections::BTreeMap;
use std::time::Duration;

use percept_graph::{Bindings, Node};

/// Hears of each layer with weights, and what it is about to multiply: the numbers of its first operand.
pub type Observe<'a> = dyn FnMut(&Node, &[f32]) + 'a;

/// When a step ran and for how long: once a run, or in several turns where a batch is computed in slices.
#[derive(Clone, Copy, Debug)]
pub struct StepTime {
    /// Position of the step in the program.
    pub step: usize,
    /// Since the run began.
    pub start: Duration,
    /// Wall time.
    pub elapsed: Duration,
}

/// One recorded run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Calls of steps in order.
    pub calls: Vec<StepTime>,
    /// The whole run, from the call to the outputs.
    pub total: Duration,
    /// Every size, those that the run itself defined included.
    pub bindings: Bindings,
    /// The share of its tiles that each step computed, where empty ones were skipped.
    pub computed: BTreeMap<usize, f64>,
}

impl Run {
    /// How long each step took, all of its turns together.
    pub fn step_times(&self) -> BTreeMap<usize, Duration> {
        let mut times = BTreeMap::new();
        for time in &self.calls {
            *times.entry(time.step).or_default() += time.elapsed;
        }
        times
    }
}

/// Runs recorded one after the other.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    current: Vec<StepTime>,
    /// Finished runs.
    pub runs: Vec<Run>,
}

impl Recording {
    pub(crate) fn push(&mut self, step: usize, start: Duration, elapsed: Duration) {
        self.current.push(StepTime {
            step,
            start,
            elapsed,
        });
    }

    pub(crate) fn finish(
        &mut self,
        total: Duration,
        bindings: &Bindings,
        computed: BTreeMap<usize, f64>,
    ) {
        let calls = std::mem::take(&mut self.current);
        self.runs.push(Run {
            calls,
            total,
            bindings: bindings.clone(),
            computed,
        });
    }
}
