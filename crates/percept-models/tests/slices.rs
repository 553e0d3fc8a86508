//! Batches on bytes that are computed in slices against the same batches at once, network by network: the same bits.

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::seeded_values;
use percept_engine::{
    Memory, Options, PrecisionPlan, Program, Quantization, RoundedWeights, is_contraction,
};
use percept_graph::{Graph, Sign, Tensor};
use percept_kernels::Cpu;
use percept_models::{Model, Settings, zoo};

/// Networks of maps, with samples, and sizes of pictures where they take others, some of which are no whole tiles.
const NETWORKS: [(&str, usize, Option<[usize; 2]>); 6] = [
    ("resnet18", 8, None),
    ("resnet18", 12, Some([171, 203])),
    ("resnet50", 8, Some([197, 161])),
    ("efficientnet-b0", 12, Some([193, 127])),
    ("paco", 8, None),
    ("lcpr-small", 12, None),
];

fn inputs(
    model: &Model,
    samples: usize,
    size: Option<[usize; 2]>,
) -> Vec<(&'static str, Tensor<'static>)> {
    let shapes = model.input_shapes(samples).into_iter();
    let tensors = shapes.map(|(name, mut shape)| {
        if let (Some(size), [.., height, width]) = (size, &mut shape[..]) {
            [*height, *width] = size;
        }
        let values = seeded_values(model.family, &format!("input.{name}"), &shape);
        (name, Tensor::from_values(shape, values).unwrap())
    });
    tensors.collect()
}

fn on_bytes(graph: Graph) -> Graph {
    let layers = graph.nodes().iter().filter(|node| is_contraction(node));
    let plan = layers.fold(PrecisionPlan::new(), |plan, node| {
        let grid = Quantization::dynamic(8).with_input(4.0, Sign::Signed);
        plan.with(&node.name, grid)
    });
    plan.quantize(graph).unwrap()
}

#[test]
fn slices_have_the_bits_of_the_batch() {
    for (name, samples, size) in NETWORKS {
        let model = zoo::build(name, &Settings::none()).unwrap();
        let graph = on_bytes(model.graph.clone());
        let inputs = inputs(&model, samples, size);
        let inputs: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
        let shapes: Vec<_> = inputs
            .iter()
            .map(|(n, t)| (*n, t.shape().to_vec()))
            .collect();
        let weights = Arc::new(ModelWeights::seeded(model.family, &graph));
        let weights = Arc::new(RoundedWeights::new(weights, &graph));
        let run = |memory: Memory, threads: usize| {
            let options = Options {
                memory,
                ..Options::default()
            };
            let cpu = Cpu::new(threads).unwrap();
            let mut program = Program::new(graph.clone(), weights.clone(), cpu, options);
            let sizes = program.prepare(&shapes).unwrap();
            let infos = program.step_infos(&sizes).unwrap().into_iter();
            let turns = infos.filter(|info| info.turns > 1).count();
            (program.run(&inputs).unwrap().to_tensors(), turns)
        };
        let (whole, turns) = run(Memory::Keep, 1);
        assert_eq!(turns, 0, "{name}: what is kept is kept whole");
        for threads in 1..=3 {
            let (sliced, turns) = run(Memory::Frugal, threads);
            assert!(turns > 1, "{name}: no step takes turns");
            for ((output, sliced), (_, whole)) in sliced.iter().zip(&whole) {
                assert!(sliced.bytes() == whole.bytes(), "{name}: {output}");
            }
        }
    }
}
