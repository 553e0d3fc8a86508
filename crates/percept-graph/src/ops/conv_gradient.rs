//! Gradients of convolutions.
//!
//! By the input: dx[n, c, h, w] = Σ over k, u, v of weight[k, c, u, v] · dy[n, k, i, j] where i·s + u·d - p = h: the adjoint.
//! By the weight: dw[k, c, u, v] = Σ over n, i, j of dy[n, k, i, j] · x[n, c, i·s + u·d - p, j·s + v·d - p].

use super::{Conv2d, Operator, behind_the_loss};
use crate::{Cost, Dim, TensorType};

/// dx of a convolution. Inputs: dy, weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv2dInputGradient {
    /// Of what.
    pub conv: Conv2d,
    /// Height and width of the convolution's input: strides leave several that give the same dy.
    pub size: [Dim; 2],
}

impl Operator for Conv2dInputGradient {
    fn kind(&self) -> &'static str {
        "Conv2dInputGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let expected = || format!("the gradient of {} and its weight", self.conv.describe());
        let [dy, weight] = inputs else {
            return Err(expected());
        };
        let [height, width] = self.size.clone();
        let batch = dy.shape.first().cloned().ok_or_else(expected)?;
        let x = TensorType::f32([batch, self.conv.in_channels.into(), height, width]);
        let is_output = self.conv.infer(&[&x])?[0] == **dy;
        match is_output && **weight == weight_type(&self.conv) {
            true => Ok(vec![x]),
            false => Err(expected()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[0].elements() * self.conv.macs_per_output())
    }

    fn describe(&self) -> String {
        format!("{}.input_gradient", self.conv.describe())
    }
}

/// dw of a convolution. Inputs: x, dy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv2dWeightGradient {
    /// Of what.
    pub conv: Conv2d,
}

impl Operator for Conv2dWeightGradient {
    fn kind(&self) -> &'static str {
        "Conv2dWeightGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let expected = || format!("input and output gradient of {}", self.conv.describe());
        let [x, dy] = inputs else {
            return Err(expected());
        };
        match self.conv.infer(&[*x])?[0] == **dy {
            true => Ok(vec![weight_type(&self.conv)]),
            false => Err(expected()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::macs(inputs[1].elements() * self.conv.macs_per_output())
    }

    fn describe(&self) -> String {
        format!("{}.weight_gradient", self.conv.describe())
    }
}

behind_the_loss!(Conv2dInputGradient, Conv2dWeightGradient);

fn weight_type(conv: &Conv2d) -> TensorType {
    TensorType::f32(conv.weight_shape().into_iter().map(Dim::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amount;

    #[test]
    fn gradients_cost_what_the_convolution_costs() {
        let conv = Conv2d::new(6, 4, 3)
            .stride(2)
            .padding(1)
            .groups(2)
            .no_bias();
        let x = TensorType::f32([2, 6, 11, 8].map(Dim::from));
        let y = &conv.infer(&[&x]).unwrap()[0];
        let Amount::Known(macs) = conv.cost(&[&x], &[y]).macs else {
            panic!("a convolution's cost is known")
        };
        let dw = Conv2dWeightGradient { conv: conv.clone() };
        let weight = &dw.infer(&[&x, y]).unwrap()[0];
        assert_eq!(weight.to_string(), "f32 [4, 3, 3, 3]");
        assert_eq!(dw.cost(&[&x, y], &[weight]), Cost::macs(macs.clone()));
        let size = [11, 8].map(Dim::from);
        let dx = Conv2dInputGradient { conv, size };
        assert_eq!(dx.infer(&[y, weight]).unwrap()[0], x);
        assert_eq!(dx.cost(&[y, weight], &[&x]), Cost::macs(macs));
        assert!(dx.infer(&[&x, weight]).is_err() && dw.infer(&[y, y]).is_err());
    }
}
