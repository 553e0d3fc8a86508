//! Networks that take numbers as they are: single layers, and parts of networks.

use percept_data::{Example, Sample, SampleError};
use percept_kernels::Cpu;

use super::{InputShapes, Intake, Part, PartKind, Sizes};

/// A tensor for each input.
#[derive(Clone, Debug)]
pub struct TensorIntake {
    shapes: InputShapes,
    parts: Vec<Part>,
}

impl TensorIntake {
    /// The inputs of one sample, by name and shape. A map [_, _, H, W] can have another size.
    pub fn new(shapes: InputShapes) -> Self {
        let part = |(name, shape): &(&'static str, Vec<usize>)| Part {
            name,
            kind: PartKind::Tensor,
            size: match shape[..] {
                [_, _, height, width] => Some([height, width]),
                _ => None,
            },
            what: "numbers, as they are",
        };
        Self {
            parts: shapes.iter().map(part).collect(),
            shapes,
        }
    }
}

impl Intake for TensorIntake {
    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn shapes(&self, sizes: &Sizes) -> InputShapes {
        let mut shapes = self.shapes.clone();
        for (name, shape) in &mut shapes {
            if let ([_, _, sides @ ..], Some(size)) = (shape.as_mut_slice(), sizes.get(*name)) {
                sides.copy_from_slice(size);
            }
        }
        shapes
    }

    fn example(&self, _: &Cpu, sample: &Sample, _: &Sizes) -> Result<Example, SampleError> {
        let tensor = |part: &Part| Ok((part.name, sample.tensor(part.name)?.clone()));
        let tensors: Result<Vec<_>, SampleError> = self.parts.iter().map(tensor).collect();
        Ok(Example::of_one(tensors?))
    }
}
