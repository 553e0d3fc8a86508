//! Self-attention on a packed projection, with its gradient.

use percept_graph::{Attention, AttentionGradient};
use percept_kernels::attention::{AttentionShape, HeadsView, packed_attention};
use percept_kernels::gradient;
use percept_kernels::reference::{self, Real};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// Self-attention on a packed projection [N, T, 3 D].
fn shape(op: &Attention, qkv: &[usize]) -> AttentionShape {
    AttentionShape::self_attention(qkv[0], qkv[1], op.heads, op.head_width())
}

/// The factor on q kᵀ.
fn scale<T: Real>(op: &Attention) -> T {
    T::from_f64(1.0 / (op.head_width() as f64).sqrt())
}

impl Execute for Attention {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = shape(self, at.x());
        Ok(Kernel::new(move |cpu, io| {
            packed_attention(cpu, &shape, io.read(0)?, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let shape = shape(self, run.dims());
        let [q, k, v] = HeadsView::packed_qkv(run.x(), &shape);
        reference::attention(&shape, scale(self), q, k, v, None, run.y());
        Ok(())
    }
}

impl Execute for AttentionGradient {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let shape = shape(&self.attention, at.x());
        Ok(Kernel::new(move |cpu, io| {
            let (qkv, dy) = (io.read(0)?, io.read(2)?);
            gradient::packed_attention_gradient(cpu, &shape, qkv, dy, io.write(0)?);
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (shape, scale) = (shape(&self.attention, run.dims()), scale(&self.attention));
        let (qkv, dy) = (run.x(), run.arg(2));
        reference::gradient::packed_attention_gradient(&shape, scale, qkv, dy, run.y());
        Ok(())
    }
}
