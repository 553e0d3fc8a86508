//! What a run gave.

use percept_graph::Tensor;

/// What one run gave, in the graph's order: values in the program's memory until the next run.
pub struct Outputs<'p> {
    tensors: Vec<(&'p str, Tensor<'p>)>,
}

impl<'p> Outputs<'p> {
    pub(crate) fn new(tensors: Vec<(&'p str, Tensor<'p>)>) -> Self {
        Self { tensors }
    }

    /// All outputs with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'p str, &Tensor<'p>)> {
        self.tensors.iter().map(|(name, tensor)| (*name, tensor))
    }

    /// One output by name.
    pub fn get(&self, name: &str) -> Option<&Tensor<'p>> {
        self.iter()
            .find_map(|(known, tensor)| (known == name).then_some(tensor))
    }

    /// Copies of all outputs.
    pub fn to_tensors(&self) -> Vec<(String, Tensor<'static>)> {
        self.iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.clone().into_owned()))
            .collect()
    }
}
