//! Gradients of pooling.

use super::{AvgPool2d, MaxPool2d, Operator, behind_the_loss, one_map};
use crate::{Cost, Dim, TensorType};

/// dy goes to the first largest pixel of each window. Inputs: x, dy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxPool2dGradient {
    /// Of what.
    pub pool: MaxPool2d,
}

impl Operator for MaxPool2dGradient {
    fn kind(&self) -> &'static str {
        "MaxPool2dGradient"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [x, dy] if self.pool.infer(&[*x])?[0] == **dy => Ok(vec![(*x).clone()]),
            _ => Err("a map and the gradient of its pooling".to_owned()),
        }
    }
    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        self.pool.cost(&[], &inputs[1..])
    }
    fn describe(&self) -> String {
        format!("{}.gradient", self.pool.describe())
    }
}

/// dy is shared by the pixels of each window. Input: dy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvgPool2dGradient {
    /// Of what.
    pub pool: AvgPool2d,
    /// Height and width of the pooling's input.
    pub size: [Dim; 2],
}

impl Operator for AvgPool2dGradient {
    fn kind(&self) -> &'static str {
        "AvgPool2dGradient"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let dx = resized(inputs, &self.size)?;
        match self.pool.infer(&[&dx])?[0] == *inputs[0] {
            true => Ok(vec![dx]),
            false => Err("the gradient of the pooling".to_owned()),
        }
    }
    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        self.pool.cost(&[], inputs)
    }
    fn describe(&self) -> String {
        format!("{}.gradient", self.pool.describe())
    }
}

/// dy is shared by the pixels of each bin. Input: dy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptiveAvgPool2dGradient {
    /// Height and width of the pooling's input.
    pub size: [Dim; 2],
}

impl Operator for AdaptiveAvgPool2dGradient {
    fn kind(&self) -> &'static str {
        "AdaptiveAvgPool2dGradient"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![resized(inputs, &self.size)?])
    }
    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::elementwise(outputs[0].elements(), 1)
    }
    fn describe(&self) -> String {
        "AdaptiveAvgPool2d.gradient".to_owned()
    }
}

behind_the_loss!(
    MaxPool2dGradient,
    AvgPool2dGradient,
    AdaptiveAvgPool2dGradient
);

fn resized(inputs: &[&TensorType], size: &[Dim; 2]) -> Result<TensorType, String> {
    let mut map = one_map(inputs, None)?.clone();
    map.shape[2..].clone_from_slice(size);
    Ok(map)
}
