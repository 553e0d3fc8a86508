//! What a kernel works on: memory with the type of its elements.

use std::ops::Range;

use bytemuck::Pod;
use percept_graph::{DType, Element, Tensor, TensorError};

/// Elements of one type, to read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Memory that holds elements of this type, as the plan aligned it.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Self {
        Self { dtype, bytes }
    }

    /// The memory of a tensor.
    pub fn of(tensor: &'a Tensor<'_>) -> Self {
        Self::new(tensor.dtype(), tensor.bytes())
    }

    /// Some of the bytes.
    pub fn part(self, bytes: Range<usize>) -> Self {
        Self::new(self.dtype, &self.bytes[bytes])
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    fn elements<T: Element>(self) -> Result<&'a [T], String> {
        is_type::<T>(self.dtype)?;
        Ok(bytemuck::cast_slice(self.bytes))
    }
}

/// Elements of one type, to write.
#[derive(Debug)]
pub struct ViewMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

impl<'a> ViewMut<'a> {
    /// Memory that holds elements of this type, as the plan aligned it.
    pub fn new(dtype: DType, bytes: &'a mut [u8]) -> Self {
        Self { dtype, bytes }
    }

    /// The memory of a tensor.
    pub fn of(tensor: &'a mut Tensor<'_>) -> Self {
        Self::new(tensor.dtype(), tensor.bytes_mut())
    }

    fn elements<T: Element>(&mut self) -> Result<&mut [T], String> {
        is_type::<T>(self.dtype)?;
        Ok(bytemuck::cast_slice_mut(self.bytes))
    }
}

fn is_type<T: Element>(found: DType) -> Result<(), String> {
    let expected = T::DTYPE;
    match found == expected {
        true => Ok(()),
        false => Err(format!("has no kernel for {found}, only for {expected}")),
    }
}

/// The first `N` outputs, and those behind them.
type FirstAndRest<'o, T, R, const N: usize> = ([&'o mut [T]; N], Vec<&'o mut [R]>);

/// The operands and outputs of one kernel call.
///
/// Operands stand at the positions of the step's reads. An operand that lies in the output it becomes already, because it
/// dies there or because it is state, is no longer lent for reading.
#[derive(Debug)]
pub struct Operands<'a> {
    reads: Vec<Option<View<'a>>>,
    writes: Vec<ViewMut<'a>>,
}

impl<'a> Operands<'a> {
    /// Lends memory for one call.
    pub fn new(reads: Vec<Option<View<'a>>>, writes: Vec<ViewMut<'a>>) -> Self {
        Self { reads, writes }
    }

    /// An operand.
    pub fn read<T: Element>(&self, position: usize) -> Result<&'a [T], String> {
        self.view(position)?.elements()
    }

    /// The operand at a position that may be none.
    pub fn read_if<T: Element>(&self, position: Option<usize>) -> Result<Option<&'a [T]>, String> {
        position.map(|position| self.read(position)).transpose()
    }

    /// Operands from a position on.
    pub fn read_from<T: Element>(&self, first: usize) -> Result<Vec<&'a [T]>, String> {
        (first..self.reads.len())
            .map(|position| self.read(position))
            .collect()
    }

    /// A single number.
    pub fn number(&self, position: usize) -> Result<f64, String> {
        let values = self.read::<f32>(position)?;
        let first = values.first().ok_or("a number is missing")?;
        Ok(f64::from(*first))
    }

    /// Whether an operand lies in the output that it becomes.
    pub fn is_in_place(&self, position: usize) -> bool {
        matches!(self.reads.get(position), Some(None))
    }

    /// An operand as unsigned integers of its elements' width: what moving numbers needs to know of them.
    pub fn read_bits<W: Pod>(&self, position: usize) -> Result<&'a [W], String> {
        Ok(bytemuck::cast_slice(self.view(position)?.bytes))
    }

    /// All operands as unsigned integers of their elements' width.
    pub fn read_all_bits<W: Pod>(&self) -> Result<Vec<&'a [W]>, String> {
        let positions = 0..self.reads.len();
        positions.map(|at| self.read_bits(at)).collect()
    }

    /// The operands as tensors of these shapes.
    pub fn tensors(&self, shapes: &[Vec<usize>]) -> Result<Vec<Tensor<'a>>, String> {
        let lend = |(position, shape): (usize, &Vec<usize>)| {
            let View { dtype, bytes } = self.view(position)?;
            Tensor::new(dtype, shape.clone(), bytes).map_err(|e: TensorError| e.to_string())
        };
        shapes.iter().enumerate().map(lend).collect()
    }

    fn view(&self, position: usize) -> Result<View<'a>, String> {
        let view = self.reads.get(position).copied().flatten();
        view.ok_or_else(|| format!("operand {position} is not there to be read"))
    }

    /// How many outputs there is memory for: none while only the run can tell their sizes.
    pub fn output_count(&self) -> usize {
        self.writes.len()
    }

    /// An output.
    pub fn write<T: Element>(&mut self, position: usize) -> Result<&mut [T], String> {
        let output = self.writes.get_mut(position);
        let output = output.ok_or_else(|| format!("output {position} has no memory"))?;
        output.elements()
    }

    /// All outputs.
    pub fn write_all<T: Element>(&mut self) -> Result<Vec<&mut [T]>, String> {
        self.writes.iter_mut().map(ViewMut::elements).collect()
    }

    /// All outputs of a kernel that has `N`.
    pub fn write_each<T: Element, const N: usize>(&mut self) -> Result<[&mut [T]; N], String> {
        let outputs = self.write_all()?;
        let count = outputs.len();
        let outputs = outputs.try_into();
        outputs.map_err(|_| format!("has {count} outputs with memory, not {N}"))
    }

    /// The first `N` outputs, and those behind them, which are of another type.
    pub fn write_and_rest<T: Element, R: Element, const N: usize>(
        &mut self,
    ) -> Result<FirstAndRest<'_, T, R, N>, String> {
        let count = self.writes.len();
        let (first, rest) = self.writes.split_at_mut(count.min(N));
        let first: Vec<&mut [T]> =
            (first.iter_mut().map(ViewMut::elements)).collect::<Result<_, _>>()?;
        let rest = rest
            .iter_mut()
            .map(ViewMut::elements)
            .collect::<Result<_, _>>()?;
        let first = first.try_into();
        let first = first.map_err(|_| format!("has {count} outputs with memory, not {N}"))?;
        Ok((first, rest))
    }

    /// An output as unsigned integers of its elements' width.
    pub fn write_bits<W: Pod>(&mut self, position: usize) -> Result<&mut [W], String> {
        Ok(bytemuck::cast_slice_mut(self.write_bytes(position)?))
    }

    /// An output's bytes.
    pub fn write_bytes(&mut self, position: usize) -> Result<&mut [u8], String> {
        let output = self.writes.get_mut(position);
        let output = output.ok_or_else(|| format!("output {position} has no memory"))?;
        Ok(output.bytes)
    }

    /// An output that starts as an operand: copied there, unless it lies there already.
    pub fn modify<T: Element>(
        &mut self,
        output: usize,
        operand: usize,
    ) -> Result<&mut [T], String> {
        if !self.is_in_place(operand) {
            let from = self.read(operand)?;
            self.write::<T>(output)?.copy_from_slice(from);
        }
        self.write(output)
    }
}

