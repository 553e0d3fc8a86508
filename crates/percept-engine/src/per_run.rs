//! What becomes of intermediate values, chosen run by run.

use std::sync::Arc;

use percept_graph::{Graph, Tensor, WeightSource};
use percept_kernels::{Cpu, CpuError};

use crate::{EngineError, Memory, Options, Outputs, Program};

/// A network that each run tells how to deal with memory. Nothing is packed for a mode before its first run.
///
/// ```
/// use std::sync::Arc;
/// use percept_engine::{Memory, Options, PerRun};
/// # use percept_graph::{Activation, Builder, Tensor, WeightSource, WeightError};
/// # struct NoWeights;
/// # impl WeightSource for NoWeights {
/// #     fn read(&self, name: &str, _: &[usize]) -> Result<std::borrow::Cow<'_, [f32]>, WeightError> {
/// #         Err(WeightError::Missing { name: name.to_owned(), weights: self.describe() })
/// #     }
/// #     fn describe(&self) -> String { "none".to_owned() }
/// # }
/// # let mut b = Builder::new("Net");
/// # let x = b.input("x", [2.into()]);
/// # let y = b.leaf("relu", Activation::Relu, &[x]);
/// # b.output("y", y);
/// # let (graph, weights) = (b.finish()?, Arc::new(NoWeights));
/// // A network with a lean form gives that one for `frugal`.
/// let cpu = percept_kernels::Cpu::new(1)?;
/// let mut network = PerRun::new(graph.clone(), graph, weights, cpu, Options::default())?;
/// let x = Tensor::from_values([2], vec![-1.0f32, 1.0])?;
/// for memory in [Memory::Frugal, Memory::Keep] {
///     let outputs = network.run(&[("x", &x)], memory)?;
///     assert_eq!(outputs.get("y").unwrap().values::<f32>()?, [0.0, 1.0]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PerRun {
    frugal: Program,
    keep: Program,
}

impl PerRun {
    /// A network in the forms that `frugal` and `keep` run: the same inputs, outputs and parameters.
    pub fn new(
        frugal: Graph,
        keep: Graph,
        weights: Arc<dyn WeightSource>,
        cpu: Cpu,
        options: Options,
    ) -> Result<Self, CpuError> {
        let other = Cpu::with_isa(cpu.threads(), cpu.isa())?;
        let program = |graph, cpu, memory| {
            let options = Options { memory, ..options };
            Program::new(graph, Arc::clone(&weights), cpu, options)
        };
        Ok(Self {
            frugal: program(frugal, cpu, Memory::Frugal),
            keep: program(keep, other, Memory::Keep),
        })
    }

    /// Runs in this mode.
    pub fn run(
        &mut self,
        inputs: &[(&str, &Tensor<'_>)],
        memory: Memory,
    ) -> Result<Outputs<'_>, EngineError> {
        self.program(memory).run(inputs)
    }

    /// The program of a mode, to record, profile or plan.
    pub fn program(&mut self, memory: Memory) -> &mut Program {
        match memory {
            Memory::Frugal => &mut self.frugal,
            Memory::Keep => &mut self.keep,
        }
    }
}
