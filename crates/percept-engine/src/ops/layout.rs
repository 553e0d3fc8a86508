//! Ops that move data: elements of any type, by their width.

use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Concat, DType, Expand, Pad, Permute, Reshape, Slice};
use percept_kernels::conv::CellMask;
use percept_kernels::reference::Real;
use percept_kernels::strides::{Odometer, broadcast_strides, contiguous_strides};
use percept_kernels::{Cpu, layout};

use super::{Execute, Prepare, Reference};
use crate::EngineError;
use crate::empty::{MapLayer, OnMap, SmallMap};
use crate::kernel::Kernel;
use crate::operands::by_width;

/// y = the elements of x at these strides.
fn pick<T: Copy>(x: &[T], shape: &[usize], strides: &[usize], y: &mut [T]) {
    for (y, offset) in y.iter_mut().zip(Odometer::new(shape, strides)) {
        *y = x[offset];
    }
}

/// The engine gives such a node no memory of its own: it is another name of its input.
impl Execute for Reshape {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let dtype = at.dtype();
        Ok(Kernel::new(move |_, io| {
            by_width!(dtype, W => {
                let x = io.read_bits::<W>(0)?;
                io.write_bits(0)?.copy_from_slice(x);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let x = run.x();
        run.y().copy_from_slice(x);
        Ok(())
    }
}

impl Execute for Permute {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dtype, dims, order) = (at.dtype(), at.x().to_vec(), self.order.clone());
        Ok(Kernel::new(move |cpu, io| {
            by_width!(dtype, W => {
                let x = io.read_bits::<W>(0)?;
                layout::permute(cpu, &dims, &order, x, io.write_bits(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let strides = contiguous_strides(run.dims());
        let strides: Vec<usize> = self.order.iter().map(|&axis| strides[axis]).collect();
        pick(run.x(), run.shape(), &strides, run.y());
        Ok(())
    }
}

impl Execute for Expand {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dtype, from, to) = (at.dtype(), at.x().to_vec(), at.y().to_vec());
        Ok(Kernel::new(move |cpu, io| {
            by_width!(dtype, W => {
                let x = io.read_bits::<W>(0)?;
                layout::expand(cpu, &from, &to, x, io.write_bits(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let strides = broadcast_strides(run.dims(), run.shape());
        pick(run.x(), run.shape(), &strides, run.y());
        Ok(())
    }
}

impl Execute for Slice {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dtype, dims) = (at.dtype(), at.x().to_vec());
        let mut ranges: Vec<Range<usize>> = dims.iter().map(|&side| 0..side).collect();
        let start = self.start.eval(at.bindings)?;
        ranges[self.axis] = start..start + at.y()[self.axis];
        Ok(Kernel::new(move |cpu, io| {
            by_width!(dtype, W => {
                let x = io.read_bits::<W>(0)?;
                layout::slice(cpu, &dims, &ranges, x, io.write_bits(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let start = self.start.eval(run.bindings);
        let start = start.map_err(|error| error.to_string())?;
        let strides = contiguous_strides(run.dims());
        let x = &run.x()[start * strides[self.axis]..];
        pick(x, run.shape(), &strides, run.y());
        Ok(())
    }
}

impl Execute for Pad {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let (dtype, dims) = (at.dtype(), at.x().to_vec());
        let (mut before, mut after) = (vec![0; dims.len()], vec![0; dims.len()]);
        let zeros = self.before.eval(at.bindings)?;
        before[self.axis] = zeros;
        after[self.axis] = at.y()[self.axis] - zeros - dims[self.axis];
        Ok(Kernel::new(move |cpu, io| {
            by_width!(dtype, W => {
                let x = io.read_bits::<W>(0)?;
                layout::pad(cpu, &dims, &before, &after, 0, x, io.write_bits(0)?);
            });
            Ok(())
        }))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let before = self.before.eval(run.bindings);
        let before = before.map_err(|error| error.to_string())?;
        let (x, dims) = (run.x(), run.dims());
        let strides = contiguous_strides(run.shape());
        let y = &mut run.y()[before * strides[self.axis]..];
        for (&x, offset) in x.iter().zip(Odometer::new(dims, &strides)) {
            y[offset] = x;
        }
        Ok(())
    }
}

impl Execute for Concat {
    fn prepare(&self, at: &mut Prepare<'_>) -> Result<Kernel, EngineError> {
        let outer = at.x()[..self.axis].iter().product();
        // Quads of channels follow one another as channels do.
        let dtype = match at.output_form() {
            Some(_) => DType::I8,
            None => at.dtype(),
        };
        let kernel = Kernel::new(move |cpu, io| {
            by_width!(dtype, W => {
                let parts = io.read_all_bits::<W>()?;
                layout::concat(cpu, outer, &parts, io.write_bits(0)?);
            });
            Ok(())
        });
        let on_map = OnMap::Layer(Arc::new(ConcatChannels));
        let on_map = (self.axis == 1).then_some(on_map);
        Ok(kernel.joining(outer == 1).on_map(on_map))
    }

    fn reference<T: Real>(&self, run: &mut Reference<'_, T>) -> Result<(), String> {
        let row = |dims: &[usize]| dims[self.axis..].iter().product::<usize>();
        let width: usize = run.inputs.iter().map(|(_, arg)| row(&arg.shape)).sum();
        let mut start = 0;
        for (_, arg) in run.inputs {
            let row = row(&arg.shape);
            if row > 0 {
                let rows = arg.data.chunks_exact(row);
                for (from, to) in rows.zip(run.y().chunks_exact_mut(width)) {
                    to[start..start + row].copy_from_slice(from);
                }
            }
            start += row;
        }
        Ok(())
    }
}

/// Channels of maps one after the other.
struct ConcatChannels;

impl MapLayer for ConcatChannels {
    fn small(&self, _: &Cpu, inputs: &[&SmallMap]) -> SmallMap {
        let data = inputs.iter().flat_map(|map| &map.data).copied();
        SmallMap {
            size: inputs[0].size,
            data: data.collect(),
        }
    }

    fn reached(&self, inputs: &[&CellMask]) -> CellMask {
        let mut mask = inputs[0].clone();
        for other in &inputs[1..] {
            mask.unite(other);
        }
        mask
    }
}
