//! One call: its memory is lent, and its kernel runs.

use std::ops::Range;

use percept_graph::{Bindings, Tensor};
use percept_kernels::conv::Coverage;
use percept_kernels::{Arena, ArenaError};

use crate::EngineError;
use crate::empty::{OnMap, Reached, Settled};
use crate::kernel::Work;
use crate::operands::{Operands, View, ViewMut};
use crate::options::Empty;
use crate::precision::is_contraction;
use crate::probe::Observe;
use crate::program::Program;
use crate::schedule::{Call, Located, Place};
use crate::segment::bind_output;

impl Program {
    /// Runs one call. A kernel that defines sizes gives its tensors back: they are stored at once when their place is planned already, and
    /// returned when the next segment has to plan it.
    pub(crate) fn execute(
        &mut self,
        call: &Call,
        inputs: &[View<'_>],
        bindings: &mut Bindings,
        reached: &mut Reached,
    ) -> Result<Vec<Tensor<'static>>, EngineError> {
        let step = &self.lowered.steps[call.step];
        let name = || self.graph.node(step.node).name.clone();
        let failed = |message| EngineError::Node {
            node: name(),
            message,
        };
        let memory = Memory {
            arena: &mut self.arena,
            state: &mut self.state,
        };
        let lent = memory.lend(call, inputs);
        let mut io = lent.map_err(|source| EngineError::Plan {
            node: name(),
            source,
        })?;
        let known = match &call.kernel.on_map {
            Some(on_map) if self.tracked.contains(&call.step) => {
                reached.follow(step, on_map, &io).map_err(failed)?
            }
            _ => None,
        };
        if call.joined {
            return Ok(Vec::new());
        }
        if let Some(mask) = known
            && let Some(OnMap::Layer(layer)) = &call.kernel.on_map
            && let Some(empty) = self.empty.as_ref().and_then(|empty| empty.get(call.step))
        {
            let coverage = match self.options.empty {
                Empty::Skip => Coverage::Reached,
                _ => Coverage::All,
            };
            let settled = Settled {
                reached: &mask,
                empty,
                coverage,
            };
            let share = layer.settle(&self.cpu, &mut io, &settled).map_err(failed)?;
            reached.computed.insert(call.step, share);
            return Ok(Vec::new());
        }
        match &call.kernel.work {
            Work::Fill(fill) => fill(&self.cpu, &mut io).map_err(failed)?,
            Work::Constant(value) => {
                let target = io.write_bytes(0).map_err(failed)?;
                target.copy_from_slice(value.bytes());
            }
            Work::Define(define) => {
                let tensors = define(&self.cpu, &io).map_err(failed)?;
                for (tensor, &value) in tensors.iter().zip(&step.outputs) {
                    bind_output(&self.graph.value(value).ty, tensor.shape(), bindings)
                        .map_err(failed)?;
                }
                if io.output_count() == 0 {
                    return Ok(tensors);
                }
                for (position, tensor) in tensors.iter().enumerate() {
                    let target = io.write_bytes(position).map_err(failed)?;
                    target.copy_from_slice(tensor.bytes());
                }
            }
        }
        Ok(Vec::new())
    }
}

impl Program {
    /// Shows what a call is about to multiply, where it is a layer with weights.
    pub(crate) fn show(
        &mut self,
        call: &Call,
        inputs: &[View<'_>],
        bindings: &Bindings,
        observe: &mut Observe<'_>,
    ) -> Result<(), EngineError> {
        let step = &self.lowered.steps[call.step];
        let node = self.graph.node(step.node);
        if !is_contraction(node) || call.joined {
            return Ok(());
        }
        let shape = self.graph.value_shape(node.inputs[0], bindings)?;
        let memory = Memory {
            arena: &mut self.arena,
            state: &mut self.state,
        };
        let io = memory
            .lend(call, inputs)
            .map_err(|source| EngineError::Plan {
                node: node.name.clone(),
                source,
            })?;
        let failed = |message| EngineError::Node {
            node: node.name.clone(),
            message,
        };
        let x: &[f32] = io.read(0).map_err(failed)?;
        if step.fused.input_scale.is_none() {
            observe(node, x);
            if let (Some(behind), Some(between)) = (&step.fused.depthwise, &call.kernel.between) {
                observe(self.graph.node(behind.node), &between(&self.cpu, x));
            }
            return Ok(());
        }
        // The kernel multiplies factors onto its input; what it multiplies by weights is the product.
        let factors: &[f32] = io.read(1).map_err(failed)?;
        let plane = shape[2..].iter().product::<usize>().max(1);
        let planes = x.chunks(plane).zip(factors);
        let product: Vec<f32> = planes
            .flat_map(|(plane, factor)| plane.iter().map(move |x| x * factor))
            .collect();
        observe(node, &product);
        Ok(())
    }
}

/// The two memories that kernels work in.
struct Memory<'a> {
    arena: &'a mut Arena,
    state: &'a mut Arena,
}

impl<'a> Memory<'a> {
    /// Lends the memory of a call.
    fn lend(self, call: &'a Call, inputs: &[View<'a>]) -> Result<Operands<'a>, ArenaError> {
        let of = |pick: fn(&Place) -> Option<Range<usize>>| {
            let ranges = |located: &Located| pick(&located.place);
            let reads = call.reads.iter().flatten().filter_map(ranges);
            let writes = call.writes.iter().filter_map(ranges);
            (reads.collect::<Vec<_>>(), writes.collect::<Vec<_>>())
        };
        let (arena_reads, arena_writes) = of(Place::arena);
        let (state_reads, state_writes) = of(Place::state);
        let (arena_reads, arena_writes) = self.arena.views(&arena_reads, &arena_writes)?;
        let (state_reads, state_writes) = self.state.views(&state_reads, &state_writes)?;
        let mut arena_reads = arena_reads.into_iter();
        let mut state_reads = state_reads.into_iter();
        let mut read = |Located { place, dtype }: &'a Located| match place {
            Place::Arena(_) => View::new(*dtype, arena_reads.next().expect("one view a range")),
            Place::State(_) => View::new(*dtype, state_reads.next().expect("one view a range")),
            Place::Input(i, part) => inputs[*i].part(part.clone()),
            Place::Constant(tensor, part) => View::of(tensor).part(part.clone()),
        };
        let reads = call.reads.iter();
        let reads = reads.map(|located| located.as_ref().map(&mut read));
        let reads = reads.collect();
        let mut arena_writes = arena_writes.into_iter();
        let mut state_writes = state_writes.into_iter();
        let writes = call.writes.iter().map(|Located { place, dtype }| {
            let bytes = match place {
                Place::State(_) => state_writes.next(),
                _ => arena_writes.next(),
            };
            ViewMut::new(*dtype, bytes.expect("one view a range"))
        });
        Ok(Operands::new(reads, writes.collect()))
    }
}
