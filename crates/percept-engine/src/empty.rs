//! Where a map is empty, a network's answer is known: skipping what only repeats it.
//!
//! A bird's-eye map made from sparse sites is mostly zero. Every layer behind it gives, wherever its receptive field holds
//! no site, its answer to the empty map, borders included. That answer is computed once for the weights, by the same
//! kernels, on a map just large enough for the borders not to meet; from then on only tiles that some site reaches are
//! computed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use percept_graph::{Graph, Op, ValueId};
use percept_kernels::Cpu;
use percept_kernels::conv::{BorderAxis, CellMask, EmptyResponse, can_skip, seal_interior};

use crate::defining::as_integers;
use crate::kernel::Kernel;
use crate::lowering::{Lowered, Step};
use crate::schedule::Call;

/// Steps whose output is known where no site reaches.
pub fn tracked_steps(graph: &Graph, lowered: &Lowered) -> BTreeSet<usize> {
    let mut values: BTreeSet<ValueId> = BTreeSet::new();
    let mut steps = BTreeSet::new();
    for (index, step) in lowered.steps.iter().enumerate() {
        let tracked = match &graph.node(step.node).op {
            Op::SparseToDense(_) => true,
            Op::Conv2d(_) | Op::ConvTranspose2d(_) => step.reads().all(|v| values.contains(&v)),
            Op::Concat(concat) => {
                concat.axis == 1 && step.reads().all(|value| values.contains(&value))
            }
            _ => false,
        };
        if tracked {
            values.extend(&step.outputs);
            steps.insert(index);
        }
    }
    steps
}

/// The answers to the empty map of the steps that can skip.
#[derive(Debug, Default)]
pub struct EmptyResponses {
    by_step: BTreeMap<usize, EmptyResponse>,
}

/// One channel-first map of the small run.
struct SmallMap {
    size: [usize; 2],
    data: Vec<f32>,
}

impl EmptyResponses {
    /// Runs the tracked calls on an empty map.
    pub fn compute(
        cpu: &Cpu,
        lowered: &Lowered,
        tracked: &BTreeSet<usize>,
        calls: &[Call],
    ) -> Self {
        let calls: Vec<&Call> = calls
            .iter()
            .filter(|call| tracked.contains(&call.step))
            .collect();
        let extents = Extents::new(lowered, &calls);
        let mut last_use = BTreeMap::new();
        for call in &calls {
            last_use.extend(
                lowered.steps[call.step]
                    .reads()
                    .map(|value| (value, call.step)),
            );
        }
        let mut maps: BTreeMap<ValueId, SmallMap> = BTreeMap::new();
        let mut by_step = BTreeMap::new();
        for call in calls {
            let step = &lowered.steps[call.step];
            let map = match &call.kernel {
                Kernel::ToDense(shape) => {
                    let [height, width] = extents.small;
                    let data = vec![0.0; shape.channels * shape.cells[0] * height * width];
                    Some(SmallMap {
                        size: extents.small,
                        data,
                    })
                }
                kernel => small_run(cpu, kernel, step, &maps),
            };
            let Some(mut map) = map else { continue };
            let axes = extents.axes(step.outputs[0]);
            seal_interior(map.size, axes, &mut map.data);
            if let Kernel::Conv { weights, .. } = &call.kernel
                && can_skip(weights)
            {
                let answer = EmptyResponse::of_sealed(map.size, axes, &map.data);
                by_step.insert(call.step, answer);
            }
            maps.insert(step.outputs[0], map);
            maps.retain(|value, _| last_use.get(value).is_some_and(|&last| last > call.step));
        }
        Self { by_step }
    }

    /// The answer of one step.
    pub fn get(&self, step: usize) -> Option<&EmptyResponse> {
        self.by_step.get(&step)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.by_step.values().map(EmptyResponse::bytes).sum()
    }
}

/// How a value's map relates to the first one.
#[derive(Clone, Copy)]
struct Extent {
    /// Cells of the first map that one cell stands for.
    scale: usize,
    /// How far, in cells of the first map, a border is felt.
    reach: usize,
    /// After how many cells the answer to the empty map repeats, away from the borders.
    period: usize,
}

impl Extent {
    const FIRST: Extent = Extent {
        scale: 1,
        reach: 0,
        period: 1,
    };
}

/// How far borders are felt in each value, and the map to find out on.
struct Extents {
    by_value: BTreeMap<ValueId, Extent>,
    /// Height and width of the first map.
    real: [usize; 2],
    /// The smallest such map on which the borders do not meet and strides fall as on the real one; at most the real one.
    small: [usize; 2],
}

