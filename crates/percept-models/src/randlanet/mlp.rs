//! The layer that RandLA-Net repeats: a linear map of each point, a norm, an activation.

use percept_graph::{Activation, BatchNorm, Builder, Linear, LinearWeight, ValueId};

use super::config::{RandLaNet, Variant};

/// What stands around the linear map of a shared MLP.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedMlp {
    pub weight: LinearWeight,
    pub norm: bool,
    pub activation: Option<Activation>,
}

impl SharedMlp {
    /// A norm and no activation.
    pub(super) const NORM: SharedMlp = SharedMlp {
        weight: LinearWeight::Pointwise,
        norm: true,
        activation: None,
    };
    /// The linear map alone.
    pub(super) const BARE: SharedMlp = SharedMlp {
        norm: false,
        ..Self::NORM
    };

    /// With this activation.
    pub(super) const fn then(self, activation: Activation) -> Self {
        Self {
            activation: Some(activation),
            ..self
        }
    }

    /// Stored as a transposed convolution.
    pub(super) const fn transposed(self) -> Self {
        Self {
            weight: LinearWeight::PointwiseTransposed,
            ..self
        }
    }
}

/// The activation in front of most sums.
pub(super) const LEAKY: Activation = Activation::LeakyRelu { slope: LEAKY_SLOPE };
pub(super) const LEAKY_SLOPE: f32 = 0.2;

impl RandLaNet {
    /// The norms of this variant, which the public code has on maps.
    pub(super) fn norm(&self, channels: usize) -> BatchNorm {
        let momentum = match self.variant {
            Variant::Faithful => 0.01,
            Variant::Seed { .. } => 0.99,
        };
        BatchNorm {
            eps: 1e-6,
            momentum,
            ..BatchNorm::new(channels)
        }
    }

    /// Rows [R, in] to rows [R, out].
    pub(super) fn shared_mlp(
        &self,
        b: &mut Builder,
        name: &str,
        x: ValueId,
        [inputs, outputs]: [usize; 2],
        mlp: SharedMlp,
    ) -> ValueId {
        b.module(name, "SharedMLP", |b| {
            let x = b.leaf(
                "conv",
                Linear::new(inputs, outputs).stored(mlp.weight),
                &[x],
            );
            let x = match mlp.norm {
                true => b.batch_norm("batch_norm", x, self.norm(outputs)),
                false => x,
            };
            match mlp.activation {
                Some(activation) => b.leaf("activation_fn", activation, &[x]),
                None => x,
            }
        })
    }
}
