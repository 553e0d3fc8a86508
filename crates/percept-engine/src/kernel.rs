//! One kernel with everything decided: shapes, algorithm, packed weights.

use std::fmt::Display;
use std::sync::Arc;

use percept_graph::Tensor;
use percept_kernels::Cpu;

use crate::empty::OnMap;
use crate::operands::Operands;

type Fill = dyn Fn(&Cpu, &mut Operands<'_>) -> Result<(), String> + Send + Sync;
type Between = dyn Fn(&Cpu, &[f32]) -> Vec<f32> + Send + Sync;
type Define = dyn Fn(&Cpu, &Operands<'_>) -> Result<Vec<Tensor<'static>>, String> + Send + Sync;

/// What a kernel does.
pub enum Work {
    /// Fills outputs whose sizes are known. The message of an error says what was wrong with the operands.
    Fill(Box<Fill>),
    /// Gives tensors whose sizes it alone knows.
    Define(Box<Define>),
    /// Nothing: the value exists.
    Constant(Arc<Tensor<'static>>),
}

/// A kernel and its arguments, except for the tensors that flow through.
pub struct Kernel {
    /// What it does.
    pub work: Work,
    /// The operand that the first output may overwrite, when that operand dies here.
    pub in_place_operand: Option<usize>,
    /// How the work is done, for reports, when there is a choice.
    pub algorithm: Option<String>,
    /// What a layer that was fused into this one multiplies, for who observes it.
    pub between: Option<Box<Between>>,
    /// Whether the output is the operands, one after the other in memory.
    pub joins: bool,
    /// What it does to a map of which parts are known.
    pub on_map: Option<OnMap>,
}

impl Kernel {
    /// A kernel that fills outputs of known sizes.
    pub fn new(
        fill: impl Fn(&Cpu, &mut Operands<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Work::Fill(Box::new(fill)))
    }

    /// A kernel that defines the sizes of its outputs.
    pub fn defining(
        define: impl Fn(&Cpu, &Operands<'_>) -> Result<Vec<Tensor<'static>>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::of(Work::Define(Box::new(define)))
    }

    /// A value that needs no kernel.
    pub fn constant(value: Arc<Tensor<'static>>) -> Self {
        Self::of(Work::Constant(value))
    }

    fn of(work: Work) -> Self {
        Self {
            work,
            in_place_operand: None,
            algorithm: None,
            between: None,
            joins: false,
            on_map: None,
        }
    }

    /// May overwrite this operand.
    pub fn in_place(mut self, operand: impl Into<Option<usize>>) -> Self {
        self.in_place_operand = operand.into();
        self
    }

    /// Computes by this algorithm.
    pub fn by(mut self, algorithm: impl Display) -> Self {
        self.algorithm = Some(algorithm.to_string());
        self
    }

    /// Can show what the layer multiplies that was fused into it, from its first operand.
    pub fn showing(
        mut self,
        between: impl Fn(&Cpu, &[f32]) -> Vec<f32> + Send + Sync + 'static,
    ) -> Self {
        self.between = Some(Box::new(between));
        self
    }

    /// Only puts its operands one after the other.
    pub fn joining(mut self, joins: bool) -> Self {
        self.joins = joins;
        self
    }

    /// Follows maps of which parts are known.
    pub fn on_map(mut self, on_map: impl Into<Option<OnMap>>) -> Self {
        self.on_map = on_map.into();
        self
    }

    /// Whether the kernel alone knows the sizes of its outputs.
    pub fn defines_sizes(&self) -> bool {
        matches!(self.work, Work::Define(_))
    }
}
