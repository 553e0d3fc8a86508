//! Checks a graph's gradients against central differences in f64, and the fast engine against the slow one.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use percept_engine::{Options, Program, RealTensor, run_reference};
use percept_graph::{
    Builder, Dim, Graph, GraphError, Op, Reduce, ReduceKind, Tensor, ValueId, WeightError,
    WeightSource, differentiate,
};
use percept_kernels::Cpu;

use crate::hashed::{hashed, tensor};

/// Weights that can be moved one by one.
#[derive(Default)]
struct Movable {
    tensors: Mutex<BTreeMap<String, Vec<f32>>>,
}

impl WeightSource for Movable {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let mut tensors = self.tensors.lock().expect("nobody panics holding it");
        let values = tensors.entry(name.to_owned()).or_insert_with(|| {
            // Variances are positive.
            let positive = name.ends_with("running_var");
            let value = |i| hashed(name, i) + if positive { 1.5 } else { 0.0 };
            (0..shape.iter().product()).map(value).collect()
        });
        Ok(Cow::Owned(values.clone()))
    }

    fn describe(&self) -> String {
        "movable".to_owned()
    }
}

/// A network of one op with some inputs; those in `fixed` get no gradient.
pub struct Case {
    builder: RefCell<Builder>,
    inputs: Vec<(String, Tensor<'static>)>,
    differentiated: Vec<ValueId>,
    late: Option<(String, Tensor<'static>)>,
}

impl Case {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            builder: RefCell::new(Builder::new("Case")),
            inputs: Vec::new(),
            differentiated: Vec::new(),
            late: None,
        }
    }

    /// An input that gets a gradient.
    pub fn input(&mut self, name: &str, value: Tensor<'static>) -> ValueId {
        let id = self.fixed(name, value);
        self.differentiated.push(id);
        id
    }

    /// An input without gradient.
    pub fn fixed(&mut self, name: &str, value: Tensor<'static>) -> ValueId {
        let shape: Vec<Dim> = value.shape().iter().map(|&size| Dim::from(size)).collect();
        self.inputs.push((name.to_owned(), value));
        self.builder.get_mut().input(name, shape)
    }

    /// An input of integers.
    pub fn integers(&mut self, name: &str, shape: &[usize], values: &[i32]) -> ValueId {
        let value = Tensor::from_values(shape, values.to_vec()).unwrap();
        self.inputs.push((name.to_owned(), value));
        let shape: Vec<Dim> = shape.iter().map(|&size| Dim::from(size)).collect();
        self.builder.get_mut().integer_input(name, shape)
    }

    /// The value of an input that a rewrite will add.
    pub fn late_input(&mut self, name: &str, value: Tensor<'static>) {
        self.late = Some((name.to_owned(), value));
    }

    /// Adds nodes of any kind.
    pub fn build<T>(&mut self, body: impl FnOnce(&mut Builder) -> T) -> T {
        body(self.builder.get_mut())
    }

    /// Checks the gradients of one op's first output, in training or with frozen statistics.
    pub fn check(mut self, op: impl Into<Op>, inputs: &[ValueId]) {
        let y = self.build(|b| b.leaf("layer", op, inputs));
        self.check_value(y, true);
    }

    /// Checks the gradients of Σ y · (fixed random numbers) by every input and every parameter.
    pub fn check_value(self, y: ValueId, in_training: bool) {
        let Case {
            builder,
            mut inputs,
            differentiated,
            late,
        } = self;
        let mut b = builder.into_inner();
        let shape = b.shape(y);
        let probe = b.input("probe", shape.clone());
        let weighted = b.mul("weighted", y, probe);
        let axes = (0..shape.len()).collect();
        let kind = ReduceKind::Sum;
        let loss = b.call("sum", Reduce { kind, axes }, &[weighted]);
        let loss = b.reshape("loss", loss, []);
        b.output("loss", loss);
        let graph = b.finish().expect("the case builds");
        let graph = match in_training {
            true => graph.in_training(),
            false => graph.with_state(),
        };
        let sizes: Vec<usize> = shape
            .iter()
            .map(|dim| dim.as_const().unwrap_or(0) as usize)
            .collect();
        inputs.push(("probe".to_owned(), tensor("probe", &sizes)));
        inputs.extend(late);
        compare(graph, loss, differentiated, inputs);
    }
}

