//! What happens to a finished output tile before it leaves the cache.

use crate::activation::Activation;

/// `y = activation(sum + bias + residual)`, or with what `y` holds in place of the residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// One value for each output channel (convolution) or output column (linear).
    pub bias: Option<&'a [f32]>,
    /// Added element by element; has the output's layout and length.
    pub residual: Option<&'a [f32]>,
    /// The output already holds the residual. Only kernels that say so take one there.
    pub residual_in_place: bool,
    /// Applied last.
    pub activation: Activation,
}

impl Epilogue<'_> {
    /// Panics when a slice does not have its length.
    pub fn check(&self, channels: usize, outputs: usize) {
        if let Some(bias) = self.bias {
            assert_eq!(bias.len(), channels, "length of the bias");
        }
        if let Some(residual) = self.residual {
            assert_eq!(residual.len(), outputs, "length of the residual");
            assert!(!self.residual_in_place, "one residual");
        }
    }

    /// For kernels that write their output without reading it. Panics when the residual is in place.
    pub(crate) fn check_apart(&self) {
        assert!(
            !self.residual_in_place,
            "this kernel overwrites what its output holds"
        );
    }
}