impl Extents {
    fn new(lowered: &Lowered, calls: &[&Call]) -> Self {
        let mut by_value: BTreeMap<ValueId, Extent> = BTreeMap::new();
        let mut real = [0; 2];
        let mut widest = Extent::FIRST;
        for call in calls {
            let step = &lowered.steps[call.step];
            let mut extent = Extent::FIRST;
            for read in step.reads().filter_map(|value| by_value.get(&value)) {
                extent.scale = extent.scale.max(read.scale);
                extent.reach = extent.reach.max(read.reach);
                extent.period = extent.period.max(read.period);
            }
            match &call.kernel {
                Kernel::ToDense(shape) => real = [shape.cells[1], shape.cells[2]],
                Kernel::Conv { shape, .. } => {
                    let felt = (0..2).map(|axis| {
                        let span = shape.dilation[axis] * (shape.kernel[axis] - 1);
                        let padding = shape.padding[axis];
                        padding.max(span.saturating_sub(padding))
                    });
                    extent.reach += felt.max().unwrap_or(0) * extent.scale;
                    let stride = shape.stride[0].max(shape.stride[1]);
                    extent.scale *= stride;
                    extent.period = extent.period.div_ceil(stride);
                }
                Kernel::ConvTranspose { shape, .. } => {
                    extent.scale = (extent.scale / shape.stride[0].min(shape.stride[1])).max(1);
                    extent.period *= shape.stride[0].max(shape.stride[1]);
                    let marks = (0..2).map(|axis| shape.dilation[axis] * (shape.kernel[axis] - 1));
                    extent.reach += marks.max().unwrap_or(0) * extent.scale;
                }
                _ => {}
            }
            widest.scale = widest.scale.max(extent.scale);
            widest.reach = widest.reach.max(extent.reach);
            widest.period = widest.period.max(extent.period);
            by_value.extend(step.outputs.iter().map(|&value| (value, extent)));
        }
        // Both borders, and some cells of the coarsest map between them; strides and periods must fall as on the real map.
        const BETWEEN: usize = 4;
        let step = widest.scale * widest.period;
        let small = real.map(|side| {
            let least = 2 * widest.reach + BETWEEN * step;
            (least.next_multiple_of(step) + side % step).min(side)
        });
        Self {
            by_value,
            real,
            small,
        }
    }

    /// What the borders are in a value's map.
    fn axes(&self, value: ValueId) -> [BorderAxis; 2] {
        let Extent {
            scale,
            reach,
            period,
        } = self.by_value[&value];
        // A whole number of periods, so that the interior begins with the same one on every map.
        let reach = reach.div_ceil(scale).next_multiple_of(period);
        self.real
            .map(|side| BorderAxis::new(side.div_ceil(scale), reach, period))
    }
}

/// Runs a kernel on small maps of one sample.
fn small_run(
    cpu: &Cpu,
    kernel: &Kernel,
    step: &Step,
    maps: &BTreeMap<ValueId, SmallMap>,
) -> Option<SmallMap> {
    let inputs: Vec<&SmallMap> = step.reads().map(|v| maps.get(&v)).collect::<Option<_>>()?;
    let first = inputs.first()?;
    let (kernel, size) = kernel.on_map(first.size)?;
    let len = match &kernel {
        Kernel::Concat { .. } => inputs.iter().map(|map| map.data.len()).sum(),
        Kernel::Conv { shape, .. } => shape.out_len(),
        Kernel::ConvTranspose { shape, .. } => shape.out_len(),
        _ => return None,
    };
    let mut data = vec![0.0; len];
    let reads: Vec<&[f32]> = inputs.iter().map(|map| map.data.as_slice()).collect();
    kernel.run(cpu, &reads, &mut data);
    Some(SmallMap { size, data })
}

/// Which cells of each value some site reaches, while a run goes on.
#[derive(Debug, Default)]
pub struct Reached {
    by_value: BTreeMap<ValueId, Arc<CellMask>>,
    /// The share of its tiles that each skipping step computed.
    pub computed: BTreeMap<usize, f64>,
}

impl Reached {
    /// Notes what a tracked step reaches and returns it.
    pub fn follow(
        &mut self,
        step: &Step,
        kernel: &Kernel,
        reads: &[&[f32]],
    ) -> Option<Arc<CellMask>> {
        let mask = match kernel {
            Kernel::ToDense(shape) => {
                let mut mask = CellMask::new(shape.samples, shape.cells[1], shape.cells[2]);
                for &[sample, _, row, column] in as_integers(reads[1]).as_chunks::<4>().0 {
                    mask.set(sample as usize, row as usize, column as usize);
                }
                mask
            }
            Kernel::Conv { shape, .. } => {
                let mut mask = self.get(step.inputs[0])?.through_conv(shape);
                if let Some(residual) = step.fused.residual {
                    mask.unite(self.get(residual)?);
                }
                mask
            }
            Kernel::ConvTranspose { shape, .. } => {
                self.get(step.inputs[0])?.through_conv_transpose(shape)
            }
            Kernel::Concat { .. } => return self.join(step),
            _ => return None,
        };
        let mask = Arc::new(mask);
        self.by_value.insert(step.outputs[0], Arc::clone(&mask));
        Some(mask)
    }

    /// Notes what a concatenation reaches, when that is known of all its parts.
    pub fn join(&mut self, step: &Step) -> Option<Arc<CellMask>> {
        let mut mask = self.get(*step.inputs.first()?)?.clone();
        for &value in &step.inputs[1..] {
            mask.unite(self.get(value)?);
        }
        let mask = Arc::new(mask);
        self.by_value.insert(step.outputs[0], Arc::clone(&mask));
        Some(mask)
    }

    fn get(&self, value: ValueId) -> Option<&CellMask> {
        self.by_value.get(&value).map(|mask| &**mask)
    }
}
