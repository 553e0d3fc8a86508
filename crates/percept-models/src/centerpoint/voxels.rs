//! Points to voxels and their means, sample by sample, as an op of the graph.

use std::sync::{Arc, OnceLock};

use percept_graph::{
    Builder, Cost, CustomOp, DType, Dim, Op, OpContext, Operator, Tensor, TensorType, ValueId,
};
use percept_kernels::Cpu;
use percept_kernels::voxelize::{VoxelGrid, voxelize as voxelize_sample};

/// The grid that the sparse backbone works on, z y x: OpenPCDet adds one empty layer at the top.
pub(super) fn sparse_cells(grid: &VoxelGrid) -> [usize; 3] {
    let [x, y, z] = grid.cells();
    [z + 1, y, x]
}

/// The mean of each voxel [V, channels] and its site [V, 4].
pub(super) fn voxelize(
    b: &mut Builder,
    grid: &VoxelGrid,
    points: ValueId,
    counts: ValueId,
) -> [ValueId; 2] {
    let op: Arc<dyn CustomOp> = Arc::new(Voxelize { grid: grid.clone() });
    let mut outputs = Vec::new();
    b.module("vfe", "MeanVFE", |b| {
        outputs = b.call_many("voxelize", Op::Custom(op), &[points, counts]);
        outputs[0]
    });
    match outputs[..] {
        [features, sites] => [features, sites],
        // The builder has kept the error that says why.
        _ => [points, points],
    }
}

#[derive(Debug)]
struct Voxelize {
    grid: VoxelGrid,
}

impl Operator for Voxelize {
    fn kind(&self) -> &'static str {
        "Voxelize"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [points, counts] = inputs else {
            return Err("points and counts".to_owned());
        };
        if points.shape.len() != 2 || counts.shape.len() != 1 || counts.dtype != DType::I32 {
            return Err("points [P, C] and counts i32 [N]".to_owned());
        }
        let voxels = Dim::symbol("voxels");
        Ok(vec![
            TensorType::f32([voxels.clone(), points.shape[1].clone()]),
            TensorType::i32([voxels, 4.into()]),
        ])
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        // A subtraction, a division and a comparison an axis; then one addition for each value of the point.
        let points = &inputs[0].shape;
        Cost::elementwise(points[0].clone() * (points[1].clone() + 9), 1)
    }

    fn describe(&self) -> String {
        "Voxelize()".to_owned()
    }
}

impl CustomOp for Voxelize {
    fn run(
        &self,
        context: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [points, counts] = inputs else {
            return Err("takes points and counts".to_owned());
        };
        let (&[rows, channels], mut rest) = points.read::<f32>()? else {
            return Err("takes points [P, C]".to_owned());
        };
        let counts = counts.values::<i32>()?;
        let mut samples = Vec::with_capacity(counts.len());
        for &count in counts {
            let count = usize::try_from(count).map_err(|_| format!("counts {counts:?}"))?;
            let (own, others) = rest
                .split_at_checked(count.saturating_mul(channels))
                .ok_or_else(|| format!("counts {counts:?} are more than {rows} points"))?;
            rest = others;
            samples.push((own, OnceLock::new()));
        }
        let cpu: &Cpu = context.machine()?;
        cpu.parallel(samples.len(), &|sample, _| {
            let (own, made) = &samples[sample];
            made.get_or_init(|| voxelize_sample(own, channels, &self.grid));
        });
        let (mut features, mut sites) = (Vec::new(), Vec::new());
        let made = samples.into_iter().map(|(_, made)| made.into_inner());
        for (sample, voxels) in made.flatten().enumerate() {
            features.extend(voxels.features);
            for [z, y, x] in voxels.coords {
                sites.extend([sample, z as usize, y as usize, x as usize].map(|at| at as i32));
            }
        }
        if !rest.is_empty() {
            return Err(format!("counts {counts:?} are fewer than {rows} points"));
        }
        let voxels = sites.len() / 4;
        Ok(vec![
            Tensor::from_values([voxels, channels], features)?,
            Tensor::from_values([voxels, 4], sites)?,
        ])
    }
}
