//! Values from nothing: a parameter as it is, and one number everywhere.

use percept_graph::{Constant, ParameterValue};
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

impl Execute for ParameterValue {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let node = at.node();
        Ok(Kernel::constant(at.weights.tensor(at.graph, node)?))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let values = &run.params[0];
        run.y().copy_from_slice(values);
        Ok(())
    }
}

impl Execute for Constant {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let value = self.value;
        Ok(Kernel::new(move |_, io| {
            io.write::<f32>(0)?.fill(value);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        run.y().fill(T::from_f64(f64::from(self.value)));
        Ok(())
    }
}
