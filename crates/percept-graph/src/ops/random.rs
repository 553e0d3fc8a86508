//! Dropout from counters: no generator, so a resumed run repeats its bits.
//!
//! Element i of a node keeps its value, divided by 1 - p, when u(seed, step, node, i) >= p; else it is 0.

use super::Operator;
use crate::training::{Backward, Differentiable};
use crate::{Cost, DType, TensorType};

/// Dropout in training. Inputs: x, and counters i32 [2]: a seed and a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomDropout {
    /// The share that is dropped.
    pub p: f32,
    /// Tells nodes apart.
    pub stream: u64,
}

impl RandomDropout {
    /// The dropout of the node of this name.
    pub fn named(p: f32, name: &str) -> Self {
        // FNV-1a: short, and the same everywhere.
        let stream = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self { p, stream }
    }
}

impl Operator for RandomDropout {
    fn kind(&self) -> &'static str {
        "RandomDropout"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if !(0.0..1.0).contains(&self.p) {
            return Err(format!("a share from 0 to below 1, not {}", self.p));
        }
        match inputs {
            [x, counters] if counters.dtype == DType::I32 && counters.shape == [2.into()] => {
                Ok(vec![(*x).clone()])
            }
            _ => Err("a value and counters i32 [2]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 10)
    }

    fn describe(&self) -> String {
        format!("Dropout(p={})", self.p)
    }
}

/// The same elements are dropped from dy: the same counters give the same numbers.
impl Differentiable for RandomDropout {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (counters, dy) = (back.input(1), back.dy()?);
        let dx = back.call("grad", *self, &[dy, counters]);
        back.give(0, dx);
        Ok(())
    }
}
