//! Quantisers and quantised weights, as QuantizeLinear and DequantizeLinear: engines that know the pair compute in integers.

use percept_graph::{Amax, FakeQuantize, Node, Sign};

use super::{Done, Names, ToOnnx};
use crate::lowering::{Lowering, unsupported};

/// Clip where 0..127 is asked for, because 8 bits without a sign reach to 255; then to integers and back.
impl ToOnnx for FakeQuantize {
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done {
        let Amax::Static(amax) = self.grid.amax else {
            let reason = "ONNX has no symmetric range that every tensor sets itself; quantise with --scheme static";
            return Err(unsupported(node, reason));
        };
        if self.grid.bits != 8 {
            let reason = format!(
                "its opset has integers of 8 bits, not of {}",
                self.grid.bits
            );
            return Err(unsupported(node, reason));
        }
        let quantizer = self.grid.quantizer(amax);
        let is_zero = quantizer.scale == 0.0;
        let mut x = inputs[0].clone();
        if self.grid.sign == Sign::NonNegative || is_zero {
            let low = l.scalar(node, "low", 0.0);
            let high = l.scalar(node, "high", if is_zero { 0.0 } else { amax });
            x = l.step(node, "clip", "Clip", vec![x, low, high], vec![]);
        }
        let scale = l.scalar(node, "scale", if is_zero { 1.0 } else { quantizer.step() });
        let zero = l.zero_point(node, self.grid.sign);
        let operands = |x: String| vec![x, scale.clone(), zero.clone()];
        let integers = l.step(node, "integers", "QuantizeLinear", operands(x), vec![]);
        l.define(node, "DequantizeLinear", operands(integers), vec![]);
        Ok(())
    }
}
