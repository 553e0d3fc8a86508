//! What lies between a point and its neighbours, as ops of the graph: relative positions, and which numbers of a list count.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, DType, Dim, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};

use super::levels::LevelValues;

/// In which order a variant has the ten numbers between a point p and its neighbour n, at distance d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionOrder {
    /// d, p - n, p, n.
    DistanceFirst,
    /// p, n, p - n, d.
    DistanceLast,
}

/// Numbers between a point and its neighbour.
pub(super) const POSITION_CHANNELS: usize = 10;

impl PositionOrder {
    /// The ten numbers.
    pub(super) fn encode(self, p: [f32; 3], n: [f32; 3]) -> [f32; POSITION_CHANNELS] {
        let [x, y, z] = [p[0] - n[0], p[1] - n[1], p[2] - n[2]];
        let d = ((x * x + y * y) + z * z).sqrt();
        match self {
            Self::DistanceFirst => [d, x, y, z, p[0], p[1], p[2], n[0], n[1], n[2]],
            Self::DistanceLast => [p[0], p[1], p[2], n[0], n[1], n[2], x, y, z, d],
        }
    }

    /// The positions of all neighbours of a level, f32 [P·K, 10].
    pub(super) fn call(self, b: &mut Builder, name: &str, level: &LevelValues) -> ValueId {
        let op: Arc<dyn CustomOp> = Arc::new(RelativePositions(self));
        b.call(name, Op::Custom(op), &[level.points, level.neighbours])
    }
}

/// Points f32 [P, 3] and their neighbours i32 [P, K] to relative positions [P·K, 10].
#[derive(Debug)]
struct RelativePositions(PositionOrder);

impl Operator for RelativePositions {
    fn kind(&self) -> &'static str {
        "RelativePositions"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [p, k] = lists(inputs)?;
        Ok(vec![TensorType::f32([p * k, POSITION_CHANNELS.into()])])
    }

    fn cost(&self, _: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        // Three differences, three squares, two sums and a root.
        Cost::elementwise(outputs[0].shape[0].clone(), 9)
    }

    fn describe(&self) -> String {
        format!("RelativePositions({:?})", self.0)
    }
}

impl CustomOp for RelativePositions {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [points, neighbours] = inputs else {
            return Err("takes points and neighbours".to_owned());
        };
        let points = points.values::<f32>()?.as_chunks::<3>().0;
        let (&[rows, k], neighbours) = neighbours.read::<i32>()? else {
            return Err("takes neighbours [P, K]".to_owned());
        };
        let mut positions = Vec::with_capacity(neighbours.len() * POSITION_CHANNELS);
        for (point, list) in points.iter().zip(neighbours.chunks_exact(k.max(1))) {
            for &neighbour in list {
                let neighbour = usize::try_from(neighbour)
                    .ok()
                    .and_then(|at| points.get(at));
                let neighbour = neighbour.ok_or("a neighbour is no point")?;
                positions.extend(self.0.encode(*point, *neighbour));
            }
        }
        Ok(vec![Tensor::from_values(
            [rows * k, POSITION_CHANNELS],
            positions,
        )?])
    }
}

/// Neighbours i32 [P, K] and their lists to what is added to scores [P, K, 1] before a softmax over the neighbours: nothing, or
/// for numbers that only fill a list up so little that they get no weight.
#[derive(Debug)]
struct ListMask;

/// Below every score; not infinite, because gradients multiply it with 0.
const NOT_LISTED: f32 = -1e30;

/// The mask of a level.
pub(super) fn list_mask(b: &mut Builder, name: &str, level: &LevelValues) -> ValueId {
    let op: Arc<dyn CustomOp> = Arc::new(ListMask);
    b.call(name, Op::Custom(op), &[level.neighbours, level.lists])
}

impl Operator for ListMask {
    fn kind(&self) -> &'static str {
        "ListMask"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [neighbours, lists] if neighbours.shape.len() == 2 && lists.shape.len() == 2 => {
                let [p, k] = [neighbours.shape[0].clone(), neighbours.shape[1].clone()];
                Ok(vec![TensorType::f32([p, k, 1.into()])])
            }
            _ => Err("neighbours i32 [P, K] and lists i32 [N, 2]".to_owned()),
        }
    }

    fn cost(&self, _: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::movement()
    }

    fn describe(&self) -> String {
        "ListMask()".to_owned()
    }
}

impl CustomOp for ListMask {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [neighbours, lists] = inputs else {
            return Err("takes neighbours and lists".to_owned());
        };
        let (&[rows, k], _) = neighbours.read::<i32>()? else {
            return Err("takes neighbours [P, K]".to_owned());
        };
        let mut mask = Vec::with_capacity(rows * k);
        for &[points, listed] in lists.values::<i32>()?.as_chunks::<2>().0 {
            let list = (0..k).map(|at| {
                if (at as i32) < listed {
                    0.0
                } else {
                    NOT_LISTED
                }
            });
            (0..points).for_each(|_| mask.extend(list.clone()));
        }
        Ok(vec![Tensor::from_values([rows, k, 1], mask)?])
    }
}

/// [P, K] of points [P, 3] and neighbours i32 [P, K].
fn lists(inputs: &[&TensorType]) -> Result<[Dim; 2], String> {
    match inputs {
        [points, neighbours]
            if points.shape.len() == 2
                && neighbours.shape.len() == 2
                && points.shape[0] == neighbours.shape[0]
                && neighbours.dtype == DType::I32 =>
        {
            Ok([neighbours.shape[0].clone(), neighbours.shape[1].clone()])
        }
        _ => Err("points [P, 3] and neighbours i32 [P, K]".to_owned()),
    }
}
