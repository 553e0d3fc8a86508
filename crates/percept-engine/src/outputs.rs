//! What a run gave.

use std::borrow::Cow;

use percept_graph::Tensor;

/// One tensor that a run gave.
pub struct Output<'p> {
    /// Name of the output.
    pub name: &'p str,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Row-major values, in the program's arena until the next run.
    pub data: Cow<'p, [f32]>,
}

/// What one run gave, in the graph's order.
pub struct Outputs<'p> {
    tensors: Vec<Output<'p>>,
}

impl<'p> Outputs<'p> {
    pub(crate) fn new(tensors: Vec<Output<'p>>) -> Self {
        Self { tensors }
    }

    /// All outputs.
    pub fn iter(&self) -> impl Iterator<Item = &Output<'p>> {
        self.tensors.iter()
    }

    /// One output by name.
    pub fn get(&self, name: &str) -> Option<&Output<'p>> {
        self.tensors.iter().find(|output| output.name == name)
    }

    /// Copies of all outputs.
    pub fn to_tensors(&self) -> Vec<(String, Tensor)> {
        let copy = |output: &Output<'p>| Tensor {
            shape: output.shape.clone(),
            data: output.data.to_vec(),
        };
        self.tensors
            .iter()
            .map(|output| (output.name.to_owned(), copy(output)))
            .collect()
    }
}
