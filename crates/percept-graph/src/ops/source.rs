//! Values that no other value is needed for: a parameter used as a value (a class token, a position embedding), a constant.

use super::{Operator, selections};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// The parameter or buffer itself, as a value of the graph.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ParameterValue {
    pub name: &'static str,
    pub shape: Vec<usize>,
    pub init: Initializer,
    /// False for a buffer.
    pub trainable: bool,
}

impl Operator for ParameterValue {
    fn kind(&self) -> &'static str {
        "Parameter"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if !inputs.is_empty() {
            return Err("no input".to_owned());
        }
        Ok(vec![TensorType::f32(
            self.shape.iter().map(|&d| Dim::from(d)),
        )])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!("Parameter({:?})", self.shape)
    }
    fn params(&self) -> Vec<ParamSpec> {
        vec![ParamSpec {
            trainable: self.trainable,
            ..ParamSpec::new(self.name, self.shape.clone(), self.init)
        }]
    }
}

impl Differentiable for ParameterValue {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let dy = back.dy()?;
        back.give(0, dy);
        Ok(())
    }
}

/// The same number everywhere.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Constant {
    pub value: f32,
    pub shape: Vec<Dim>,
}

impl Operator for Constant {
    fn kind(&self) -> &'static str {
        "Constant"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if !inputs.is_empty() {
            return Err("no input".to_owned());
        }
        Ok(vec![TensorType::f32(self.shape.iter().cloned())])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!("Constant({})", self.value)
    }
}

selections!(Constant);
