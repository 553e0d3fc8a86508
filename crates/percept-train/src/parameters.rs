//! Parameters where the engine can read them: as training begins, or as it left them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use percept_data::random::{Draws, hash};
use percept_data::seeded::fnv1a64;
use percept_graph::{Graph, Initializer, Tensor, WeightError, WeightSource};

use crate::Learner;

/// Parameters as training begins: those of given weights where they have them in their shape (a new head has another number of
/// classes); for the rest what each layer declares, drawn from the seed and the parameter's name.
pub struct InitialParameters {
    seed: u64,
    initializers: BTreeMap<String, Initializer>,
    given: Option<Arc<dyn WeightSource>>,
}

impl InitialParameters {
    /// Of the parameters of a graph.
    pub fn new(graph: &Graph, seed: u64) -> Self {
        let params = graph.params().iter();
        let initializers = params.map(|param| (param.name.clone(), param.init));
        Self {
            seed,
            initializers: initializers.collect(),
            given: None,
        }
    }

    /// Of all graphs of a learner.
    pub fn of(learner: &Learner, seed: u64) -> Self {
        let graphs = learner.lesson.graphs();
        let initializers = graphs
            .iter()
            .flat_map(|training| Self::new(&training.graph, seed).initializers);
        Self {
            seed,
            initializers: initializers.collect(),
            given: learner.start.clone(),
        }
    }
}

impl WeightSource for InitialParameters {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        match self.given.as_ref().map(|given| given.read(name, shape)) {
            None | Some(Err(WeightError::Missing { .. } | WeightError::WrongShape { .. })) => {}
            Some(read) => return read.map(|values| values.into_owned().into()),
        }
        let missing = || WeightError::Missing {
            name: name.to_owned(),
            weights: self.describe(),
        };
        let initializer = *self.initializers.get(name).ok_or_else(missing)?;
        let len = shape.iter().product();
        let stream = hash(
            self.seed,
            u64::from_le_bytes(*b"weights."),
            fnv1a64(name.as_bytes()),
        );
        let mut draws = Draws::new(stream, 0);
        let values: Vec<f32> = match initializer {
            Initializer::Zeros => vec![0.0; len],
            Initializer::Ones => vec![1.0; len],
            Initializer::Constant(value) => vec![value; len],
            Initializer::FanIn(fan_in) => {
                let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
                (0..len)
                    .map(|_| draws.range(-bound, bound) as f32)
                    .collect()
            }
            Initializer::Normal(std) => {
                let normal = |draws: &mut Draws| percept_data::random::bell(draws.word());
                (0..len)
                    .map(|_| (f64::from(std) * normal(&mut draws)) as f32)
                    .collect()
            }
        };
        Ok(values.into())
    }

    fn describe(&self) -> String {
        match &self.given {
            Some(given) => format!("{}, the rest initial, seed {}", given.describe(), self.seed),
            None => format!("initial, seed {}", self.seed),
        }
    }
}

/// Parameters in memory, as a step left them.
pub struct LearnedParameters(BTreeMap<String, Tensor<'static>>);

impl LearnedParameters {
    /// Of the tensors of a snapshot.
    pub fn new(tensors: impl IntoIterator<Item = (String, Tensor<'static>)>) -> Self {
        Self(tensors.into_iter().collect())
    }
}

impl WeightSource for LearnedParameters {
    fn read(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, WeightError> {
        let name = name.to_owned();
        let Some(tensor) = self.0.get(&name) else {
            let weights = self.describe();
            return Err(WeightError::Missing { name, weights });
        };
        if tensor.shape() != shape {
            let (expected, got) = (shape.to_vec(), tensor.shape().to_vec());
            return Err(WeightError::WrongShape {
                name,
                expected,
                got,
            });
        }
        Ok(tensor.to_f32())
    }

    fn describe(&self) -> String {
        "learned".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use percept_graph::{BatchNorm, Builder, Conv2d, Dim};

    use super::*;

    #[test]
    fn parameters_begin_as_their_layers_declare() {
        let mut b = Builder::new("Net");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let x = b.input("x", [n, 16.into(), h, w]);
        let x = b.conv2d("conv", x, Conv2d::new(16, 32, 3));
        let x = b.batch_norm("bn", x, BatchNorm::new(32));
        b.output("y", x);
        let graph = b.finish().unwrap();
        let [first, second] = [1, 2].map(|seed| InitialParameters::new(&graph, seed));
        let weight = first.read("conv.weight", &[32, 16, 3, 3]).unwrap();
        let bound = 1.0 / (16.0f32 * 9.0).sqrt();
        assert!(weight.iter().all(|value| value.abs() <= bound));
        let mean = weight.iter().sum::<f32>() / weight.len() as f32;
        let square = weight.iter().map(|v| v * v).sum::<f32>() / weight.len() as f32;
        assert!(mean.abs() < 0.1 * bound, "{mean}");
        assert!(
            (square - bound * bound / 3.0).abs() < 0.1 * bound * bound,
            "{square}"
        );
        assert_eq!(weight, first.read("conv.weight", &[32, 16, 3, 3]).unwrap());
        assert_ne!(weight, second.read("conv.weight", &[32, 16, 3, 3]).unwrap());
        assert_eq!(*first.read("bn.running_var", &[32]).unwrap(), [1.0; 32]);
        assert_eq!(*first.read("bn.bias", &[32]).unwrap(), [0.0; 32]);
        assert!(first.read("other", &[32]).is_err());
    }

    #[test]
    fn learned_parameters_must_have_the_shape_that_is_asked_for() {
        let tensor = Tensor::from_values([2], vec![1.0f32, 2.0]).unwrap();
        let learned = LearnedParameters::new([("a".to_owned(), tensor)]);
        assert_eq!(*learned.read("a", &[2]).unwrap(), [1.0, 2.0]);
        assert!(matches!(
            learned.read("a", &[1, 2]),
            Err(WeightError::WrongShape { .. })
        ));
        assert!(matches!(
            learned.read("b", &[2]),
            Err(WeightError::Missing { .. })
        ));
    }
}
