//! Probes: the time of every step of every recorded run, and what layers multiply.

use std::collections::BTreeMap;
use std::time::Duration;

use percept_graph::{Bindings, Node};

/// Hears of each layer with weights, and what it is about to multiply: the numbers of its first operand.
pub type Observe<'a> = dyn FnMut(&Node, &[f32]) + 'a;

/// When a step ran and for how long.
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
    /// Steps in order.
    pub steps: Vec<StepTime>,
    /// The whole run, from the call to the outputs.
    pub total: Duration,
    /// Every size, those that the run itself defined included.
    pub bindings: Bindings,
    /// The share of its tiles that each step computed, where empty ones were skipped.
    pub computed: BTreeMap<usize, f64>,
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
        let steps = std::mem::take(&mut self.current);
        self.runs.push(Run {
            steps,
            total,
            bindings: bindings.clone(),
            computed,
        });
    }
}
