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
use percept_kernels::conv::{BorderAxis, CellMask, Coverage, EmptyResponse, seal_interior};
use percept_kernels::sparse::DenseShape;

use crate::lowering::{Lowered, LoweredNode};
use crate::operands::Operands;
use crate::schedule::Call;

/// What a kernel does to a map of which parts are known.
#[derive(Clone)]
pub enum OnMap {
    /// Makes the map, of sites: the second operand.
    Origin(DenseShape),
    /// Makes a map of maps.
    Layer(Arc<dyn MapLayer>),
}

/// A kernel from maps to a map that knows how the empty parts of its operands come out.
pub trait MapLayer: Send + Sync {
    /// How far borders are felt behind it.
    fn extent(&self, before: Extent) -> Extent {
        before
    }

    /// Its answer to small maps of one sample.
    fn small(&self, cpu: &Cpu, inputs: &[&SmallMap]) -> SmallMap;

    /// The cells that the reached cells of its operands reach.
    fn reached(&self, inputs: &[&CellMask]) -> CellMask;

    /// Whether it can leave out what is known.
    fn skips(&self) -> bool {
        false
    }

    /// Runs with the unreached cells set to the answer to the empty map; gives the share computed.
    fn settle(&self, _: &Cpu, _: &mut Operands<'_>, _: &Settled<'_>) -> Result<f64, String> {
        Err("cannot leave out parts of its map".to_owned())
    }
}

/// What is known of a map before it is computed.
#[derive(Clone, Copy)]
pub struct Settled<'a> {
    /// Where sites reach.
    pub reached: &'a CellMask,
    /// The answer to the empty map.
    pub empty: &'a EmptyResponse,
    /// Whether the rest is computed all the same.
    pub coverage: Coverage,
}

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
pub struct SmallMap {
    /// Height and width.
    pub size: [usize; 2],
    /// Channel by channel.
    pub data: Vec<f32>,
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
            let map = match &call.kernel.on_map {
                Some(OnMap::Origin(shape)) => {
                    let [height, width] = extents.small;
                    let data = vec![0.0; shape.channels * shape.cells[0] * height * width];
                    Some(SmallMap {
                        size: extents.small,
                        data,
                    })
                }
                Some(OnMap::Layer(layer)) => {
                    let inputs = step.reads().map(|value| maps.get(&value));
                    let inputs: Option<Vec<&SmallMap>> = inputs.collect();
                    inputs.map(|inputs| layer.small(cpu, &inputs))
                }
                None => None,
            };
            let Some(mut map) = map else { continue };
            let axes = extents.axes(step.outputs[0]);
            seal_interior(map.size, axes, &mut map.data);
            if let Some(OnMap::Layer(layer)) = &call.kernel.on_map
                && layer.skips()
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
pub struct Extent {
    /// Cells of the first map that one cell stands for.
    pub scale: usize,
    /// How far, in cells of the first map, a border is felt.
    pub reach: usize,
    /// After how many cells the answer to the empty map repeats, away from the borders.
    pub period: usize,
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
            match &call.kernel.on_map {
                Some(OnMap::Origin(shape)) => real = [shape.cells[1], shape.cells[2]],
                Some(OnMap::Layer(layer)) => extent = layer.extent(extent),
                None => {}
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

/// Which cells of each value some site reaches, while a run goes on.
#[derive(Debug, Default)]
pub struct Reached {
    by_value: BTreeMap<ValueId, Arc<CellMask>>,
    /// The share of its tiles that each skipping step computed.
    pub computed: BTreeMap<usize, f64>,
}

impl Reached {
    /// Notes what a step reaches, when that is known of all its operands, and returns it.
    pub fn follow(
        &mut self,
        step: &LoweredNode,
        on_map: &OnMap,
        io: &Operands<'_>,
    ) -> Result<Option<Arc<CellMask>>, String> {
        let mask = match on_map {
            OnMap::Origin(shape) => {
                let mut mask = CellMask::new(shape.samples, shape.cells[1], shape.cells[2]);
                for &[sample, _, row, column] in io.read::<i32>(1)?.as_chunks::<4>().0 {
                    mask.set(sample as usize, row as usize, column as usize);
                }
                mask
            }
            OnMap::Layer(layer) => {
                let inputs: Option<Vec<&CellMask>> = step.reads().map(|v| self.get(v)).collect();
                let Some(inputs) = inputs else {
                    return Ok(None);
                };
                layer.reached(&inputs)
            }
        };
        let mask = Arc::new(mask);
        self.by_value.insert(step.outputs[0], Arc::clone(&mask));
        Ok(Some(mask))
    }

    fn get(&self, value: ValueId) -> Option<&CellMask> {
        self.by_value.get(&value).map(|mask| &**mask)
    }
}