/// The analytic gradients against differences of the loss.
fn compare(
    graph: Graph,
    loss: ValueId,
    inputs_moved: Vec<ValueId>,
    inputs: Vec<(String, Tensor<'static>)>,
) {
    let trainable = graph.states().iter().filter(|state| {
        !state.name.ends_with("running_mean") && !state.name.ends_with("running_var")
    });
    let states: Vec<(String, ValueId)> = trainable.map(|s| (s.name.clone(), s.value)).collect();
    let moved: Vec<ValueId> = inputs_moved
        .iter()
        .copied()
        .chain(states.iter().map(|s| s.1))
        .collect();
    let mut result =
        differentiate(graph, loss, &moved).unwrap_or_else(|error: GraphError| panic!("{error}"));
    for (&value, &gradient) in &result.gradients {
        result.graph = result
            .graph
            .with_output(&format!("grad {}", value.index()), gradient);
    }
    let weights = Arc::new(Movable::default());
    let mut inputs = inputs;
    let run = |weights: &Movable,
               inputs: &[(String, Tensor<'static>)]|
     -> BTreeMap<String, RealTensor<f64>> {
        let inputs: Vec<(&str, &Tensor<'_>)> =
            inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let outputs = run_reference::<f64>(&result.graph, weights, &inputs);
        outputs
            .unwrap_or_else(|error| panic!("{error}"))
            .into_iter()
            .collect()
    };
    let analytic = run(&weights, &inputs);
    check_fast_engine(&result.graph, &weights, &inputs, &analytic);
    let loss_of = |outputs: BTreeMap<String, RealTensor<f64>>| outputs["loss"].data[0];
    let mut checked = 0;
    let mut check =
        |name: &str, value: ValueId, len: usize, slope: &mut dyn FnMut(usize) -> f64| {
            let gradient = analytic.get(&format!("grad {}", value.index()));
            let gradient = gradient.unwrap_or_else(|| panic!("{name} has no gradient"));
            assert_eq!(gradient.data.len(), len, "{name}");
            let largest = gradient.data.iter().fold(1.0f64, |m, g| m.max(g.abs()));
            for (index, &got) in gradient.data.iter().enumerate() {
                let expected = slope(index);
                assert!(
                    (got - expected).abs() <= 2e-5 * largest,
                    "{name}[{index}]: gradient {got}, slope {expected}"
                );
                checked += 1;
            }
        };
    for value in inputs_moved {
        let position = result
            .graph
            .inputs()
            .iter()
            .position(|i| i.value == value)
            .expect("an input");
        let name = inputs[position].0.clone();
        let len = inputs[position].1.element_count();
        check(&name, value, len, &mut |index| {
            let centre = inputs[position].1.values::<f32>().unwrap()[index];
            let [low, high] = [centre - STEP, centre + STEP];
            let [below, above] = [low, high].map(|at| {
                inputs[position].1.values_mut::<f32>().unwrap()[index] = at;
                loss_of(run(&weights, &inputs))
            });
            inputs[position].1.values_mut::<f32>().unwrap()[index] = centre;
            (above - below) / (f64::from(high) - f64::from(low))
        });
    }
    for (name, value) in states {
        let len = weights.tensors.lock().unwrap()[&name].len();
        let set = |index: usize, at: f32| {
            weights
                .tensors
                .lock()
                .unwrap()
                .get_mut(&name)
                .expect("it was read")[index] = at;
        };
        check(&name, value, len, &mut |index| {
            let centre = weights.tensors.lock().unwrap()[&name][index];
            let [low, high] = [centre - STEP, centre + STEP];
            let [below, above] = [low, high].map(|at| {
                set(index, at);
                loss_of(run(&weights, &inputs))
            });
            set(index, centre);
            (above - below) / (f64::from(high) - f64::from(low))
        });
    }
    assert!(checked > 0, "nothing to check");
}

/// The fast engine's loss and gradients against the reference's, and its bits at one thread against those at two.
fn check_fast_engine(
    graph: &Graph,
    weights: &Arc<Movable>,
    inputs: &[(String, Tensor<'static>)],
    expected: &BTreeMap<String, RealTensor<f64>>,
) {
    let inputs: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let [one, two] = [1, 2].map(|threads| {
        let (weights, cpu) = (Arc::clone(weights), Cpu::new(threads).unwrap());
        let mut program = Program::new(graph.clone(), weights, cpu, Options::default());
        let outputs = program.run(&inputs);
        outputs
            .unwrap_or_else(|error| panic!("{error}"))
            .to_tensors()
    });
    for ((name, got), (_, again)) in one.iter().zip(&two) {
        let expected = &expected[name];
        assert_eq!(got.shape(), expected.shape, "{name}");
        assert_eq!(got, again, "{name} at two threads");
        let largest = expected.data.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        for (index, (&expected, got)) in expected.data.iter().zip(&*got.to_f64()).enumerate() {
            assert!(
                (got - expected).abs() <= FAST_TOLERANCE * largest,
                "{name}[{index}]: {got} on the fast engine, {expected} on the reference"
            );
        }
    }
}

/// What f32 and Winograd may cost, as a share of the largest number.
const FAST_TOLERANCE: f64 = 1e-3;

/// Half the distance between the two losses of a difference.
const STEP: f32 = 1e-4;
