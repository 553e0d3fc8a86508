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

    fn is_integers(&self, name: &str) -> bool {
        self.source.dtype(name) == Some(DType::I8)
    }

    fn is_steps(&self, name: &str) -> bool {
        let base = name.strip_suffix(STEP);
        base.is_some_and(|base| self.is_integers(base))
    }

    /// What is said of a tensor whose integers stand for nothing.
    fn unusable(&self, name: &str, fault: &str) -> WeightError {
        let weights = self.source.describe();
        let message = format!(
            "{weights}: `{name}` holds integers, and `{name}{STEP}`, what they stand for, {fault}"
        );
        WeightError::Source(message.into())
    }

    /// What the integers of a tensor stand for, checked to be steps.
    fn steps(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        let steps = format!("{name}{STEP}");
        match self.source.dtype(&steps) {
            None => return Err(self.unusable(name, "is missing")),
            Some(dtype) if !dtype.is_float() => {
                return Err(self.unusable(name, &format!("is of type {dtype}")));
            }
            Some(_) => {}
        }
        let steps = self.source.read_f32(&steps)?;
        let wrong = steps.iter().find(|step| !step.is_finite() || **step < 0.0);
        match wrong.copied() {
            Some(wrong) => Err(self.unusable(name, &format!("holds {wrong}"))),
            None => Ok(steps),
        }
    }

    fn numbers(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        let integers = self.source.read(name)?;
        let values = integers.to_f32();
        let steps = self.steps(name)?;
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
        match self.is_integers(name) {
            true => Some(DType::F32),
            false => self.source.dtype(name),
        }
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        match self.is_integers(name) {
            true => self.numbers(name),
            false => self.source.read(name),
        }
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        match self.is_integers(name) {
            true => Ok(self.numbers(name)?.into_f32()),
            false => self.source.read_f32(name),
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
    fn integers_that_stand_for_nothing_are_refused() {
        for (step, fault) in [
            (f32::NAN, "holds NaN"),
            (f32::INFINITY, "holds inf"),
            (-0.5, "holds -0.5"),
        ] {
            let error = stored(vec![1.0, step])
                .read_f32("w")
                .unwrap_err()
                .to_string();
            assert_eq!(
                error,
                format!(
                    "made by hand: `w` holds integers, and `w.step`, what they stand for, {fault}"
                )
            );
        }
        let integers = || Tensor::from_values([2], vec![127i8, -1]).unwrap();
        let alone = [("w", integers())];
        let other = [
            ("w", integers()),
            ("w.step", Tensor::from_values([1], vec![1i32]).unwrap()),
        ];
        for (tensors, fault) in [(&alone[..], "is missing"), (&other[..], "is of type i32")] {
            let tensors = tensors
                .iter()
                .map(|(name, tensor)| ((*name).to_owned(), tensor.clone()));
            let weights = Dequantized::new(MemoryWeights::new("made by hand", tensors));
            let error = weights.read("w").unwrap_err().to_string();
            assert!(error.ends_with(fault), "{error}");
        }
    }

    #[test]
    fn steps_of_other_lengths_are_refused() {
        for steps in [vec![], vec![1.0; 3]] {
            let error = stored(steps).read_f32("w").unwrap_err().to_string();
            assert!(error.contains("w.step"), "{error}");
        }
    }
}
