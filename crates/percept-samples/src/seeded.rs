//! Numbers that follow from a seed, where a user names nothing.

use percept_data::seeded::{Family, SeededTensor};
use percept_data::{Datum, Sample, SampleError, Samples};
use percept_graph::{DType, Tensor, TensorError};
use percept_models::Model;

use crate::OpenOptions;

/// The stream `input.NAME`, or `input.NAME#SEED`, for each input, sample after sample. Whole numbers count instead: labels of
/// samples that are all of different classes.
pub(crate) struct SeededSamples {
    inputs: Vec<SeededInput>,
    family: Family,
    count: usize,
    seed: u64,
}

struct SeededInput {
    name: &'static str,
    /// The shape for one sample.
    shape: Vec<usize>,
    counts: bool,
}

impl SeededSamples {
    pub(crate) fn new(network: &Model, options: &OpenOptions) -> Self {
        let input = |(name, shape): (&'static str, Vec<usize>)| {
            let inputs = network.graph.inputs().iter();
            let counts = inputs
                .filter(|input| input.name == name)
                .any(|input| network.graph.value(input.value).ty.dtype == DType::I32);
            SeededInput {
                name,
                shape,
                counts,
            }
        };
        Self {
            inputs: network.input_shapes(1).into_iter().map(input).collect(),
            family: network.family,
            count: options.count,
            seed: options.seed,
        }
    }
}

impl SeededInput {
    fn tensor(
        &self,
        family: Family,
        seed: u64,
        index: usize,
    ) -> Result<Tensor<'static>, TensorError> {
        let length = percept_graph::element_count(&self.shape);
        let length = length.ok_or_else(|| TensorError::TooLarge(self.shape.clone()))?;
        let start = index * length;
        if self.counts {
            let numbers: Vec<i32> = (start..start + length).map(|n| n as i32).collect();
            return Tensor::from_values(self.shape.clone(), numbers);
        }
        let stream = match seed {
            0 => format!("input.{}", self.name),
            seed => format!("input.{}#{seed}", self.name),
        };
        let mut values = vec![0.0; length];
        SeededTensor::new(family, &stream, &self.shape).fill(start, &mut values);
        Tensor::from_values(self.shape.clone(), values)
    }
}

impl Samples for SeededSamples {
    fn len(&self) -> usize {
        self.count
    }

    fn name(&self, index: usize) -> String {
        match self.count {
            1 => "seeded input".to_owned(),
            _ => format!("seeded input [{index}]"),
        }
    }

    fn sample(&self, index: usize) -> Result<Sample, SampleError> {
        let mut sample = Sample {
            name: self.name(index),
            parts: Vec::new(),
        };
        for input in &self.inputs {
            let tensor = input.tensor(self.family, self.seed, index);
            let tensor = tensor.map_err(|error| SampleError::Unusable {
                sample: sample.name.clone(),
                reason: error.to_string(),
            })?;
            sample = sample.with(input.name, Datum::Tensor(tensor));
        }
        Ok(sample)
    }
}
