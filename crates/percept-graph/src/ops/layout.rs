//! Ops that move or rename data: reshape, permute, concatenate, slice, pad, expand.

use super::{Operator, one};
use crate::training::{Backward, Differentiable};
use crate::{Cost, Dim, TensorType};

/// The same elements under another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Reshape {
    pub shape: Vec<Dim>,
}

impl Operator for Reshape {
    fn kind(&self) -> &'static str {
        "Reshape"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        let y = TensorType {
            dtype: x.dtype,
            shape: self.shape.clone(),
        };
        if y.elements() != x.elements() {
            return Err(format!("{} elements, as the new shape has", y.elements()));
        }
        Ok(vec![y])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        format!("Reshape([{}])", dims.join(", "))
    }
}

/// Axis i of the output is axis order[i] of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Permute {
    pub order: Vec<usize>,
}

impl Operator for Permute {
    fn kind(&self) -> &'static str {
        "Permute"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        let mut seen = self.order.clone();
        seen.sort_unstable();
        if seen != (0..x.shape.len()).collect::<Vec<_>>() {
            return Err(format!(
                "an order of its {} axes, not {:?}",
                x.shape.len(),
                self.order
            ));
        }
        let shape = self
            .order
            .iter()
            .map(|&axis| x.shape[axis].clone())
            .collect();
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape,
        }])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!("Permute({:?})", self.order)
    }
}

/// Values one after the other along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Concat {
    pub axis: usize,
}

impl Operator for Concat {
    fn kind(&self) -> &'static str {
        "Concat"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let expected = || format!("values that agree on every axis but {}", self.axis);
        let (first, rest) = inputs.split_first().ok_or("at least one value")?;
        let mut y = (*first).clone();
        if self.axis >= y.shape.len() {
            return Err(expected());
        }
        for value in rest {
            let agree = value.shape.len() == y.shape.len()
                && (0..y.shape.len()).all(|i| i == self.axis || value.shape[i] == first.shape[i]);
            if !agree {
                return Err(expected());
            }
            y.shape[self.axis] = &y.shape[self.axis] + &value.shape[self.axis];
        }
        Ok(vec![y])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!("Concat(axis={})", self.axis)
    }
}

/// `length` elements from `start` along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Slice {
    pub axis: usize,
    pub start: Dim,
    pub length: Dim,
}

impl Operator for Slice {
    fn kind(&self) -> &'static str {
        "Slice"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut y = one(inputs)?.clone();
        let size = y
            .shape
            .get_mut(self.axis)
            .ok_or_else(|| format!("an axis {}", self.axis))?;
        let left = size.clone() - self.start.clone() - self.length.clone();
        if left.as_const().is_some_and(|left| left < 0) {
            return Err(format!(
                "at least {} + {} elements on axis {}",
                self.start, self.length, self.axis
            ));
        }
        *size = self.length.clone();
        Ok(vec![y])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        format!(
            "Slice(axis={}, start={}, length={})",
            self.axis, self.start, self.length
        )
    }
}

/// Repeats axes of size 1 to this shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Expand {
    pub shape: Vec<Dim>,
}

impl Operator for Expand {
    fn kind(&self) -> &'static str {
        "Expand"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = one(inputs)?;
        let fits = x.shape.len() == self.shape.len()
            && x.shape
                .iter()
                .zip(&self.shape)
                .all(|(from, to)| from == to || *from == Dim::from(1));
        if !fits {
            return Err("axes of size 1 where the new shape differs".to_owned());
        }
        Ok(vec![TensorType {
            dtype: x.dtype,
            shape: self.shape.clone(),
        }])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        format!("Expand([{}])", dims.join(", "))
    }
}

/// Zeros around the elements of an axis: the adjoint of [`Slice`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Pad {
    pub axis: usize,
    pub before: Dim,
    pub after: Dim,
}

impl Operator for Pad {
    fn kind(&self) -> &'static str {
        "Pad"
    }
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let mut y = one(inputs)?.clone();
        let size = y
            .shape
            .get_mut(self.axis)
            .ok_or_else(|| format!("an axis {}", self.axis))?;
        *size = size.clone() + self.before.clone() + self.after.clone();
        Ok(vec![y])
    }
    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }
    fn describe(&self) -> String {
        let Self {
            axis,
            before,
            after,
        } = self;
        format!("Pad(axis={axis}, before={before}, after={after})")
    }
}

impl Differentiable for Reshape {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (shape, dy) = (back.shape(back.input(0)), back.dy()?);
        let dx = back.reshape("grad", dy, shape);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for Permute {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let mut order = vec![0; self.order.len()];
        for (to, &from) in self.order.iter().enumerate() {
            order[from] = to;
        }
        let dy = back.dy()?;
        let dx = back.call("grad", Permute { order }, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for Concat {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (axis, dy) = (self.axis, back.dy()?);
        let mut start = Dim::from(0);
        for position in 0..back.input_count() {
            let length = back.shape(back.input(position))[axis].clone();
            if back.wants(position) {
                let slice = Slice {
                    axis,
                    start: start.clone(),
                    length: length.clone(),
                };
                let part = back.call("grad", slice, &[dy]);
                back.give(position, part);
            }
            start = start + length;
        }
        Ok(())
    }
}

impl Differentiable for Slice {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (whole, dy) = (back.shape(back.input(0))[self.axis].clone(), back.dy()?);
        let pad = Pad {
            axis: self.axis,
            before: self.start.clone(),
            after: whole - self.start.clone() - self.length.clone(),
        };
        let dx = back.call("grad", pad, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for Pad {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let slice = Slice {
            axis: self.axis,
            start: self.before.clone(),
            length: back.shape(back.input(0))[self.axis].clone(),
        };
        let dy = back.dy()?;
        let dx = back.call("grad", slice, &[dy]);
        back.give(0, dx);
        Ok(())
    }
}

impl Differentiable for Expand {
    fn vector_jacobian(&self, back: &mut Backward<'_>) -> Result<(), String> {
        let (shape, dy) = (back.shape(back.input(0)), back.dy()?);
        let dx = back.unbroadcast("grad", dy, shape);
        back.give(0, dx);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_move_as_told() {
        let x = TensorType::f32([Dim::symbol("N"), Dim::from(6), Dim::from(4)]);
        let shape = |op: &dyn Operator| op.infer(&[&x]).map(|types| types[0].to_string());
        let n = Dim::symbol("N");
        assert_eq!(
            shape(&Reshape {
                shape: vec![n.clone(), 24.into()]
            })
            .unwrap(),
            "f32 [N, 24]"
        );
        assert!(
            shape(&Reshape {
                shape: vec![n, 23.into()]
            })
            .is_err()
        );
        assert_eq!(
            shape(&Permute {
                order: vec![0, 2, 1]
            })
            .unwrap(),
            "f32 [N, 4, 6]"
        );
        assert!(
            shape(&Permute {
                order: vec![0, 2, 2]
            })
            .is_err()
        );
        assert_eq!(
            shape(&Slice {
                axis: 1,
                start: 1.into(),
                length: 5.into()
            })
            .unwrap(),
            "f32 [N, 5, 4]"
        );
        assert!(
            shape(&Slice {
                axis: 1,
                start: 2.into(),
                length: 5.into()
            })
            .is_err()
        );
        let joined = Concat { axis: 1 }.infer(&[&x, &x]).unwrap();
        assert_eq!(joined[0].to_string(), "f32 [N, 12, 4]");
        assert!(Concat { axis: 3 }.infer(&[&x, &x]).is_err());
    }
}
