//! Runs a network and compares the run with reference outputs.

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Mode, Options, Program};
use percept_graph::Tensor;
use percept_kernels::Cpu;
use percept_models::{Settings, zoo};

use crate::stored::Golden;

/// One network on one seeded input.
pub struct Case {
    model: percept_models::Model,
    mode: Mode,
    input: Tensor<'static>,
}

impl Case {
    /// A network of the zoo, in exact mode.
    pub fn new(model: &str, settings: &[&str]) -> Self {
        let settings = Settings::parse(settings.iter().copied()).expect("settings parse");
        let model = zoo::build(model, &settings).expect("the network builds");
        Self {
            model,
            mode: Mode::Exact,
            input: Tensor::scalar(0.0f32),
        }
    }

    /// Exact or fast.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The seeded input of this stream.
    pub fn input(self, stream: &str, shape: [usize; 4]) -> Self {
        let data = seeded_values(Family::Vision, stream, &shape);
        Self {
            input: Tensor::from_values(shape, data).expect("a seeded input"),
            ..self
        }
    }

    /// Runs, tapping these names.
    pub fn run(self, names: &[&str]) -> Ran {
        let mut graph = self.model.graph.clone();
        for name in names {
            let value = graph.find(name).expect("the name exists");
            graph = graph.with_output(&format!("tap.{name}"), value);
        }
        let weights = Arc::new(ModelWeights::seeded(Family::Vision, &self.model.graph));
        let options = Options {
            mode: self.mode,
            ..Options::default()
        };
        let mut program = Program::new(graph, weights, Cpu::new(2).expect("two threads"), options);
        let outputs = program
            .run(&[("image", &self.input)])
            .expect("the network runs");
        Ran {
            name: format!("{} {:?}", self.model.name, self.mode),
            outputs: outputs.to_tensors(),
        }
    }
}

/// What a run gave.
pub struct Ran {
    name: String,
    outputs: Vec<(String, Tensor<'static>)>,
}

impl Ran {
    fn output(&self, name: &str) -> &Tensor<'static> {
        let tapped = format!("tap.{name}");
        &self
            .outputs
            .iter()
            .find(|(output, _)| *output == tapped)
            .expect("it was tapped")
            .1
    }

    /// Compares whole tensors, absolutely.
    pub fn check_whole(&self, golden: &Golden, prefix: &str, names: &[&str], tolerance: f64) {
        for name in names {
            let expected = golden.values(&format!("{prefix}{name}"));
            let got = self.output(name);
            assert_eq!(
                Some(got.shape()),
                golden.shape(&format!("{prefix}{name}")).as_deref(),
                "{name}"
            );
            let indices: Vec<usize> = (0..expected.len()).collect();
            self.compare(
                &format!("{prefix}{name}"),
                &indices,
                &expected,
                got,
                tolerance,
            );
        }
    }

    /// Compares sampled values of a tensor, absolutely.
    pub fn check_summary(&self, golden: &Golden, stored: &str, name: &str, tolerance: f64) {
        let got = self.output(name);
        let shape = golden.indices(&format!("{stored}.shape"));
        assert_eq!(got.shape(), shape, "{stored}");
        let indices = golden.indices(&format!("{stored}.idx"));
        self.compare(
            stored,
            &indices,
            &golden.values(&format!("{stored}.val")),
            got,
            tolerance,
        );
    }

    /// Compares sampled values, relative to the tensor's standard deviation.
    pub fn check_summaries(&self, golden: &Golden, prefix: &str, names: &[&str], tolerance: f64) {
        for name in names {
            let stored = format!("{prefix}{name}");
            let stats = golden.values(&format!("{stored}.stats"));
            let deviation = f64::from(stats[1]);
            self.check_summary(golden, &stored, name, tolerance * deviation);
        }
    }

    fn compare(
        &self,
        what: &str,
        indices: &[usize],
        expected: &[f32],
        got: &Tensor<'_>,
        tolerance: f64,
    ) {
        assert!(
            !expected.is_empty() && indices.len() == expected.len(),
            "{what}: nothing to compare"
        );
        let mut worst = 0.0f64;
        for (&index, &want) in indices.iter().zip(expected) {
            let difference = (f64::from(want) - f64::from(got.to_f32()[index])).abs();
            worst = if difference.is_nan() {
                f64::INFINITY
            } else {
                worst.max(difference)
            };
        }
        let name = &self.name;
        println!("{name} {what}: largest difference {worst:.2e}, tolerance {tolerance:.2e}");
        assert!(
            worst <= tolerance,
            "{name} {what}: largest difference {worst:.3e} is past {tolerance:.3e}"
        );
    }
}
