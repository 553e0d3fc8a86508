//! Simulated quantisers.

use percept_graph::{Amax, FakeQuantize, InputGrid};
use percept_kernels::grid::{self, Grid, reference};
use percept_kernels::reference::Real;

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::kernel::Kernel;

/// The kernels' form of a grid, with the range of the data where none is known beforehand.
fn grid(grid: InputGrid, largest: impl FnOnce() -> f32) -> Grid {
    let amax = match grid.amax {
        Amax::Static(amax) => amax,
        Amax::Dynamic => largest(),
    };
    let quantizer = grid.quantizer(amax);
    Grid {
        scale: quantizer.scale,
        low: quantizer.low,
        high: quantizer.high,
    }
}

impl Execute for FakeQuantize {
    fn prepare(&self, _: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let steps = self.grid;
        let kernel = Kernel::new(move |cpu, io| {
            if io.is_in_place(0) {
                let y = io.write(0)?;
                let grid = grid(steps, || grid::largest_magnitude(cpu, y));
                grid::round_to_grid_in_place(cpu, grid, y);
            } else {
                let x = io.read(0)?;
                let grid = grid(steps, || grid::largest_magnitude(cpu, x));
                grid::round_to_grid(cpu, grid, x, io.write(0)?);
            }
            Ok(())
        });
        Ok(kernel.in_place(0))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let x = run.x();
        let grid = grid(self.grid, || reference::largest_magnitude(x));
        reference::round_to_grid(grid, x, run.y());
        Ok(())
    }
}