/// Runs `$body` with `$width` the unsigned integer that is as wide as `$dtype`'s elements.
macro_rules! by_width {
    ($dtype:expr, $width:ident => $body:expr) => {
        match $dtype.size_bytes() {
            1 => {
                type $width = u8;
                $body
            }
            2 => {
                type $width = u16;
                $body
            }
            4 => {
                type $width = u32;
                $body
            }
            _ => {
                type $width = u64;
                $body
            }
        }
    };
}
pub(crate) use by_width;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_type_it_holds_and_as_no_other() {
        let sites = Tensor::from_values([3], vec![1i32, -2, 3]).unwrap();
        let mut sums = Tensor::zeros(DType::F64, [3]).unwrap();
        let mut io = Operands::new(vec![Some(View::of(&sites))], vec![ViewMut::of(&mut sums)]);
        assert_eq!(io.read::<i32>(0).unwrap(), [1, -2, 3]);
        let error = io.read::<f32>(0).unwrap_err();
        assert_eq!(error, "has no kernel for i32, only for f32");
        assert!(io.write::<f32>(0).is_err());
        assert!(io.read::<i32>(1).is_err());
        io.write::<f64>(0).unwrap()[2] = 0.5;
        assert_eq!(sums.values::<f64>().unwrap(), [0.0, 0.0, 0.5]);
    }

    #[test]
    fn an_output_starts_as_its_operand_wherever_that_lies() {
        let x = Tensor::from_values([2], vec![1.0f32, 2.0]).unwrap();
        let mut y = Tensor::from_values([2], vec![7.0f32, 8.0]).unwrap();
        let mut io = Operands::new(vec![None], vec![ViewMut::of(&mut y)]);
        assert!(io.is_in_place(0) && io.read::<f32>(0).is_err());
        assert_eq!(io.modify::<f32>(0, 0).unwrap(), [7.0, 8.0]);
        let mut io = Operands::new(vec![Some(View::of(&x))], vec![ViewMut::of(&mut y)]);
        assert!(!io.is_in_place(0));
        assert_eq!(io.modify::<f32>(0, 0).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn numbers_of_every_width_are_moved_as_bits() {
        fn check<T: Element>(value: T) {
            let x = Tensor::from_values([1], vec![value]).unwrap();
            let mut y = Tensor::zeros(T::DTYPE, [1]).unwrap();
            let mut io = Operands::new(vec![Some(View::of(&x))], vec![ViewMut::of(&mut y)]);
            by_width!(T::DTYPE, W => {
                let from = io.read_bits::<W>(0).unwrap();
                io.write_bits::<W>(0).unwrap().copy_from_slice(from);
            });
            assert_eq!(x, y);
        }
        check(-7i8);
        check(200u8);
        check(-300i16);
        check(f32::NAN);
        check(1 << 20i32);
        check(-0.0f64);
        check(-1i64);
    }
}
