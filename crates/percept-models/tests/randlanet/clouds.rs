//! Clouds of every sort: batches, orders, input that cannot be, points that coincide.

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::Family;
use percept_engine::{Memory, Mode, Options, Program};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::randlanet::{Cloud, Variant, inputs};

use super::{VARIANTS, cloud, compare, logits, options, small};

#[test]
fn clouds_of_a_batch_are_labelled_as_if_alone() {
    let sizes = [40, 1, 300, 3, 0, 17];
    let clouds: Vec<Vec<f32>> = sizes
        .iter()
        .map(|&size| cloud(&format!("input.{size}"), size))
        .collect();
    for variant in VARIANTS {
        let network = small(variant);
        for memory in [Memory::Frugal, Memory::Keep] {
            let options = options(Mode::Exact, memory);
            let together = logits(
                &network,
                &clouds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                options,
            );
            let alone: Vec<f32> = clouds
                .iter()
                .flat_map(|cloud| logits(&network, &[cloud], options))
                .collect();
            compare(&format!("{variant:?} {memory:?}"), &together, &alone, 1e-5);
        }
    }
}

/// The order of the rows decides which points are kept, unless priorities do.
#[test]
fn a_priority_does_what_the_order_of_the_rows_did() {
    let network = small(Variant::Faithful);
    let rows = cloud("input.order", 100);
    let turned: Vec<f32> = rows
        .as_chunks::<3>()
        .0
        .iter()
        .rev()
        .flatten()
        .copied()
        .collect();
    let options = options(Mode::Exact, Memory::Frugal);
    let expected = logits(&network, &[&rows], options);
    let priority: Vec<i32> = (0..100).rev().collect();
    let inputs = inputs(
        3,
        &[Cloud {
            rows: &turned,
            priority: &priority,
        }],
    )
    .expect("whole points");
    let graph = network.graph().expect("it builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let mut program = Program::new(graph, weights, Cpu::new(1).expect("a thread"), options);
    let named: Vec<(&str, &Tensor<'_>)> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    let outputs = program.run(&named).expect("it runs").to_tensors();
    let got: Vec<f32> = outputs[0]
        .1
        .to_f32()
        .chunks(3)
        .rev()
        .flatten()
        .copied()
        .collect();
    compare("turned", &got, &expected, 1e-5);
}

#[test]
fn input_that_cannot_be_is_refused() {
    let network = small(Variant::Faithful);
    let graph = network.graph().expect("it builds");
    let weights = Arc::new(ModelWeights::seeded(Family::Vision, &graph));
    let mut program = Program::new(
        graph,
        weights,
        Cpu::new(1).expect("a thread"),
        Options::default(),
    );
    let mut message = |points: Vec<f32>, priority: Vec<i32>, counts: Vec<i32>| {
        let rows = points.len() / 3;
        let tensors = [
            Tensor::from_values([rows, 3], points).expect("rows"),
            Tensor::from_values([rows], priority).expect("ranks"),
            Tensor::from_values([counts.len()], counts).expect("counts"),
        ];
        let named: Vec<(&str, &Tensor<'_>)> = ["points", "priority", "counts"]
            .into_iter()
            .zip(&tensors)
            .collect();
        program.run(&named).err().expect("refused").to_string()
    };
    let two = || vec![0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    assert!(message(vec![0.0, f32::NAN, 0.0], vec![0], vec![1]).contains("point 0: y is NaN"));
    assert!(message(two(), vec![0, 0], vec![2]).contains("comes twice"));
    assert!(message(two(), vec![0, 2], vec![2]).contains("priority 2"));
    assert!(message(two(), vec![0, 1], vec![3]).contains("more than 2 points"));
    assert!(message(two(), vec![0, 0], vec![1]).contains("fewer than 2 points"));
    assert!(message(two(), vec![0, 1], vec![-1]).contains("counts [-1]"));
}

#[test]
fn points_that_coincide_and_clouds_far_away_have_answers() {
    for variant in VARIANTS {
        let network = small(variant);
        let same = [1.0f32; 3 * 50];
        let far: Vec<f32> = cloud("input.far", 200).iter().map(|v| v + 1e6).collect();
        let got = logits(&network, &[&same, &far], Options::default());
        assert!(
            got.len() == 250 * 3 && got.iter().all(|v| v.is_finite()),
            "{variant:?}"
        );
        assert!(
            got[..150].chunks(3).all(|row| row == &got[..3]),
            "{variant:?}: equal points, equal labels"
        );
    }
}
