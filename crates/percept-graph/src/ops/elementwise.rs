//! Elementwise arithmetic of two values, with NumPy's broadcasting; the learned scale of a residual
//! branch; and dropout, which does nothing in an inference graph.

use super::{Operator, one};
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
#[derive(Clone, Debug, PartialEq)]
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
