//! Numbers moved to the nearest ones on a grid of integers, and kept as floats: what a layer in integers would see.
//!
//! y = clamp(round_half_to_even(x · scale), low, high) / scale; see [`InputGrid`]. NaN stays NaN.

use super::{Operator, one, selections};
use crate::{Amax, Cost, InputGrid, TensorType};

/// A simulated quantiser of a whole tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct FakeQuantize {
    pub grid: InputGrid,
}

impl Operator for FakeQuantize {
    fn kind(&self) -> &'static str {
        "FakeQuantize"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![one(inputs)?.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let per_element = match self.grid.amax {
            Amax::Dynamic => 5,
            Amax::Static(_) => 4,
        };
        Cost::elementwise(inputs[0].elements(), per_element)
    }

    fn describe(&self) -> String {
        let InputGrid { bits, amax, .. } = self.grid;
        format!("TensorQuantizer({bits}bit fake per-tensor amax={amax})")
    }
}

// Steps have no slope.
selections!(FakeQuantize);
