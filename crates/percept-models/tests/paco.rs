//! Parity of PaCo-2 with reference outputs in f64: peaks, matches, negatives, distances, losses and gradients of both
//! objectives in all three forms.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::stored::{Golden, shared};
use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Options, Program};
use percept_graph::{Graph, Tensor, ValueId, WeightError, WeightSource, differentiate};
use percept_kernels::Cpu;
use percept_models::paco::{Backbone, LABELS, LossForm, Paco};

/// Relative to a tensor's largest value. Features and parts are f32, and a ridge of 1e-5 enlarges their rounding.
const PUBLISHED: f64 = 1e-3;
const STABLE: f64 = 2e-5;

const FORMS: [LossForm; 3] = [LossForm::Exact, LossForm::Gram, LossForm::Naive];

/// Seeded weights, except where the references have others: a spatial weight of one, and classes not seen yet.
struct ReferenceWeights(ModelWeights);

impl WeightSource for ReferenceWeights {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let elements = shape.iter().product();
        match name {
            "part_sampler.spatial_conv.weight" => Ok(vec![1.0; elements].into()),
            "class_prototypes" | "class_counts" => Ok(vec![0.0; elements].into()),
            _ => self.0.read(name, shape),
        }
    }

    fn describe(&self) -> String {
        "the weights of the references".to_owned()
    }
}

struct Case {
    name: &'static str,
    images: usize,
    channels: usize,
    d: usize,
    classes: usize,
}

const SMALL: Case = Case {
    name: "small",
    images: 4,
    channels: 32,
    d: 16,
    classes: 10,
};
const SEED: Case = Case {
    name: "seed",
    images: 8,
    channels: 128,
    d: 64,
    classes: 200,
};

