//! A training step: a program that owns the state it moves.

use std::sync::Arc;

use percept_graph::{Graph, Tensor, WeightSource};
use percept_kernels::Cpu;

use crate::{EngineError, Options, Outputs, Program, Recording};

/// A training graph ready to run again and again: parameters, running statistics and moments live here, and every step moves
/// them in place.
pub struct TrainStep {
    program: Program,
}

impl TrainStep {
    /// Makes a step of a training graph ([`percept_graph::Training::graph`]); the weights are where parameters start.
    pub fn new(
        graph: Graph,
        weights: Arc<dyn WeightSource>,
        cpu: Cpu,
        options: Options,
    ) -> Result<Self, EngineError> {
        let mut program = Program::new(graph, weights, cpu, options);
        program.load_state()?;
        Ok(Self { program })
    }

    /// Runs one step: the state moves, and the graph's outputs (the loss, for one) come out.
    pub fn step(&mut self, inputs: &[(&str, &Tensor<'_>)]) -> Result<Outputs<'_>, EngineError> {
        self.program.run(inputs)
    }

    /// Runs one step, noting the time of every node in `recording`.
    pub fn step_recorded(
        &mut self,
        inputs: &[(&str, &Tensor<'_>)],
        recording: &mut Recording,
    ) -> Result<Outputs<'_>, EngineError> {
        self.program.run_recorded(inputs, Some(recording))
    }

    /// Bytes of values and state that inputs of these shapes are known to need before a step.
    pub fn planned_bytes(&mut self, shapes: &[(&str, Vec<usize>)]) -> Result<usize, EngineError> {
        self.program.planned_bytes(shapes)
    }

    /// The program that runs it: its graph, its profile, its memory.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The names of all state, in the graph's order.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.program
            .graph()
            .states()
            .iter()
            .map(|s| s.name.as_str())
    }

    /// The state of this name, as it is now.
    pub fn state(&mut self, name: &str) -> Result<Tensor<'static>, EngineError> {
        self.program.state(name)
    }

    /// Sets the state of this name: what a checkpoint does.
    pub fn set_state(&mut self, name: &str, value: &Tensor<'_>) -> Result<(), EngineError> {
        self.program.set_state(name, value)
    }
}
