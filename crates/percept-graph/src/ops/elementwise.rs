//! Elementwise arithmetic of two values, with NumPy's broadcasting; the learned scale of a residual
//! branch; and dropout, which does nothing in an inference graph.

use super::{Operator, one};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, Initializer, ParamSpec, TensorType};

/// Which arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryKind {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    /// 1 where a > b, else 0.
    Greater,
    /// 1 where a = b, else 0.
    Equal,
}

/// a ∘ b, broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Binary {
    pub kind: BinaryKind,
}

fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let one = Dim::from(1);
    let axis = |shape: &[Dim], i: usize| {
        (i + shape.len())
            .checked_sub(rank)
            .map_or(one.clone(), |j| shape[j].clone())
    };
    (0..rank)
        .map(|i| match (axis(a, i), axis(b, i)) {
            (x, y) if x == y || y == one => Some(x),
            (x, y) if x == one => Some(y),
            _ => None,
        })
        .collect()
}

impl Operator for Binary {
    fn kind(&self) -> &'static str {
        match self.kind {
            BinaryKind::Add => "Add",
            BinaryKind::Sub => "Sub",
            BinaryKind::Mul => "Mul",
            BinaryKind::Div => "Div",
            BinaryKind::Max => "Max",
            BinaryKind::Min => "Min",
            BinaryKind::Greater => "Greater",
            BinaryKind::Equal => "Equal",
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [a, b] = inputs else {
            return Err("two operands".to_owned());
        };
        let shape = broadcast(&a.shape, &b.shape).ok_or("two operands whose shapes broadcast")?;
        Ok(vec![TensorType {
            dtype: a.dtype,
            shape,
        }])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        Cost::elementwise(outputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        format!("{}()", Operator::kind(self))
    }
}

/// x · gamma on the last axis (LayerScale of CaiT and DINOv2).
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct LayerScale {
    pub features: usize,
    pub initial: f32,
}

impl Operator for LayerScale {
    fn kind(&self) -> &'static str {
        "LayerScale"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        if x.shape.last() != Some(&Dim::from(self.features)) {
            return Err(format!("a last axis of {}", self.features));
        }
        Ok(vec![x.clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 1)
    }

    fn describe(&self) -> String {
        "LayerScale()".to_owned()
    }

    fn params(&self) -> Vec<ParamSpec> {
        vec![ParamSpec::new(
            "gamma",
            [self.features],
            Initializer::Constant(self.initial),
        )]
    }
}

/// Dropout: the identity in an inference graph.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Dropout {
    pub p: f32,
}

impl Operator for Dropout {
    fn kind(&self) -> &'static str {
        "Dropout"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![one(inputs)?.clone()])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!("Dropout(p={}, inplace=True)", self.p)
    }
}

impl Differentiable for Dropout {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let dy = back.dy()?;
        back.give(0, dy);
        Ok(())
    }
}

impl Differentiable for LayerScale {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (x, gamma, dy) = (back.input(0), back.input(1), back.dy()?);
        if back.wants(0) {
            let dx = back.binary("grad_input", BinaryKind::Mul, dy, gamma);
            back.give(0, dx);
        }
        if back.wants(1) {
            let each = back.binary("grad_weight", BinaryKind::Mul, dy, x);
            let dw = back.unbroadcast("grad_weight", each, vec![self.features.into()]);
            back.give(1, dw);
        }
        Ok(())
    }
}

/// Operands that were broadcast get the sum of what went to their copies. Equal operands of a maximum share its gradient,
/// as in PyTorch.
impl Differentiable for Binary {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        use BinaryKind::{Add, Div, Equal, Greater, Max, Min, Mul, Sub};
        let operands = [back.input(0), back.input(1)];
        let [a, b] = operands;
        for position in [0, 1] {
            if !back.wants(position) {
                continue;
            }
            let (dy, suffix) = (back.dy()?, ["grad_a", "grad_b"][position]);
            let other = operands[1 - position];
            let gradient = match (self.kind, position) {
                (Add, _) | (Sub, 0) => dy,
                (Sub, _) => back.call(suffix, Affine::scaled(-1.0), &[dy]),
                (Mul, _) => back.binary(suffix, Mul, dy, other),
                (Div, 0) => back.binary(suffix, Div, dy, b),
                (Div, _) => {
                    let y = back.output(0);
                    let slope = back.binary(suffix, Div, y, b);
                    let gradient = back.binary(suffix, Mul, dy, slope);
                    back.call(suffix, Affine::scaled(-1.0), &[gradient])
                }
                (Max | Min, _) => {
                    let operand = operands[position];
                    let (high, low) = match self.kind {
                        Max => (operand, other),
                        _ => (other, operand),
                    };
                    let won = back.binary(suffix, Greater, high, low);
                    let tied = back.binary(suffix, Equal, a, b);
                    let half = back.call(suffix, Affine::scaled(0.5), &[tied]);
                    let share = back.binary(suffix, Add, won, half);
                    back.binary(suffix, Mul, dy, share)
                }
                // Comparisons are piecewise constant.
                (Greater | Equal, _) => continue,
            };
            let shape = back.shape(operands[position]);
            let gradient = back.unbroadcast(suffix, gradient, shape);
            back.give(position, gradient);
        }
        Ok(())
    }
}

/// x · scale / divisor + shift, with numbers that are known before the run.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Affine {
    pub scale: f32,
    /// A size, for means.
    pub divisor: Dim,
    pub shift: f32,
}

impl Affine {
    /// x · scale.
    pub fn scaled(scale: f32) -> Self {
        Self {
            scale,
            divisor: 1.into(),
            shift: 0.0,
        }
    }

    /// The same plus a number.
    pub fn shifted(self, shift: f32) -> Self {
        Self { shift, ..self }
    }

    /// x / divisor.
    pub fn divided(divisor: Dim) -> Self {
        Self {
            divisor,
            ..Self::scaled(1.0)
        }
    }
}

impl Operator for Affine {
    fn kind(&self) -> &'static str {
        "Affine"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![one(inputs)?.clone()])
    }
    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 2)
    }
    fn describe(&self) -> String {
        let Self {
            scale,
            divisor,
            shift,
        } = self;
        format!("Affine(scale={scale}, divisor={divisor}, shift={shift})")
    }
}

impl Differentiable for Affine {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let dy = back.dy()?;
        let dx = back.call("grad", self.clone().shifted(0.0), &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let shape = |dims: &[i64]| TensorType::f32(dims.iter().map(|&d| Dim::from(d)));
        let add = Binary {
            kind: BinaryKind::Add,
        };
        let rows: [(&[i64], &[i64], Option<&str>); 5] = [
            (&[2, 3], &[2, 3], Some("f32 [2, 3]")),
            (&[2, 8, 4, 4], &[2, 8, 1, 1], Some("f32 [2, 8, 4, 4]")),
            (&[2, 5, 7], &[7], Some("f32 [2, 5, 7]")),
            (&[1, 5, 7], &[4, 1, 7], Some("f32 [4, 5, 7]")),
            (&[2, 3], &[3, 2], None),
        ];
        for (a, b, expected) in rows {
            let got = add
                .infer(&[&shape(a), &shape(b)])
                .ok()
                .map(|types| types[0].to_string());
            assert_eq!(got.as_deref(), expected, "{a:?} + {b:?}");
        }
    }
}
