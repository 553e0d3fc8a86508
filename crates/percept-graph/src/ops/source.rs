//! A parameter used as a value: a class token, a position embedding.

use super::Operator;
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// The parameter itself, as a value of the graph.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ParameterValue {
    pub name: &'static str,
    pub shape: Vec<usize>,
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
        vec![ParamSpec::new(
            self.name,
            self.shape.clone(),
            Initializer::Normal(0.02),
        )]
    }
}