impl Case {
    /// The maps of both views, one behind the other.
    fn features(&self) -> Tensor<'static> {
        let shape = [self.images, self.channels, 7, 7];
        let stream = |part: &str| {
            let name = format!("input.paco.{}.{part}", self.name);
            seeded_values(Family::Vision, &name, &shape)
        };
        let (first, noise) = (stream("f1"), stream("noise"));
        let noisy = first.iter().zip(&noise).map(|(x, n)| x + 0.3f32 * n);
        let both = first.iter().copied().chain(noisy);
        let values: Vec<f32> = both.map(|x| x.max(0.0)).collect();
        Tensor::from_values([2 * self.images, self.channels, 7, 7], values).expect("two maps")
    }

    /// Runs the loss with its gradients: outputs by the names of the reference.
    fn run(&self, paco: &Paco, loss: &str, threads: usize) -> Vec<(String, Tensor<'static>)> {
        let network = paco.loss_graph(self.channels).expect("the loss builds");
        let graph = network.clone().with_state();
        let taps = [
            ("peaks", "part_sampler.peaks"),
            ("Z", "parts"),
            ("Sigma", "covariance"),
            ("match", "pac.matching"),
            ("negatives", "pac.negatives"),
            ("d_pos", "pac.positive_distance"),
            ("d_neg", "pac.negative_distance"),
        ];
        let taps: Vec<(String, ValueId)> = taps
            .iter()
            .map(|(name, node)| {
                (
                    (*name).to_owned(),
                    graph.find(node).expect("the node exists"),
                )
            })
            .collect();
        let loss = graph.find(loss).expect("a loss");
        let features = graph.find("features").expect("features");
        let states = graph.states().to_vec();
        let wrt = states.iter().map(|state| state.value).chain([features]);
        let wrt: Vec<ValueId> = wrt.collect();
        let result = differentiate(graph, loss, &wrt).expect("the loss has gradients");
        let mut graph: Graph = result.graph;
        for (name, value) in taps {
            graph = graph.with_output(&name, value);
        }
        let gradient = |value: &ValueId| result.gradients.get(value).copied();
        for state in &states {
            if let Some(gradient) = gradient(&state.value) {
                graph = graph.with_output(&format!("grad.{}", state.name), gradient);
            }
            if state.next != state.value {
                graph = graph.with_output(&format!("after.{}", state.name), state.next);
            }
        }
        graph = graph.with_output("grad.features", gradient(&features).expect("features"));

        let weights = Arc::new(ReferenceWeights(ModelWeights::seeded(
            Family::Vision,
            &network,
        )));
        let cpu = Cpu::new(threads).expect("some threads");
        let mut program = Program::new(graph, weights, cpu, Options::default());
        let labels: Vec<i32> = (0..self.images as i32).collect();
        let labels = Tensor::from_values([self.images], labels).expect("a label an image");
        let inputs = [("features", &self.features()), (LABELS, &labels)];
        let outputs = program.run(&inputs).expect("the loss runs");
        outputs.to_tensors()
    }

    fn published(&self, golden: &Golden, form: LossForm) {
        let paco = Paco {
            d: self.d,
            classes: self.classes,
            loss: form,
            ..Paco::PUBLISHED
        };
        let outputs = self.run(&paco, "loss", 2);
        let check = Check::new(golden, format!("{}.f64.", self.name), form, &outputs);
        check.places("match", &["match"]);
        check.places("negatives", &["neg_index_in_dedup_pool"]);
        check.places("peaks", &["peaks1", "peaks2"]);
        check.values("Z", &["Z1t", "Z2t"], 1e-6);
        check.prefix("Sigma", "Sigma1_b0", 1e-6);
        check.values("d_pos", &["d_pos"], PUBLISHED);
        check.values("d_neg", &["d_neg"], PUBLISHED);
        check.values("logits", &["logits"], 1e-6);
        check.values("ce", &["loss.ce"], 1e-6);
        check.values("pac", &["loss.pac"], PUBLISHED);
        check.values("soc", &["loss.soc"], 1e-6);
        check.values("loss", &["loss.total"], PUBLISHED);
        check.features("grad", PUBLISHED);
        let weights = [
            "dim_reduction.weight",
            "classifier.weight",
            "classifier.bias",
        ];
        for name in weights.map(|name| format!("grad.{name}")) {
            check.sampled(&name, &name, 0, PUBLISHED);
        }

        let outputs = self.run(&paco, "pac", 2);
        let check = Check::new(golden, format!("{}.f64.", self.name), form, &outputs);
        check.features("gradpac", PUBLISHED);
        let reduction = "dim_reduction.weight";
        check.sampled(
            &format!("grad.{reduction}"),
            &format!("gradpac.{reduction}"),
            0,
            PUBLISHED,
        );
    }

    fn stable(&self, golden: &Golden, form: LossForm) {
        let paco = Paco {
            d: self.d,
            classes: self.classes,
            loss: form,
            window: 3,
            ..Paco::STABLE
        };
        let outputs = self.run(&paco, "loss", 2);
        let check = Check::new(golden, format!("{}.f64.stable.", self.name), form, &outputs);
        check.places("match", &["match"]);
        check.places("peaks", &["peaks1", "peaks2"]);
        check.prefix("Z", "Z1", 1e-6);
        for (name, stored) in [
            ("d_pos", "d_pos"),
            ("d_neg", "d_neg"),
            ("ce", "loss.ce"),
            ("pac", "loss.pac"),
            ("soc", "loss.soc"),
            ("loss", "loss.total"),
        ] {
            check.values(name, &[stored], STABLE);
        }
        check.features("grad", STABLE);
        for name in ["grad.dim_reduction.weight", "grad.classifier.weight"] {
            check.sampled(name, name, 0, STABLE);
        }
        let counts = check.output("after.class_counts");
        assert_eq!(counts.to_f32().iter().sum::<f32>(), self.images as f32);
    }
}

/// A run beside its reference.
struct Check<'a> {
    golden: &'a Golden,
    prefix: String,
    form: LossForm,
    outputs: &'a [(String, Tensor<'static>)],
}

