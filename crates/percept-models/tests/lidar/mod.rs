//! Runs CenterPoint on points, for its tests.

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_engine::{Options, Program};
use percept_graph::{Graph, Tensor};
use percept_kernels::Cpu;
use percept_models::centerpoint::{CenterPoint, inputs};

/// The range of the small generated cloud: 24 m square.
pub const SYNTH: CenterPoint = CenterPoint {
    range_m: 12.0,
    ..CenterPoint::FINE
};

/// The network with these voxels.
pub fn network(config: CenterPoint) -> Graph {
    let grid = config.grid().expect("a grid");
    config.graph(&grid).expect("the network builds")
}

/// What a run gave, by name.
pub struct Outputs(Vec<(String, Tensor<'static>)>);

impl Outputs {
    /// One output, which must be there.
    pub fn get(&self, name: &str) -> &Tensor<'static> {
        self.find(name)
            .unwrap_or_else(|| panic!("no output {name}"))
    }

    /// One output, if it is there.
    pub fn find(&self, name: &str) -> Option<&Tensor<'static>> {
        let found = self.0.iter().find(|(output, _)| output == name);
        found.map(|(_, tensor)| tensor)
    }
}

/// Runs a network with seeded weights on these samples.
pub fn run(graph: Graph, samples: &[&[f32]], options: Options, threads: usize) -> Outputs {
    let weights = Arc::new(ModelWeights::seeded(&graph));
    let cpu = Cpu::new(threads).expect("threads");
    let mut program = Program::new(graph, weights, cpu, options);
    let inputs = inputs(samples).expect("points of five values");
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    Outputs(program.run(&named).expect("it runs").to_tensors())
}
