//! Concatenations that cost nothing: their inputs are written where they belong in the output.

use std::collections::BTreeMap;

use percept_graph::{Graph, Op, ValueId};
use percept_kernels::aligned::LINE_BYTES;

use crate::kernel::Kernel;
use crate::lowering::{Lowered, LoweredNode};

/// Where each joined value stands: the concatenation's output, and the offset in bytes there.
pub type Joined = BTreeMap<ValueId, (ValueId, usize)>;

/// The concatenations among `kernels` whose inputs can be written straight into the output: one block of memory after the
/// other, each made by a kernel of this segment that has no other plans for its output, and read last by the concatenation.
pub fn joinable(
    graph: &Graph,
    lowered: &Lowered,
    kernels: &[(usize, Kernel)],
    last_use: &BTreeMap<ValueId, usize>,
    bytes: impl Fn(ValueId) -> usize,
) -> Joined {
    let producers: BTreeMap<ValueId, (&LoweredNode, &Kernel)> = kernels
        .iter()
        .map(|(index, kernel)| (&lowered.steps[*index], kernel))
        .filter(|(step, _)| step.outputs.len() == 1)
        .map(|(step, kernel)| (step.outputs[0], (step, kernel)))
        .collect();
    let mut joined = Joined::new();
    for (index, kernel) in kernels {
        if !kernel.joins {
            continue;
        }
        let step = &lowered.steps[*index];
        let mut places = Joined::new();
        let mut offset = 0;
        for &value in &step.inputs {
            let writes_freely = producers.get(&value).is_some_and(|(step, kernel)| {
                let is_concat = matches!(graph.node(step.node).op, Op::Concat(_));
                !is_concat && !kernel.defines_sizes() && kernel.in_place_operand.is_none()
            });
            if writes_freely && last_use.get(&value) == Some(index) && offset % LINE_BYTES == 0 {
                places.insert(value, (step.outputs[0], offset));
            }
            offset += bytes(value);
        }
        // An input that comes twice has one place only.
        if places.len() == step.inputs.len() {
            joined.extend(places);
        }
    }
    joined
}
