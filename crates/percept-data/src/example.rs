//! Samples as a network takes them: a tensor for each of its inputs.
//!
//! An example of one sample is a batch of one, so that batches are examples put one behind the other along their first axis.
//! That is all there is to it for images ([1, 3, H, W] each) and for points ([P, 4] and a count [1] each) alike.

use percept_graph::{Graph, Tensor, TensorError};
use thiserror::Error;

/// The tensors of some samples, by the name of the input that takes each.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// How many samples they are of.
    pub samples: usize,
    /// An input may also be there that the graph does not take: what the reading of its outputs needs.
    pub tensors: Vec<(String, Tensor<'static>)>,
}

/// Why examples make no batch.
#[derive(Debug, Error)]
pub enum BatchError {
    /// They are of different networks.
    #[error("an example of {found} in a batch of {expected}")]
    OtherInputs {
        /// The inputs of the first.
        expected: String,
        /// The inputs of the other.
        found: String,
    },
    /// Their tensors differ in more than the number of rows.
    #[error("`{input}` becomes {found:?}, the batch is {expected:?}")]
    OtherShape {
        /// The input.
        input: String,
        /// The shape of a row in the first.
        expected: Vec<usize>,
        /// The shape of a row in the other.
        found: Vec<usize>,
    },
    /// They are too large together, or of different types.
    #[error("`{input}`: {error}")]
    Tensor {
        /// The input.
        input: String,
        /// What is wrong.
        error: TensorError,
    },
}

impl Example {
    /// The tensors of one sample.
    pub fn of_one<N: Into<String>>(
        tensors: impl IntoIterator<Item = (N, Tensor<'static>)>,
    ) -> Self {
        let tensors = tensors.into_iter().map(|(name, t)| (name.into(), t));
        Self {
            samples: 1,
            tensors: tensors.collect(),
        }
    }

    /// The tensor of an input.
    pub fn get(&self, input: &str) -> Option<&Tensor<'static>> {
        let found = self.tensors.iter().find(|(name, _)| name == input);
        found.map(|(_, tensor)| tensor)
    }

    /// Those of its tensors that a graph takes.
    pub fn taken_by(&self, graph: &Graph) -> Vec<(&str, &Tensor<'static>)> {
        let is_taken = |name: &str| graph.inputs().iter().any(|input| input.name == name);
        let tensors = self.tensors.iter().filter(|(name, _)| is_taken(name));
        tensors
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect()
    }

