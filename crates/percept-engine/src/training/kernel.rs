//! A kernel of a training graph with everything decided but the tensors: parameters are tensors here.

use percept_graph::{Activation, Bindings, Node};
use percept_kernels::Cpu;

use super::forward::Forward;
use super::gradient::Gradient;
use super::update::Update;
use crate::EngineError;
use crate::options::Mode;

/// What a node of a training graph runs.
pub enum TrainingKernel {
    Forward(Forward),
    Gradient(Gradient),
    Update(Update),
}

/// What a kernel is prepared for.
pub struct Sizes<'a> {
    /// Shapes of the inputs, parameters included.
    pub inputs: &'a [Vec<usize>],
    /// Shapes of the outputs.
    pub outputs: &'a [Vec<usize>],
    /// Every size that is known.
    pub bindings: &'a Bindings,
}

impl TrainingKernel {
    /// The kernel of a node that only training graphs have, or whose parameters are values, with what was fused into it.
    pub fn prepare(
        cpu: &Cpu,
        node: &Node,
        activation: Option<Activation>,
        mode: Mode,
        sizes: &Sizes<'_>,
    ) -> Result<Self, EngineError> {
        if let Some(kernel) = Forward::prepare(cpu, &node.op, activation, mode, sizes)? {
            return Ok(Self::Forward(kernel));
        }
        let gradient = Gradient::prepare(&node.op, mode, sizes).map(Self::Gradient);
        let kernel = gradient.or_else(|| Update::prepare(&node.op).map(Self::Update));
        Ok(kernel.expect("the others have inference kernels"))
    }

    /// Which operand the first output may overwrite, when that operand dies here.
    pub fn in_place_operand(&self) -> Option<usize> {
        match self {
            Self::Forward(kernel) => kernel.in_place_operand(),
            Self::Gradient(kernel) => kernel.in_place_operand(),
            Self::Update(_) => None,
        }
    }

    /// Runs. With `in_place` the operand that may be overwritten is in the first output already and not among the reads;
    /// outputs that start as an operand ([`updates`](crate::state::updates)) hold it.
    pub fn run(
        &self,
        cpu: &Cpu,
        reads: &[&[f32]],
        in_place: bool,
        writes: &mut [&mut [f32]],
    ) -> Result<(), String> {
        let mut reads = reads.to_vec();
        if let Some(operand) = self.in_place_operand().filter(|_| !in_place) {
            writes[0].copy_from_slice(reads.remove(operand));
        }
        match self {
            Self::Forward(kernel) => kernel.run(cpu, &reads, writes),
            Self::Gradient(kernel) => {
                kernel.run(cpu, &reads, writes);
                Ok(())
            }
            Self::Update(kernel) => {
                kernel.run(cpu, &reads, writes);
                Ok(())
            }
        }
    }
}
