//! Runs CenterPoint on points, for its tests.

use std::sync::Arc;

use percept_data::seeded::Family;
use percept_data::{Example, ModelWeights, Sample};
use percept_engine::{Observe, Options, Program};
use percept_graph::{Graph, Tensor, WeightSource};
use percept_kernels::Cpu;
use percept_models::answer::{Answer, FoundBox};
use percept_models::centerpoint::CenterPoint;
use percept_models::{Settings, zoo};

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

    /// The boxes of each of `samples`.
    pub fn boxes(&self, samples: usize) -> Vec<Vec<FoundBox>> {
        let model = zoo::build("centerpoint", &Settings::none()).expect("it is in the zoo");
        let outputs = self.0.iter();
        let outputs: Vec<(&str, Tensor<'_>)> = outputs
            .map(|(name, tensor)| (name.as_str(), tensor.borrowed()))
            .collect();
        let samples = vec![
            Sample {
                name: String::new(),
                parts: Vec::new()
            };
            samples
        ];
        let answers = model.read(&outputs, &example(&[]), &samples);
        let boxes = |answer: Answer| match answer {
            Answer::Boxes(boxes) => boxes.found,
            other => panic!("{other:?}"),
        };
        answers.expect("boxes").into_iter().map(boxes).collect()
    }
}

/// The inputs for one cloud of rows x, y, z, intensity, age.
fn example(points: &[f32]) -> Example {
    let width = CenterPoint::POINT_CHANNELS;
    let count = points.len() / width;
    let points = Tensor::from_values([count, width], points.to_vec()).expect("rows of five");
    let counts = Tensor::from_values([1], vec![count as i32]).expect("one number");
    Example::of_one([("points", points), ("counts", counts)])
}

/// Runs a network with seeded weights on these samples.
pub fn run(graph: Graph, samples: &[&[f32]], options: Options, threads: usize) -> Outputs {
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    run_on(graph, weights, samples, options, threads)
}

/// Runs a network with these weights on these samples.
pub fn run_on(
    graph: Graph,
    weights: Arc<dyn WeightSource>,
    samples: &[&[f32]],
    options: Options,
    threads: usize,
) -> Outputs {
    run_observed(graph, weights, samples, options, threads, &mut |_, _| {})
}

/// The same, showing what each layer with weights is about to multiply.
pub fn run_observed(
    graph: Graph,
    weights: Arc<dyn WeightSource>,
    samples: &[&[f32]],
    options: Options,
    threads: usize,
    observe: &mut Observe<'_>,
) -> Outputs {
    let cpu = Cpu::new(threads).expect("threads");
    let mut program = Program::new(graph, weights, cpu, options);
    let inputs = Example::batch(samples.iter().map(|points| example(points)).collect());
    let inputs = inputs.expect("points of five values").tensors;
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let outputs = program.run_observed(&named, observe);
    Outputs(outputs.expect("it runs").to_tensors())
}
