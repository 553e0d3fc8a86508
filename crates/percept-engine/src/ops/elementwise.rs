//! Arithmetic on elements: pairs of tensors, factors, a line, and dropout that does nothing.

use percept_graph::{Affine, Binary, BinaryKind, Dropout, LayerScale};
use percept_kernels::elementwise::{self, BinaryOp};
use percept_kernels::reference::{self, Real};
use percept_kernels::strides::broadcast_dims;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The kernels' name of a binary operation.
fn kernel_binary(kind: BinaryKind) -> BinaryOp {
    match kind {
        BinaryKind::Add => BinaryOp::Add,
        BinaryKind::Sub => BinaryOp::Sub,
        BinaryKind::Mul => BinaryOp::Mul,
        BinaryKind::Div => BinaryOp::Div,
        BinaryKind::Max => BinaryOp::Max,
        BinaryKind::Min => BinaryOp::Min,
        BinaryKind::Greater => BinaryOp::Greater,
        BinaryKind::Equal => BinaryOp::Equal,
    }
}

/// Whether broadcasting `small` to `big` leaves the shape of `big`.
fn broadcasts_into(small: &[usize], big: &[usize]) -> bool {
    broadcast_dims(small, big).as_deref() == Some(big)
}

impl Execute for Binary {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (a, b) = (at.x().to_vec(), at.inputs[1].clone());
        let op = kernel_binary(self.kind);
        let commutes = matches!(op, BinaryOp::Add | BinaryOp::Mul);
        let in_place = match (broadcasts_into(&b, &a), broadcasts_into(&a, &b)) {
            (true, _) => Some(0),
            (_, true) if commutes => Some(1),
            _ => None,
        };
        let kernel = Kernel::new(move |cpu, io| {
            if io.is_in_place(0) {
                let y = (io.read(1)?, io.write(0)?);
                elementwise::binary_in_place(cpu, op, y.1, &a, y.0, &b);
            } else if io.is_in_place(1) {
                let y = (io.read(0)?, io.write(0)?);
                elementwise::binary_in_place(cpu, op, y.1, &b, y.0, &a);
            } else {
                let (x, other) = (io.read(0)?, io.read(1)?);
                elementwise::binary(cpu, op, x, &a, other, &b, io.write(0)?);
            }
            Ok(())
        });
        Ok(kernel.in_place(in_place))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (a, b) = (run.dims(), run.dims_of(1));
        reference::binary(kernel_binary(self.kind), run.x(), a, run.arg(1), b, run.y());
        Ok(())
    }
}

impl Execute for LayerScale {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dims, width) = (at.x().to_vec(), [self.features]);
        let mul = BinaryOp::Mul;
        if at.parameters_are_values() {
            let kernel = Kernel::new(move |cpu, io| {
                let factors = io.read(1)?;
                let y = io.modify(0, 0)?;
                elementwise::binary_in_place(cpu, mul, y, &dims, factors, &width);
                Ok(())
            });
            return Ok(kernel.in_place(0));
        }
        let factors = at.vector(0)?;
        let kernel = Kernel::new(move |cpu, io| {
            if io.is_in_place(0) {
                let y = io.write(0)?;
                elementwise::binary_in_place(cpu, mul, y, &dims, &factors, &width);
            } else {
                let (x, y) = (io.read(0)?, io.write(0)?);
                elementwise::binary(cpu, mul, x, &dims, &factors, &width, y);
            }
            Ok(())
        });
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (dims, width, factors) = (run.dims(), [self.features], &run.params[0]);
        reference::binary(BinaryOp::Mul, run.x(), dims, factors, &width, run.y());
        Ok(())
    }
}

impl Execute for Affine {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let divisor = self.divisor.eval(at.bindings)? as f64;
        let (scale, shift) = ((f64::from(self.scale) / divisor) as f32, self.shift);
        let kernel = Kernel::new(move |_, io| {
            for value in io.modify::<f32>(0, 0)? {
                *value = *value * scale + shift;
            }
            Ok(())
        });
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let divisor = self.divisor.eval(run.bindings);
        let divisor = T::from_usize(divisor.map_err(|error| error.to_string())?);
        let scale = T::from_f64(f64::from(self.scale)) / divisor;
        let shift = T::from_f64(f64::from(self.shift));
        for (&x, y) in run.x().iter().zip(run.y()) {
            *y = x * scale + shift;
        }
        Ok(())
    }
}

/// The engine gives such a node no memory of its own: it is another name of its input.
impl Execute for Dropout {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let kernel = Kernel::new(|_, io| io.modify::<f32>(0, 0).map(|_| ()));
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let x = run.x();
        run.y().copy_from_slice(x);
        Ok(())
    }
}
