//! Quantisers, as QuantizeLinear and DequantizeLinear: engines that know the pair compute in integers.
//!
//! Layers behind them sum integers, whatever engine computes them and in whatever type, and what a step stands for is multiplied onto
//! the sums. Sums of integers below 2^24 are exact in f32 too, in any order, and everything else is one rounding by one operator:
//! so engines agree to the last bit, where sums of numbers round differently and one integer that comes out differently moves all behind it.

use percept_graph::{Amax, FakeQuantize, Node, Sign};

use super::{Done, Names, ToOnnx};
use crate::lowering::{Lowering, unsupported};

/// Cut off where kernels do, at 127 steps and at as many below zero or none; then to integers, and those to floats.
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
        let low = match self.grid.sign {
            Sign::Signed => -amax,
            Sign::NonNegative => 0.0,
        };
        let [low, high] = [("low", low), ("high", amax)].map(|(name, x)| l.scalar(node, name, x));
        let clipped = vec![inputs[0].clone(), low, high];
        let clipped = l.step(node, "clip", "Clip", clipped, vec![]);
        // As kernels have it; 127 / amax may be another float.
        let per_unit = match quantizer.scale > 0.0 {
            true => 1.0 / (amax / quantizer.high),
            false => 0.0,
        };
        let per_unit = l.scalar(node, "per_unit", per_unit);
        let steps = l.step(node, "steps", "Mul", vec![clipped, per_unit], vec![]);
        // Engines differ in how they quantise, by a quotient, a product, or a range from -128 up; to integers they all do nothing.
        let rounded = l.step(node, "rounded", "Round", vec![steps], vec![]);
        let one = l.scalar(node, "one", 1.0);
        let zero = l.zero_point(node, self.grid.sign);
        let operands = |x: String| vec![x, one.clone(), zero.clone()];
        let integers = l.step(
            node,
            "integers",
            "QuantizeLinear",
            operands(rounded),
            vec![],
        );
        let floats = l.step(
            node,
            "floats",
            "DequantizeLinear",
            operands(integers),
            vec![],
        );
        let value = node.outputs[0];
        if l.is_read_as_numbers(value) {
            let step = l.scalar(node, "step", quantizer.step());
            l.define(node, "Mul", vec![floats.clone(), step], vec![]);
        }
        l.set_integers(value, floats);
        Ok(())
    }
}
