//! Ops that a model brings itself.

use std::sync::Arc;

use percept_graph::{CustomOp, DType, OpContext, Tensor, TensorType};
use percept_kernels::Cpu;
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

impl Execute for Arc<dyn CustomOp> {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (op, shapes) = (Arc::clone(self), at.inputs.to_vec());
        let types = at.graph.output_types(at.node());
        let types: Vec<DType> = types.iter().map(|ty: &&TensorType| ty.dtype).collect();
        let Some(outputs) = at.outputs else {
            return Ok(Kernel::defining(move |cpu, io| {
                run(&op, &types, cpu, &io.tensors(&shapes)?)
            }));
        };
        let declared = outputs.to_vec();
        let all_floats = types.iter().all(|dtype| *dtype == DType::F32);
        Ok(Kernel::new(move |cpu, io| {
            let args = io.tensors(&shapes)?;
            if all_floats
                && let Some(done) = op.run_into(&OpContext::new(cpu), &args, &mut io.write_all()?)
            {
                return done;
            }
            let outputs = run(&op, &types, cpu, &args)?;
            for (position, (output, declared)) in outputs.iter().zip(&declared).enumerate() {
                if output.shape() != declared {
                    let gave = output.shape();
                    return Err(format!("gave a tensor of {gave:?}, declared {declared:?}"));
                }
                io.write_bytes(position)?.copy_from_slice(output.bytes());
            }
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        run.define(|cpu, args| CustomOp::run(&**self, &OpContext::new(cpu), args))
    }
}

fn run(
    op: &Arc<dyn CustomOp>,
    types: &[DType],
    cpu: &Cpu,
    args: &[Tensor<'_>],
) -> Result<Vec<Tensor<'static>>, String> {
    let outputs = op.run(&OpContext::new(cpu), args)?;
    let given: Vec<DType> = outputs.iter().map(Tensor::dtype).collect();
    match given == types {
        true => Ok(outputs),
        false => Err(format!("gave {given:?}, declared {types:?}")),
    }
}
