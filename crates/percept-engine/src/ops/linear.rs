//! Linear layers and products of matrices.

use percept_graph::{Linear, MatMul};
use percept_kernels::gemm::{MatmulShape, PackedLinear, linear, matmul};
use percept_kernels::reference::{self, Real};

use super::prepare::{bias_only, epilogue};
use super::{Execute, Prepare, Reference, integers};
use crate::EngineError;
use crate::kernel::Kernel;
use crate::precision::Precision;
use crate::weights::{Form, scale_rows};

impl Execute for Linear {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        if let Some(grid) = at.step.fused.input_bytes {
            return integers::linear(self, at, grid);
        }
        let (inputs, outputs) = (self.in_features, self.out_features);
        let packing = at.packing(Form::Linear, &[Precision::F32])?;
        if at.parameters_are_values() {
            let (op, bias) = (self.clone(), self.bias.then_some(2));
            return Ok(Kernel::new(move |cpu, io| {
                let weight = op.as_matrix(io.read(1)?);
                let packed = PackedLinear::pack(cpu, &weight, outputs, inputs);
                let epilogue = bias_only(io, bias)?;
                linear(cpu, &packed, io.read(0)?, epilogue, io.write(0)?);
                Ok(())
            }));
        }
        let cpu = at.cpu;
        let (weights, bias) = at.contraction(packing, |weight, scale| {
            let weight = scale_rows(self.as_matrix(&weight), inputs, scale, |row| row);
            PackedLinear::pack(cpu, &weight, outputs, inputs)
        })?;
        let (residual, activation) = (at.residual(), at.activation());
        let kernel = Kernel::new(move |cpu, io| {
            let bias = bias.as_ref().map(|bias| bias.as_slice());
            let epilogue = epilogue(io, bias, residual, activation)?;
            linear(cpu, &weights, io.read(0)?, epilogue, io.write(0)?);
            Ok(())
        });
        Ok(kernel.in_place(residual))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let rows = run.x().len() / self.in_features.max(1);
        let sizes = [rows, self.in_features, self.out_features];
        let (weight, bias) = (self.as_matrix(&run.params[0]), run.param_if(self.bias, 1));
        reference::linear(sizes, run.x(), &weight, bias, run.y());
        Ok(())
    }
}

/// The kernels' form of a product, as its operands are read.
fn shape(op: &MatMul, a: &[usize], b: &[usize]) -> MatmulShape {
    let rank = a.len();
    let (m, k) = match op.transpose_a {
        true => (a[rank - 1], a[rank - 2]),
        false => (a[rank - 2], a[rank - 1]),
    };
    MatmulShape {
        batch: a[..rank - 2].iter().product(),
        m,
        k,
        n: b[rank - if op.transpose_b { 2 } else { 1 }],
        transpose_a: op.transpose_a,
        transpose_b: op.transpose_b,
    }
}

impl Execute for MatMul {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = shape(self, at.x(), &at.inputs[1]);
        Ok(Kernel::new(move |cpu, io| {
            matmul(cpu, &shape, io.read(0)?, io.read(1)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(self, run.dims(), run.dims_of(1));
        reference::matmul(&shape, run.x(), run.arg(1), run.y());
        Ok(())
    }
}
