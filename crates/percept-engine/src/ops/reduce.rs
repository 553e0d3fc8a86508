//! Sums, means and extremes over axes.

use percept_graph::{Reduce, ReduceKind};
use percept_kernels::reduce::{ReduceOp, reduce};
use percept_kernels::reference::{self, Real};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The kernels' name of a reduction.
fn kernel_reduction(kind: ReduceKind) -> ReduceOp {
    match kind {
        ReduceKind::Sum => ReduceOp::Sum,
        ReduceKind::Mean => ReduceOp::Mean,
        ReduceKind::Max => ReduceOp::Max,
        ReduceKind::Min => ReduceOp::Min,
    }
}

impl Execute for Reduce {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, dims) = (kernel_reduction(self.kind), at.x().to_vec());
        let axes = self.axes.clone();
        Ok(Kernel::new(move |cpu, io| {
            reduce(cpu, op, &dims, &axes, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (op, dims) = (kernel_reduction(self.kind), run.dims());
        reference::reduce(op, dims, &self.axes, run.x(), run.y());
        Ok(())
    }
}
