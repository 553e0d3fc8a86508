//! Dropout by counters: seed and step come as an operand, the op has a stream of its own.

use percept_graph::RandomDropout;
use percept_kernels::random::{Stream, dropout_in_place};
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

impl Execute for RandomDropout {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let Self { p, stream } = *self;
        let kernel = Kernel::new(move |cpu, io| {
            let &[seed, step] = io.read::<i32>(1)? else {
                return Err("takes a seed and a step".to_owned());
            };
            let stream = Stream::new(seed, step, stream);
            dropout_in_place(cpu, stream, p, io.modify(0, 0)?);
            Ok(())
        });
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let (x, counters) = (run.x(), run.arg(1));
        let [seed, step] = [0, 1].map(|i| counters[i].to_f64() as i32);
        let stream = Stream::new(seed, step, self.stream);
        let scale = T::ONE / (T::ONE - T::from_f64(f64::from(self.p)));
        for (i, (&x, y)) in x.iter().zip(run.y()).enumerate() {
            *y = match stream.uniform(i) >= self.p {
                true => x * scale,
                false => T::ZERO,
            };
        }
        Ok(())
    }
}
