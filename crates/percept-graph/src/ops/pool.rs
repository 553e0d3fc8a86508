//! Pooling on maps [N, C, H, W]: the maximum or the mean of a window. Windows are padded with -∞ for the
//! maximum, and with zeros that count (PyTorch's default) or do not count for the mean.

use super::{
    AdaptiveAvgPool2dGradient, AvgPool2dGradient, MaxPool2dGradient, Operator, one_map,
    window_output,
};
use crate::training::{Backward, Differentiable};
use crate::{Cost, TensorType};

/// Maximum of a square window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MaxPool2d {
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
}

/// Mean of a square window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AvgPool2d {
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub count_include_pad: bool,
}

/// Mean of bins that divide the map evenly into a map of `output` rows and columns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AdaptiveAvgPool2d {
    pub output: [usize; 2],
}

fn pooled(
    x: &TensorType,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Result<Vec<TensorType>, String> {
    if kernel == 0 || stride == 0 || padding > kernel / 2 {
        return Err(format!(
            "a window and stride of at least 1 and padding of at most half the window, not {kernel}, {stride}, {padding}"
        ));
    }
    let mut y = x.clone();
    for axis in [2, 3] {
        y.shape[axis] = window_output(&x.shape[axis], kernel, stride, padding, 1);
    }
    Ok(vec![y])
}

impl Operator for MaxPool2d {
    fn kind(&self) -> &'static str {
        "MaxPool2d"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        pooled(
            one_map(inputs, None)?,
            self.kernel,
            self.stride,
            self.padding,
        )
    }
    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::elementwise(outputs[0].elements(), (self.kernel * self.kernel) as i64)
    }
    fn describe(&self) -> String {
        let Self {
            kernel,
            stride,
            padding,
        } = self;
        format!(
            "MaxPool2d(kernel_size={kernel}, stride={stride}, padding={padding}, dilation=1, ceil_mode=False)"
        )
    }
}

impl Operator for AvgPool2d {
    fn kind(&self) -> &'static str {
        "AvgPool2d"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        pooled(
            one_map(inputs, None)?,
            self.kernel,
            self.stride,
            self.padding,
        )
    }
    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::elementwise(outputs[0].elements(), (self.kernel * self.kernel) as i64)
    }
    fn describe(&self) -> String {
        let Self {
            kernel,
            stride,
            padding,
            ..
        } = self;
        format!("AvgPool2d(kernel_size={kernel}, stride={stride}, padding={padding})")
    }
}

impl Operator for AdaptiveAvgPool2d {
    fn kind(&self) -> &'static str {
        "AdaptiveAvgPool2d"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut y = one_map(inputs, None)?.clone();
        y.shape[2] = self.output[0].into();
        y.shape[3] = self.output[1].into();
        Ok(vec![y])
    }
    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }
    fn describe(&self) -> String {
        let [h, w] = self.output;
        if h == w {
            format!("AdaptiveAvgPool2d(output_size={h})")
        } else {
            format!("AdaptiveAvgPool2d(output_size=({h}, {w}))")
        }
    }
}

impl Differentiable for MaxPool2d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, dy) = (back.input(0), back.dy()?);
        let dx = back.call("grad", MaxPool2dGradient { pool: self.clone() }, &[x, dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for AvgPool2d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (shape, dy) = (back.shape(back.input(0)), back.dy()?);
        let gradient = AvgPool2dGradient {
            pool: self.clone(),
            size: [shape[2].clone(), shape[3].clone()],
        };
        let dx = back.call("grad", gradient, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for AdaptiveAvgPool2d {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (shape, dy) = (back.shape(back.input(0)), back.dy()?);
        let gradient = AdaptiveAvgPool2dGradient {
            size: [shape[2].clone(), shape[3].clone()],
        };
        let dx = back.call("grad", gradient, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dim;

    #[test]
    fn windows_and_bins() {
        let x = TensorType::f32([1, 2, 112, 97].map(Dim::from));
        let pool = MaxPool2d {
            kernel: 3,
            stride: 2,
            padding: 1,
        };
        assert_eq!(
            pool.infer(&[&x]).unwrap()[0].to_string(),
            "f32 [1, 2, 56, 49]"
        );
        let global = AdaptiveAvgPool2d { output: [1, 1] };
        assert_eq!(
            global.infer(&[&x]).unwrap()[0].to_string(),
            "f32 [1, 2, 1, 1]"
        );
        assert!(
            MaxPool2d {
                kernel: 2,
                stride: 2,
                padding: 2
            }
            .infer(&[&x])
            .is_err()
        );
    }
}
