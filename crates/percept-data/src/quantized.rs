//! Weights that are stored as integers: a tensor of them, and beside it what one integer stands for.

use std::borrow::Cow;

use percept_graph::{DType, Tensor, WeightError};

use crate::weights::TensorSource;

/// What the name of a tensor of integers is followed by in the name of its steps.
pub const STEP: &str = ".step";

/// A source whose tensors of integers with steps are read as the numbers that they stand for.
///
/// The steps of a tensor are one number, or one for each index of its first axis.
pub struct Dequantized<S> {
    source: S,
}

impl<S: TensorSource> Dequantized<S> {
    /// The same weights as numbers.
    pub fn new(source: S) -> Self {
        Self { source }
    }

    /// The name of a tensor's steps, where it is one of integers that has them.
    fn steps_of(&self, name: &str) -> Option<String> {
        if self.source.dtype(name) != Some(DType::I8) {
            return None;
        }
        let steps = format!("{name}{STEP}");
        self.source.dtype(&steps).map(|_| steps)
    }

    fn is_steps(&self, name: &str) -> bool {
        let base = name.strip_suffix(STEP);
        base.is_some_and(|base| self.source.dtype(base) == Some(DType::I8))
    }

    fn numbers(&self, name: &str, steps: &str) -> Result<Tensor<'_>, WeightError> {
        let integers = self.source.read(name)?;
        let values = integers.to_f32();
        let steps = self.source.read_f32(steps)?;
        let shape = integers.shape();
        let fits = steps.len() == 1 || shape.first() == Some(&steps.len());
        if !fits {
            return Err(WeightError::WrongShape {
                name: format!("{name}{STEP}"),
                expected: shape.first().map_or(vec![], |&channels| vec![channels]),
                got: vec![steps.len()],
            });
        }
        let group = (values.len() / steps.len().max(1)).max(1);
        let groups = values.chunks(group).zip(steps.iter());
        let numbers: Vec<f32> = groups
            .flat_map(|(group, step)| group.iter().map(move |q| q * step))
            .collect();
        Ok(Tensor::from_values(shape, numbers)?)
    }
}

impl<S: TensorSource> TensorSource for Dequantized<S> {
    fn names(&self) -> Vec<&str> {
        let names = self.source.names().into_iter();
        names.filter(|name| !self.is_steps(name)).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.source.shape(name)
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        match self.steps_of(name) {
            Some(_) => Some(DType::F32),
            None => self.source.dtype(name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        match self.steps_of(name) {
            Some(steps) => self.numbers(name, &steps),
            None => self.source.read(name),
        }
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        match self.steps_of(name) {
            Some(steps) => Ok(self.numbers(name, &steps)?.into_f32()),
            None => self.source.read_f32(name),
        }
    }

    fn release(&self, name: &str) {
        self.source.release(name);
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        self.source.metadata(key)
    }

    fn describe(&self) -> String {
        self.source.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryWeights;

    fn stored(steps: Vec<f32>) -> Dequantized<MemoryWeights<'static>> {
        let count = steps.len();
        let tensors = [
            (
                "w",
                Tensor::from_values([2, 2], vec![127i8, -1, 2, 0]).unwrap(),
            ),
            ("w.step", Tensor::from_values([count], steps).unwrap()),
            ("b", Tensor::from_values([2], vec![1.0f32, 2.0]).unwrap()),
            ("own.step", Tensor::from_values([1], vec![3.0f32]).unwrap()),
        ];
        let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
        Dequantized::new(MemoryWeights::new("made by hand", tensors))
    }

    #[test]
    fn integers_are_read_as_what_they_stand_for() {
        let weights = stored(vec![0.5, 2.0]);
        assert_eq!(weights.names(), ["b", "own.step", "w"]);
        assert_eq!(weights.dtype("w"), Some(DType::F32));
        assert_eq!(*weights.read_f32("w").unwrap(), [63.5, -0.5, 4.0, 0.0]);
        assert_eq!(*weights.read_f32("b").unwrap(), [1.0, 2.0]);
        assert_eq!(*weights.read_f32("own.step").unwrap(), [3.0]);
        let one = stored(vec![1.0]);
        assert_eq!(*one.read_f32("w").unwrap(), [127.0, -1.0, 2.0, 0.0]);
    }

    #[test]
    fn steps_of_other_lengths_are_refused() {
        for steps in [vec![], vec![1.0; 3]] {
            let error = stored(steps).read_f32("w").unwrap_err().to_string();
            assert!(error.contains("w.step"), "{error}");
        }
    }
}
