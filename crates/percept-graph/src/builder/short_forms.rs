//! Short forms for the ops that networks use on every line.

use super::Builder;
use crate::graph::ValueId;
use crate::ops::*;
use crate::{Dim, Initializer};

impl Builder {
    /// Convolution.
    pub fn conv2d(&mut self, name: &str, x: ValueId, conv: Conv2d) -> ValueId {
        self.leaf(name, conv, &[x])
    }
    /// Batch normalisation.
    pub fn batch_norm(&mut self, name: &str, x: ValueId, norm: BatchNorm) -> ValueId {
        self.leaf(name, norm, &[x])
    }
    /// Layer normalisation of the last axis.
    pub fn layer_norm(&mut self, name: &str, x: ValueId, features: usize, eps: f32) -> ValueId {
        self.leaf(name, LayerNorm { features, eps }, &[x])
    }
    /// Linear layer.
    pub fn linear(
        &mut self,
        name: &str,
        x: ValueId,
        in_features: usize,
        out_features: usize,
    ) -> ValueId {
        self.leaf(name, Linear::new(in_features, out_features), &[x])
    }
    /// ReLU.
    pub fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
        self.leaf(name, Activation::Relu, &[x])
    }
    /// a + b.
    pub fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.call(
            name,
            Binary {
                kind: BinaryKind::Add,
            },
            &[a, b],
        )
    }
    /// a · b.
    pub fn mul(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.call(
            name,
            Binary {
                kind: BinaryKind::Mul,
            },
            &[a, b],
        )
    }
    /// The same elements under another shape.
    pub fn reshape(
        &mut self,
        name: &str,
        x: ValueId,
        shape: impl IntoIterator<Item = Dim>,
    ) -> ValueId {
        self.call(
            name,
            Reshape {
                shape: shape.into_iter().collect(),
            },
            &[x],
        )
    }
    /// All axes from `axis` on become one.
    pub fn flatten(&mut self, name: &str, x: ValueId, axis: usize) -> ValueId {
        let shape = self.shape(x);
        let (kept, merged) = shape.split_at(axis.min(shape.len()));
        let merged: Dim = merged.iter().product();
        self.reshape(name, x, kept.iter().cloned().chain([merged]))
    }
    /// Axes in another order.
    pub fn permute(&mut self, name: &str, x: ValueId, order: &[usize]) -> ValueId {
        self.call(
            name,
            Permute {
                order: order.to_vec(),
            },
            &[x],
        )
    }
    /// `length` elements from `start` along an axis.
    pub fn slice(
        &mut self,
        name: &str,
        x: ValueId,
        axis: usize,
        start: impl Into<Dim>,
        length: impl Into<Dim>,
    ) -> ValueId {
        self.call(
            name,
            Slice {
                axis,
                start: start.into(),
                length: length.into(),
            },
            &[x],
        )
    }
    /// Values one after the other along an axis.
    pub fn concat(&mut self, name: &str, values: &[ValueId], axis: usize) -> ValueId {
        self.call(name, Concat { axis }, values)
    }
    /// A parameter as a value.
    pub fn parameter(&mut self, name: &'static str, shape: &[usize]) -> ValueId {
        self.call(
            name,
            ParameterValue {
                name,
                shape: shape.to_vec(),
                init: Initializer::Normal(0.02),
                trainable: true,
            },
            &[],
        )
    }
    /// A buffer as a value: saved with the parameters, but moved by [`Builder::buffer_becomes`] instead of gradients.
    pub fn buffer(&mut self, name: &'static str, shape: &[usize], init: Initializer) -> ValueId {
        self.call(
            name,
            ParameterValue {
                name,
                shape: shape.to_vec(),
                init,
                trainable: false,
            },
            &[],
        )
    }
}