impl<'a> Check<'a> {
    fn new(
        golden: &'a Golden,
        prefix: String,
        form: LossForm,
        outputs: &'a [(String, Tensor<'static>)],
    ) -> Self {
        Self {
            golden,
            prefix,
            form,
            outputs,
        }
    }

    fn output(&self, name: &str) -> &Tensor<'static> {
        let found = self.outputs.iter().find(|(output, _)| output == name);
        &found.unwrap_or_else(|| panic!("no output {name}")).1
    }

    fn stored(&self, names: &[&str]) -> Vec<f32> {
        let values = names.iter().map(|name| format!("{}{name}", self.prefix));
        values.flat_map(|name| self.golden.values(&name)).collect()
    }

    fn places(&self, name: &str, stored: &[&str]) {
        let expected = self.stored(stored);
        assert_eq!(
            *self.output(name).to_f32(),
            expected,
            "{}{name} {:?}",
            self.prefix,
            self.form
        );
    }

    fn values(&self, name: &str, stored: &[&str], tolerance: f64) {
        let (got, expected) = (self.output(name).to_f32(), self.stored(stored));
        assert_eq!(got.len(), expected.len(), "{}{name}", self.prefix);
        self.compare(name, &got, &expected, largest(&expected), tolerance);
    }

    fn prefix(&self, name: &str, stored: &str, tolerance: f64) {
        let expected = self.stored(&[stored]);
        let got = &self.output(name).to_f32()[..expected.len()];
        self.compare(name, got, &expected, largest(&expected), tolerance);
    }

    /// The gradients of both views' features.
    fn features(&self, kind: &str, tolerance: f64) {
        let half = self.output("grad.features").element_count() / 2;
        for (view, start) in [("F1", 0), ("F2", half)] {
            self.sampled("grad.features", &format!("{kind}.{view}"), start, tolerance);
        }
    }

    /// Samples of a tensor that starts at `start` of an output.
    fn sampled(&self, name: &str, stored: &str, start: usize, tolerance: f64) {
        let output = self.output(name).to_f32();
        let indices = self.golden.indices(&format!("{}{stored}.idx", self.prefix));
        let got: Vec<f32> = indices.iter().map(|&index| output[start + index]).collect();
        let expected = self.stored(&[&format!("{stored}.val")]);
        self.compare(stored, &got, &expected, largest(&output), tolerance);
    }

    fn compare(&self, name: &str, got: &[f32], expected: &[f32], scale: f64, tolerance: f64) {
        assert!(!expected.is_empty(), "{name}: nothing to compare");
        let pairs = got.iter().zip(expected);
        let worst = pairs.fold(0.0f64, |worst, (got, expected)| {
            let difference = f64::from(got - expected).abs() / scale;
            if difference.is_nan() {
                f64::INFINITY
            } else {
                worst.max(difference)
            }
        });
        let what = format!("{}{name} {:?}", self.prefix, self.form);
        println!("{what}: largest difference {worst:.2e} of the largest value");
        assert!(
            worst <= tolerance,
            "{what}: {worst:.3e} is past {tolerance:.0e}"
        );
    }
}

fn largest(values: &[f32]) -> f64 {
    values
        .iter()
        .fold(0.0, |most, &v| f64::max(most, f64::from(v.abs())))
}

#[test]
fn the_small_case() {
    let golden = Golden::fixture("paco2");
    for form in FORMS {
        SMALL.published(&golden, form);
        SMALL.stable(&golden, form);
    }
}

#[test]
fn the_bits_are_the_same_at_any_thread_count() {
    let paco = Paco {
        d: SMALL.d,
        classes: SMALL.classes,
        ..Paco::STABLE
    };
    let [one, two, three] = [1, 2, 3].map(|threads| SMALL.run(&paco, "loss", threads));
    assert!(one == two && one == three);
}

#[test]
fn a_training_graph_has_the_parameters_of_the_network() {
    for (backbone, eta_soc) in [(Backbone::RESNET50, 0.1), (Backbone::EfficientNetB0, 0.0)] {
        let paco = Paco {
            backbone,
            eta_soc,
            ..Paco::STABLE
        };
        let names = |graph: &Graph| -> BTreeSet<(String, Vec<usize>, bool)> {
            let params = graph.params().iter();
            params
                .map(|p| (p.name.clone(), p.shape.clone(), p.trainable))
                .collect()
        };
        let training = paco.training_graph().expect("it builds");
        assert_eq!(names(&training), names(&paco.graph().expect("it builds")));
        let outputs: Vec<&str> = training
            .outputs()
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let terms: &[&str] = if eta_soc > 0.0 {
            &["pac", "soc"]
        } else {
            &["pac"]
        };
        assert_eq!(outputs, [&["loss", "ce"], terms, &["logits"]].concat());
    }
}

#[test]
fn the_case_of_the_report() {
    let Some(folder) = shared("golden/vision") else {
        return;
    };
    let golden = Golden::open(&folder.join("paco2.safetensors"));
    for form in [LossForm::Exact, LossForm::Gram] {
        SEED.published(&golden, form);
        SEED.stable(&golden, form);
    }
}
