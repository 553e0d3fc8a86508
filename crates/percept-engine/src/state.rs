//! What outlives a run: where each state lives, and how it gets there.

use std::collections::BTreeMap;
use std::ops::Range;

use percept_graph::{
    Bindings, DType, Graph, State, StateKind, Tensor, TensorError, ValueId, byte_length,
};
use percept_kernels::aligned::LINE_BYTES;

use crate::EngineError;
use crate::lowering::Lowered;
use crate::ops::Execute;
use crate::program::Program;
use crate::schedule::Schedule;

/// The state of a graph, in an arena of its own that every plan and every size shares.
#[derive(Clone, Debug, Default)]
pub struct States {
    ranges: Vec<Range<usize>>,
    bytes: usize,
    /// Values that are written where their state lives.
    homes: BTreeMap<ValueId, usize>,
    /// Values that are copied to their state when the run ends.
    stores: Vec<(ValueId, usize)>,
}

impl States {
    /// Lays out the state of a graph, and has what will be copied at the end kept until then.
    pub fn new(graph: &Graph, lowered: &mut Lowered) -> Self {
        let mut states = Self::default();
        for (position, state) in graph.states().iter().enumerate() {
            let (dtype, shape) = state_type(graph, state);
            let bytes = byte_length(dtype, &shape).expect("the graph has counted its state");
            states.ranges.push(states.bytes..states.bytes + bytes);
            states.bytes += bytes.next_multiple_of(LINE_BYTES);
            let next = lowered.root(state.next);
            if next == state.value {
                continue;
            }
            if updated_in_place(graph, lowered, state.value, next) {
                states.homes.insert(next, position);
            } else {
                lowered.keep(next);
                states.stores.push((next, position));
            }
        }
        states
    }

    /// Bytes of all state.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a state lives, by its position in the graph.
    pub fn range(&self, position: usize) -> Range<usize> {
        self.ranges[position].clone()
    }

    /// Where a value lives that is written straight to its state.
    pub fn home(&self, value: ValueId) -> Option<Range<usize>> {
        self.homes.get(&value).map(|&state| self.range(state))
    }

    /// What is copied to state when the run ends.
    pub fn stores(&self) -> &[(ValueId, usize)] {
        &self.stores
    }
}

/// The element type of a state, and its sizes, which are constant.
fn state_type(graph: &Graph, state: &State) -> (DType, Vec<usize>) {
    let sizes = graph.value_shape(state.value, &Bindings::new());
    let dtype = graph.value(state.value).ty.dtype;
    (dtype, sizes.expect("state has constant sizes"))
}

/// Whether a step changes `state` to `next` in place, and nobody reads the old one afterwards.
fn updated_in_place(graph: &Graph, lowered: &Lowered, state: ValueId, next: ValueId) -> bool {
    let Some(index) = lowered
        .steps
        .iter()
        .position(|step| step.outputs.contains(&next))
    else {
        return false;
    };
    let step = &lowered.steps[index];
    let updates = graph.node(step.node).op.updates();
    let is_pair = updates
        .iter()
        .any(|&(output, operand)| step.outputs[output] == next && step.inputs[operand] == state);
    let reads = |step: &crate::lowering::LoweredNode| step.reads().filter(|&v| v == state).count();
    let read_later = lowered.steps[index + 1..]
        .iter()
        .any(|step| reads(step) > 0);
    is_pair && reads(step) == 1 && !read_later
}

impl Program {
    /// Reads the state that parameters and buffers start with, once; moments start at zero.
    pub(crate) fn load_state(&mut self) -> Result<(), EngineError> {
        if self.state.len() >= self.states.bytes() {
            return Ok(());
        }
        self.state.ensure(self.states.bytes());
        for position in 0..self.graph.states().len() {
            let state = &self.graph.states()[position];
            if state.kind == StateKind::Moment {
                continue;
            }
            let (_, shape) = state_type(&self.graph, state);
            let values = state.read(self.weights.source(), &shape)?;
            let start = Tensor::from_values(shape, values.into_owned())?;
            self.weights.source().release(&state.name);
            self.write_state(position, &start)?;
        }
        Ok(())
    }

    /// Copies what was computed elsewhere to the state it becomes.
    pub(crate) fn store_state(
        &mut self,
        schedule: &Schedule,
        bindings: &Bindings,
    ) -> Result<(), EngineError> {
        for (value, position) in self.states.stores().to_vec() {
            let place = schedule.place(&self.context(bindings), value)?;
            let Some(range) = place.arena() else {
                continue;
            };
            let broken = |source| EngineError::Plan {
                node: "state".to_owned(),
                source,
            };
            let (from, _) = self.arena.views(&[range], &[]).map_err(broken)?;
            let to = self.states.range(position);
            let (_, mut to) = self.state.views(&[], &[to]).map_err(broken)?;
            to[0].copy_from_slice(from[0]);
        }
        Ok(())
    }

    /// The state of this name, as it is now.
    pub(crate) fn state(&mut self, name: &str) -> Result<Tensor<'static>, EngineError> {
        self.load_state()?;
        let position = self.find_state(name)?;
        let (dtype, shape) = state_type(&self.graph, &self.graph.states()[position]);
        let bytes = self.state_bytes(position)?.to_vec();
        Ok(Tensor::new(dtype, shape, bytes)?)
    }

    /// Sets the state of this name.
    pub(crate) fn set_state(&mut self, name: &str, value: &Tensor<'_>) -> Result<(), EngineError> {
        self.load_state()?;
        let position = self.find_state(name)?;
        self.write_state(position, value)
    }

    fn write_state(&mut self, position: usize, value: &Tensor<'_>) -> Result<(), EngineError> {
        let state = &self.graph.states()[position];
        let (dtype, shape) = state_type(&self.graph, state);
        if value.shape() != shape {
            return Err(EngineError::StateShape {
                name: state.name.clone(),
                expected: shape,
                got: value.shape().to_vec(),
            });
        }
        if value.dtype() != dtype {
            let (expected, found) = (dtype, value.dtype());
            return Err(TensorError::WrongType { expected, found }.into());
        }
        self.state_bytes(position)?.copy_from_slice(value.bytes());
        Ok(())
    }

    fn find_state(&self, name: &str) -> Result<usize, EngineError> {
        let states = self.graph.states();
        let position = states.iter().position(|state| state.name == name);
        position.ok_or_else(|| EngineError::UnknownState {
            name: name.to_owned(),
        })
    }

    fn state_bytes(&mut self, position: usize) -> Result<&mut [u8], EngineError> {
        let broken = |source| EngineError::Plan {
            node: "state".to_owned(),
            source,
        };
        let range = self.states.range(position);
        let (_, mut views) = self.state.views(&[], &[range]).map_err(broken)?;
        Ok(views.swap_remove(0))
    }
}
