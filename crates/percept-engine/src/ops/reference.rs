//! What an op computes from on the reference engine.

use percept_graph::{Bindings, DType, Tensor};
use percept_kernels::reference::Real;
use percept_kernels::{Cpu, Isa};

use crate::reference::RealTensor;

/// One node on the reference engine: everything is a real number here, indices included.
pub struct Reference<'a, T> {
    /// Operands, with their element types in the graph.
    pub inputs: &'a [(DType, &'a RealTensor<T>)],
    /// Parameters, wherever they come from.
    pub params: &'a [Vec<T>],
    /// The shapes of the outputs; none when only the run can tell them.
    pub shapes: &'a [Vec<usize>],
    /// Every size that is known.
    pub bindings: &'a Bindings,
    /// The outputs, zero at first.
    pub outputs: Vec<Vec<T>>,
    /// The outputs of an op that defines their sizes.
    pub defined: Option<Vec<RealTensor<T>>>,
}

impl<'a, T: Real> Reference<'a, T> {
    /// The numbers of an operand.
    pub fn arg(&self, position: usize) -> &'a [T] {
        &self.inputs[position].1.data
    }

    /// The shape of an operand.
    pub fn dims_of(&self, position: usize) -> &'a [usize] {
        &self.inputs[position].1.shape
    }

    /// The numbers of the first operand.
    pub fn x(&self) -> &'a [T] {
        self.arg(0)
    }

    /// The shape of the first operand.
    pub fn dims(&self) -> &'a [usize] {
        self.dims_of(0)
    }

    /// The number at an operand's position, when there is one.
    pub fn number(&self, position: usize) -> Option<f64> {
        let (_, arg) = self.inputs.get(position)?;
        arg.data.first().map(|value| value.to_f64())
    }

    /// A parameter, when the op has it.
    pub fn param_if(&self, wanted: bool, position: usize) -> Option<&'a [T]> {
        wanted.then(|| self.params[position].as_slice())
    }

    /// The shape of the first output.
    pub fn shape(&self) -> &'a [usize] {
        &self.shapes[0]
    }

    /// The first output.
    pub fn y(&mut self) -> &mut [T] {
        &mut self.outputs[0]
    }

    /// All outputs of an op that has `N`.
    pub fn y_each<const N: usize>(&mut self) -> [&mut [T]; N] {
        let outputs: Vec<&mut [T]> = self.outputs.iter_mut().map(Vec::as_mut_slice).collect();
        outputs
            .try_into()
            .expect("the shape rule declared the outputs")
    }

    /// Lets outputs start as operands: (output, operand).
    pub fn start(&mut self, updates: &[(usize, usize)]) {
        for &(output, operand) in updates {
            let from = self.arg(operand);
            self.outputs[output].copy_from_slice(from);
        }
    }

    /// Runs a selection: it is exact, so its one implementation serves here too.
    pub fn define(
        &mut self,
        run: impl FnOnce(&Cpu, &[Tensor<'_>]) -> Result<Vec<Tensor<'static>>, String>,
    ) -> Result<(), String> {
        let typed = |(dtype, arg): &(DType, &RealTensor<T>)| {
            let values = arg.data.iter().map(|value| value.to_f64());
            let shape = arg.shape.as_slice();
            match dtype {
                DType::I32 => {
                    Tensor::from_values(shape, values.map(|v| v as i32).collect::<Vec<_>>())
                }
                DType::F64 => Tensor::from_values(shape, values.collect::<Vec<_>>()),
                _ => Tensor::from_values(shape, values.map(|v| v as f32).collect::<Vec<_>>()),
            }
        };
        let tensors = self.inputs.iter().map(typed);
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let cpu = Cpu::with_isa(1, Isa::Portable).map_err(|error| error.to_string())?;
        let outputs = run(&cpu, &tensors)?;
        self.defined = Some(outputs.iter().map(RealTensor::of).collect());
        Ok(())
    }
}

/// A number that stands for a row or a site.
pub fn index<T: Real>(value: T) -> usize {
    value.to_f64() as usize
}