    /// All of them, one behind the other along the first axis of each tensor.
    pub fn batch(examples: Vec<Self>) -> Result<Self, BatchError> {
        let mut examples = examples;
        if examples.len() == 1 {
            return Ok(examples.remove(0));
        }
        let Some(first) = examples.first() else {
            return Ok(Self {
                samples: 0,
                tensors: Vec::new(),
            });
        };
        if let Some(other) = examples.iter().find(|other| other.names() != first.names()) {
            return Err(BatchError::OtherInputs {
                expected: first.names().join(", "),
                found: other.names().join(", "),
            });
        }
        let join = |(place, (name, _)): (usize, &(String, Tensor<'static>))| {
            let parts: Vec<&Tensor<'_>> = examples.iter().map(|e| &e.tensors[place].1).collect();
            Ok((name.clone(), concatenated(name, &parts)?))
        };
        Ok(Self {
            samples: examples.iter().map(|example| example.samples).sum(),
            tensors: first
                .tensors
                .iter()
                .enumerate()
                .map(join)
                .collect::<Result<_, _>>()?,
        })
    }

    /// At most `count` samples, the first ones; every tensor has a row for each.
    pub fn first(self, count: usize) -> Self {
        if self.samples <= count {
            return self;
        }
        let tensors = self.tensors.into_iter().map(|(name, tensor)| {
            let mut shape = tensor.shape().to_vec();
            let kept = tensor.bytes().len() / self.samples * count;
            shape[0] = count;
            let kept = Tensor::new(tensor.dtype(), shape, tensor.bytes()[..kept].to_vec());
            (name, kept.expect("whole rows"))
        });
        Self {
            samples: count,
            tensors: tensors.collect(),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.iter().map(|(name, _)| name.as_str()).collect()
    }
}

fn concatenated(input: &str, parts: &[&Tensor<'_>]) -> Result<Tensor<'static>, BatchError> {
    let row = |part: &Tensor<'_>| part.shape().get(1..).unwrap_or_default().to_vec();
    let (expected, dtype) = (row(parts[0]), parts[0].dtype());
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.bytes().len()).sum());
    let mut rows = 0;
    for part in parts {
        let named = |error| BatchError::Tensor {
            input: input.to_owned(),
            error,
        };
        if part.dtype() != dtype {
            let found = part.dtype();
            return Err(named(TensorError::WrongType {
                expected: dtype,
                found,
            }));
        }
        let found = row(part);
        if found != expected {
            return Err(BatchError::OtherShape {
                input: input.to_owned(),
                expected,
                found,
            });
        }
        rows += part.shape().first().copied().unwrap_or(1);
        bytes.extend_from_slice(part.bytes());
    }
    let mut shape = vec![rows];
    shape.extend(expected);
    Tensor::new(dtype, shape, bytes).map_err(|error| BatchError::Tensor {
        input: input.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(points: usize, value: f32) -> Example {
        let rows = Tensor::from_values([points, 2], vec![value; 2 * points]).unwrap();
        let count = Tensor::from_values([1], vec![points as i32]).unwrap();
        Example::of_one([("points", rows), ("counts", count)])
    }

    #[test]
    fn images_stack_and_points_chain() {
        let batch = Example::batch(vec![cloud(2, 1.0), cloud(0, 7.0), cloud(1, 2.0)]).unwrap();
        assert_eq!(batch.samples, 3);
        let points = batch.get("points").unwrap();
        assert_eq!(points.shape(), [3, 2]);
        assert_eq!(
            points.values::<f32>().unwrap(),
            [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
        );
        let counts = batch.get("counts").unwrap();
        assert_eq!(counts.values::<i32>().unwrap(), [2, 0, 1]);
        let image = |value: f32| {
            let tensor = Tensor::from_values([1, 3, 1, 1], vec![value; 3]).unwrap();
            Example::of_one([("image", tensor)])
        };
        let batch = Example::batch(vec![image(1.0), image(2.0)]).unwrap();
        assert_eq!(batch.get("image").unwrap().shape(), [2, 3, 1, 1]);
        assert_eq!(
            batch.clone().first(1),
            Example::of_one([("image", image(1.0).tensors[0].1.clone())])
        );
        assert_eq!(batch.clone().first(2), batch);
        assert_eq!(Example::batch(Vec::new()).unwrap().samples, 0);
    }

    #[test]
    fn examples_that_do_not_belong_together_are_refused() {
        let of = |name: &str, tensor: Tensor<'static>| Example::of_one([(name, tensor)]);
        let floats = |shape: [usize; 2]| {
            Tensor::from_values(shape, vec![0f32; shape[0] * shape[1]]).unwrap()
        };
        let error = |a: Example, b: Example| Example::batch(vec![a, b]).unwrap_err().to_string();
        let (x, y) = (of("x", floats([1, 2])), of("y", floats([1, 2])));
        assert_eq!(error(x.clone(), y), "an example of y in a batch of x");
        let wide = of("x", floats([1, 3]));
        assert_eq!(error(x.clone(), wide), "`x` becomes [3], the batch is [2]");
        let whole = Tensor::from_values([1, 2], vec![0i32; 2]).unwrap();
        assert_eq!(
            error(x, of("x", whole)),
            "`x`: expected f32 elements, the tensor holds i32"
        );
    }
}
