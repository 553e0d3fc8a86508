//! Gradients against slopes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percept_data::seeded::{Family, seeded_values};
use percept_engine::run_reference;
use percept_graph::{
    Builder, Dim, Graph, Reduce, ReduceKind, Tensor, ValueId, WeightError, WeightSource,
    differentiate,
};
use percept_models::randlanet::{Cloud, inputs};

use super::{VARIANTS, cloud, in_order, small};

/// Slopes of Σ logits · (fixed numbers) by a value of every parameter, in f64, against the gradients.
#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (variant, in_training) in VARIANTS
        .into_iter()
        .flat_map(|variant| [(variant, false), (variant, true)])
    {
        let graph = small(variant).graph().expect("it builds");
        check_gradients(&format!("{variant:?} {in_training}"), graph, in_training);
    }
}

fn check_gradients(what: &str, graph: Graph, in_training: bool) {
    let logits = graph.find("logits").expect("logits");
    let mut b = Builder::resume(graph);
    let probe = b.input("probe", [Dim::symbol("P"), 3.into()]);
    let weighted = b.mul("weighted", logits, probe);
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![0, 1],
    };
    let loss = b.call("sum", sum, &[weighted]);
    let loss = b.reshape("loss", loss, []);
    b.output("loss", loss);
    let graph = b.finish().expect("it builds");
    let graph = match in_training {
        true => graph.in_training(),
        false => graph.with_state(),
    };
    let states = graph
        .states()
        .iter()
        .filter(|state| !state.name.contains(".running_"));
    let states: Vec<(String, ValueId)> = states
        .map(|state| (state.name.clone(), state.value))
        .collect();
    let values: Vec<ValueId> = states.iter().map(|(_, value)| *value).collect();
    let mut made = differentiate(graph, loss, &values).expect("every op has a gradient");
    for (name, value) in &states {
        let gradient = made.gradients[value];
        made.graph = made.graph.with_output(&format!("grad {name}"), gradient);
    }
    let points = 30;
    let rows = cloud("input.gradient", points);
    let priority = in_order(points);
    let [points_in, priority_in, counts_in] = inputs(
        3,
        &[Cloud {
            rows: &rows,
            priority: &priority,
        }],
    )
    .expect("whole points");
    let probe = Tensor::from_values([points, 3], cloud("input.probe", points)).expect("a probe");
    let named: [(&str, &Tensor<'_>); 4] = [
        (points_in.0, &points_in.1),
        (priority_in.0, &priority_in.1),
        (counts_in.0, &counts_in.1),
        ("probe", &probe),
    ];
    let weights = Moved::default();
    let run = |weights: &Moved| -> BTreeMap<String, Vec<f64>> {
        let outputs = run_reference::<f64>(&made.graph, weights, &named).expect("it runs");
        outputs
            .into_iter()
            .map(|(name, tensor)| (name, tensor.data))
            .collect()
    };
    let analytic = run(&weights);
    let mut checked = 0;
    for (name, _) in &states {
        let gradient = &analytic[&format!("grad {name}")];
        let index = gradient.len() / 2;
        let [below, above] = [-STEP, STEP].map(|step| {
            let moved = Moved(Some((name.clone(), index, step)));
            run(&moved)["loss"][0]
        });
        let slope = (above - below) / (2.0 * f64::from(STEP));
        let got = gradient[index];
        assert!(
            (got - slope).abs() <= 1e-3 * slope.abs().max(1.0),
            "{what} {name}[{index}]: gradient {got}, slope {slope}"
        );
        checked += 1;
    }
    assert!(checked > 50, "{what}: {checked} gradients");
}

/// A power of two, so that moved weights are exact.
const STEP: f32 = 1.0 / (1 << 17) as f32;

/// Seeded weights, rounded to multiples of the step, with one of them moved.
#[derive(Default)]
pub(crate) struct Moved(Option<(String, usize, f32)>);

impl WeightSource for Moved {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let mut values = seeded_values(Family::Vision, name, shape);
        values
            .iter_mut()
            .for_each(|value| *value = (*value / STEP).round() * STEP);
        if let Some((_, index, step)) = self.0.as_ref().filter(|(moved, _, _)| moved == name) {
            values[*index] += step;
        }
        Ok(Cow::Owned(values))
    }

    fn describe(&self) -> String {
        "one weight moved".to_owned()
    }
}
