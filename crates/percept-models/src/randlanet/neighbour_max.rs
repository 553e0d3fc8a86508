//! The maximum over the neighbours of the points that stay, without a row for each neighbour.

use std::sync::Arc;

use percept_graph::{
    Builder, Cost, CustomOp, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};
use percept_kernels::Cpu;
use percept_kernels::points::{
    KeptLists, neighbour_max as maxima, neighbour_max_gradient as maxima_gradient,
};

use super::levels::LevelValues;

/// x [P, C], neighbours i32 [P, K] and the points that stay i32 [P'] to [P', C]: y[q] = max over n in neighbours[kept[q]] of x[n].
#[derive(Debug)]
struct NeighbourMax;

/// The maxima of a level's features for the points of the next.
pub(super) fn neighbour_max(
    b: &mut Builder,
    name: &str,
    x: ValueId,
    level: &LevelValues,
) -> ValueId {
    let op: Arc<dyn CustomOp> = Arc::new(NeighbourMax);
    b.call(name, Op::Custom(op), &[x, level.neighbours, level.kept])
}

/// The operands, read.
struct Operands<'a> {
    x: &'a [f32],
    rows: usize,
    width: usize,
    lists: KeptLists<'a>,
}

impl<'a> Operands<'a> {
    fn read(inputs: &'a [Tensor<'_>]) -> Result<Self, String> {
        let [x, neighbours, kept, ..] = inputs else {
            return Err("takes features, neighbours and the points that stay".to_owned());
        };
        let (&[rows, width], x) = x.read::<f32>()? else {
            return Err("takes features [P, C]".to_owned());
        };
        let (&[_, k], neighbours) = neighbours.read::<i32>()? else {
            return Err("takes neighbours [P, K]".to_owned());
        };
        let kept = kept.values::<i32>()?;
        let exists = |&row: &i32| usize::try_from(row).is_ok_and(|row| row < rows);
        if !neighbours.iter().all(exists) || !kept.iter().all(exists) {
            return Err("a neighbour is no point".to_owned());
        }
        let lists = KeptLists {
            k,
            neighbours,
            kept,
        };
        Ok(Self {
            x,
            rows,
            width,
            lists,
        })
    }

    fn maxima(&self, cpu: &Cpu, y: &mut [f32], winners: Option<&mut [u8]>) {
        maxima(cpu, self.width, self.x, self.lists, y, winners);
    }
}

impl Operator for NeighbourMax {
    fn kind(&self) -> &'static str {
        "NeighbourMax"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [x, neighbours, kept]
                if x.shape.len() == 2 && neighbours.shape.len() == 2 && kept.shape.len() == 1 =>
            {
                Ok(vec![TensorType::f32([
                    kept.shape[0].clone(),
                    x.shape[1].clone(),
                ])])
            }
            _ => Err(
                "features [P, C], neighbours i32 [P, K] and points that stay i32 [P']".to_owned(),
            ),
        }
    }

    fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        let k = inputs
            .get(1)
            .map_or(1.into(), |neighbours| neighbours.shape[1].clone());
        Cost::elementwise(outputs[0].elements() * k, 1)
    }

    fn describe(&self) -> String {
        "NeighbourMax()".to_owned()
    }
}

impl CustomOp for NeighbourMax {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let operands = Operands::read(inputs)?;
        let shape = [operands.lists.kept.len(), operands.width];
        let mut y = vec![0.0; shape[0] * shape[1]];
        operands.maxima(context.machine()?, &mut y, None);
        Ok(vec![Tensor::from_values(shape, y)?])
    }

    fn run_into(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
        outputs: &mut [&mut [f32]],
    ) -> Option<Result<(), String>> {
        let [y] = outputs else { return None };
        let mut run = || {
            Operands::read(inputs)?.maxima(context.machine()?, y, None);
            Ok(())
        };
        Some(run())
    }

    fn gradient(&self) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(NeighbourMaxGradient))
    }
}

/// dx [P, C] of x, neighbours, the points that stay, y and dy [P', C].
#[derive(Debug)]
struct NeighbourMaxGradient;

impl Operator for NeighbourMaxGradient {
    fn kind(&self) -> &'static str {
        "NeighbourMaxGradient"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let x = inputs.first().ok_or("the operands of a maximum")?;
        Ok(vec![(*x).clone()])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let [_, neighbours, _, y, ..] = inputs else {
            return Cost::movement();
        };
        Cost::elementwise(y.elements() * neighbours.shape[1].clone(), 3)
    }

    fn describe(&self) -> String {
        "NeighbourMaxGradient()".to_owned()
    }
}

impl CustomOp for NeighbourMaxGradient {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let operands = Operands::read(inputs)?;
        let (x, dy) = (
            &inputs[0],
            inputs.last().ok_or("takes a gradient")?.values::<f32>()?,
        );
        let (cpu, mut y, mut winners) =
            (context.machine()?, vec![0.0; dy.len()], vec![0; dy.len()]);
        operands.maxima(cpu, &mut y, Some(&mut winners));
        let mut dx = vec![0.0; operands.x.len()];
        maxima_gradient(
            cpu,
            operands.width,
            operands.rows,
            operands.lists,
            &winners,
            dy,
            &mut dx,
        );
        Ok(vec![Tensor::from_values(x.shape().to_vec(), dx)?])
    }
}
