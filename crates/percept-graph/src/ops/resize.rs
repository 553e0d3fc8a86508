//! Resizing maps [N, C, H, W] to [N, C, H', W'].
//!
//! Output pixel o reads around the coordinate (o + 1/2) · scale - 1/2 (half-pixel centres). Antialiased
//! modes widen the filter by the scale when shrinking and normalise its weights.

use super::{Operator, behind_the_loss, one_map};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, TensorType};

/// The filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ResizeMode {
    Nearest,
    Bilinear,
    /// Cubic convolution with a = -0.75.
    Bicubic,
    BilinearAntialias,
    /// Cubic convolution with a = -0.5.
    BicubicAntialias,
}

/// The step between neighbouring output pixels, in input pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ResizeScale {
    /// input size / output size.
    Sizes,
    /// input size / (output size + offset), as DINOv2 without registers asks PyTorch to do.
    OutputOffset(f64),
}

/// Resizes to `size`; a map that has this size already passes unchanged.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Resize {
    pub mode: ResizeMode,
    pub size: [Dim; 2],
    pub scale: ResizeScale,
}

impl Resize {
    /// The step for one axis.
    pub fn step(&self, input: usize, output: usize) -> f64 {
        match self.scale {
            ResizeScale::Sizes => input as f64 / output as f64,
            ResizeScale::OutputOffset(offset) => input as f64 / (output as f64 + offset),
        }
    }
}

impl Operator for Resize {
    fn kind(&self) -> &'static str {
        "Resize"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut y = one_map(inputs, None)?.clone();
        y.shape[2] = self.size[0].clone();
        y.shape[3] = self.size[1].clone();
        Ok(vec![y])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // Two operations a tap; antialiased filters have more taps when they shrink a map.
        let taps_squared = match self.mode {
            ResizeMode::Nearest => 0,
            ResizeMode::Bilinear | ResizeMode::BilinearAntialias => 4,
            ResizeMode::Bicubic | ResizeMode::BicubicAntialias => 16,
        };
        Cost::elementwise(outputs[0].elements(), 2 * taps_squared)
    }

    fn describe(&self) -> String {
        format!(
            "Resize(size=({}, {}), mode={:?})",
            self.size[0], self.size[1], self.mode
        )
    }
}

impl Differentiable for Resize {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (shape, dy) = (back.shape(back.input(0)), back.dy()?);
        let gradient = ResizeGradient {
            resize: self.clone(),
            size: [shape[2].clone(), shape[3].clone()],
        };
        let dx = back.call("grad", gradient, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

/// The adjoint of a resize: every output pixel gives its gradient back to the pixels it was mixed from.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeGradient {
    /// Of what.
    pub resize: Resize,
    /// Height and width of the resize's input.
    pub size: [Dim; 2],
}

impl Operator for ResizeGradient {
    fn kind(&self) -> &'static str {
        "ResizeGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut dx = one_map(inputs, None)?.clone();
        dx.shape[2..].clone_from_slice(&self.size);
        Ok(vec![dx])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        self.resize.cost(&[], inputs)
    }

    fn describe(&self) -> String {
        format!("{}.gradient", self.resize.describe())
    }
}

behind_the_loss!(ResizeGradient);
