//! Tensors as files hold them: an element type, a shape and little-endian bytes, owned or borrowed.

use std::borrow::Cow;
use std::fmt;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use thiserror::Error;

// Files are little-endian; viewing their bytes as numbers without a copy needs the same of the machine.
const _: () = assert!(cfg!(target_endian = "little"));

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// One byte, zero or not.
    Bool,
}

impl DType {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        })
    }
}

/// A Rust type that is a tensor's element type.
pub trait Element: Pod {
    /// The tensor element type that this is.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(f64 => F64, f32 => F32, f16 => F16, bf16 => BF16, i8 => I8, u8 => U8, i32 => I32, i64 => I64);

/// A tensor that contradicts itself, or that is asked for what it does not hold.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TensorError {
    /// The shape's element count does not fit the address space.
    #[error("the shape {0:?} has more elements than memory can address")]
    TooLarge(Vec<usize>),
    /// Shape and bytes disagree.
    #[error("a {dtype} tensor of shape {shape:?} takes {expected} bytes, got {found}")]
    WrongLength {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// The elements have another type.
    #[error("expected {expected} elements, the tensor holds {found}")]
    WrongType {
        /// The type asked for.
        expected: DType,
        /// The tensor's type.
        found: DType,
    },
}

/// Bytes of a tensor of `dtype` and `shape`; none when that overflows.
pub fn byte_length(dtype: DType, shape: &[usize]) -> Option<usize> {
    element_count(shape)?.checked_mul(dtype.size_bytes())
}

/// Elements of a tensor of `shape`; none when that overflows.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size))
}

/// A dense, row-major tensor. Its bytes are owned or borrowed (from a memory map, from a slice).
///
/// ```
/// use percept_data::tensor::{DType, Tensor};
/// let tensor = Tensor::from_values(vec![2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!((tensor.dtype(), tensor.shape()), (DType::F32, &[2, 2][..]));
/// assert_eq!(tensor.to_f32()[3], 4.0);
/// # Ok::<(), percept_data::tensor::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Tensor<'a> {
    /// A tensor over little-endian `bytes`.
    pub fn new(
        dtype: DType,
        shape: Vec<usize>,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Tensor<'a>, TensorError> {
        let bytes = bytes.into();
        match byte_length(dtype, &shape) {
            None => Err(TensorError::TooLarge(shape)),
            Some(expected) if expected != bytes.len() => Err(TensorError::WrongLength {
                dtype,
                shape,
                expected,
                found: bytes.len(),
            }),
            Some(_) => Ok(Tensor {
                dtype,
                shape,
                bytes,
            }),
        }
    }

    /// A tensor that borrows `values`.
    pub fn from_values<T: Element>(
        shape: Vec<usize>,
        values: &'a [T],
    ) -> Result<Tensor<'a>, TensorError> {
        Tensor::new(T::DTYPE, shape, bytemuck::cast_slice::<T, u8>(values))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The size of each axis, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many elements it has.
    pub fn element_count(&self) -> usize {
        self.bytes.len() / self.dtype.size_bytes()
    }

    /// The elements, when they are of type `T`; without a copy when their bytes lie aligned.
    pub fn values<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        if T::DTYPE != self.dtype {
            return Err(TensorError::WrongType {
                expected: T::DTYPE,
                found: self.dtype,
            });
        }
        Ok(view_or_copy(&self.bytes))
    }

    /// The elements as f32 (rounded from f64 and wide integers); without a copy when they are f32 and aligned.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        as_f32(self.dtype, &self.bytes)
    }

    /// Like [`Tensor::to_f32`], keeping a borrow of the original bytes alive where there was one.
    pub fn into_f32(self) -> Cow<'a, [f32]> {
        match self.bytes {
            Cow::Borrowed(bytes) => as_f32(self.dtype, bytes),
            Cow::Owned(bytes) => Cow::Owned(as_f32(self.dtype, &bytes).into_owned()),
        }
    }

    /// The elements as f64, exact but for 64-bit integers above 2^53.
    pub fn to_f64(&self) -> Cow<'_, [f64]> {
        match self.dtype {
            DType::F64 => view_or_copy(&self.bytes),
            DType::I32 => convert(&self.bytes, |value: i32| f64::from(value)),
            DType::I64 => convert(&self.bytes, |value: i64| value as f64),
            _ => Cow::Owned(
                self.to_f32()
                    .iter()
                    .map(|&value| f64::from(value))
                    .collect(),
            ),
        }
    }

    /// The same tensor with its own copy of the bytes.
    pub fn into_owned(self) -> Tensor<'static> {
        Tensor {
            dtype: self.dtype,
            shape: self.shape,
            bytes: Cow::Owned(self.bytes.into_owned()),
        }
    }
}

fn as_f32(dtype: DType, bytes: &[u8]) -> Cow<'_, [f32]> {
    match dtype {
        DType::F32 => view_or_copy(bytes),
        DType::F64 => convert(bytes, |value: f64| value as f32),
        DType::F16 => Cow::Owned(view_or_copy::<f16>(bytes).to_f32_vec()),
        DType::BF16 => Cow::Owned(view_or_copy::<bf16>(bytes).to_f32_vec()),
        DType::I8 => convert(bytes, |value: i8| f32::from(value)),
        DType::U8 => convert(bytes, |value: u8| f32::from(value)),
        DType::I32 => convert(bytes, |value: i32| value as f32),
        DType::I64 => convert(bytes, |value: i64| value as f32),
        DType::Bool => convert(bytes, |value: u8| f32::from(value != 0)),
    }
}

fn view_or_copy<T: Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    bytemuck::try_cast_slice(bytes).map_or_else(|_| convert(bytes, |value: T| value), Cow::Borrowed)
}

fn convert<'a, T: Pod, U: Clone>(bytes: &[u8], convert_one: impl Fn(T) -> U) -> Cow<'a, [U]> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(|element| convert_one(bytemuck::pod_read_unaligned(element)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_converts_to_f32() {
        fn check<T: Element + PartialEq + fmt::Debug>(values: &[T]) {
            let tensor = Tensor::from_values(vec![values.len()], values).unwrap();
            assert_eq!(*tensor.to_f32(), [0.0, 1.0, 100.0], "{}", T::DTYPE);
            assert_eq!(*tensor.to_f64(), [0.0, 1.0, 100.0], "{}", T::DTYPE);
            assert_eq!(*tensor.values::<T>().unwrap(), *values);
        }
        check(&[0.0f64, 1.0, 100.0]);
        check(&[0.0f32, 1.0, 100.0]);
        check(&[0.0, 1.0, 100.0].map(f16::from_f32));
        check(&[0.0, 1.0, 100.0].map(bf16::from_f32));
        check(&[0i8, 1, 100]);
        check(&[0u8, 1, 100]);
        check(&[0i32, 1, 100]);
        check(&[0i64, 1, 100]);
        let truths = Tensor::new(DType::Bool, vec![3], vec![0, 1, 7]).unwrap();
        assert_eq!(*truths.to_f32(), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn aligned_f32_is_borrowed_and_unaligned_f32_is_copied() {
        let values = [1.0f32, 2.0, 3.0];
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let aligned = Tensor::new(DType::F32, vec![3], bytes).unwrap().into_f32();
        assert!(matches!(aligned, Cow::Borrowed(borrowed) if borrowed == values));

        let mut shifted = vec![0];
        shifted.extend_from_slice(bytes);
        // One of the two starts at an address that is no multiple of four.
        for (start, end) in [(1, 13), (0, 12)] {
            let tensor = Tensor::new(DType::F32, vec![3], &shifted[start..end]).unwrap();
            assert_eq!(tensor.to_f32().len(), 3);
            if start == 1 {
                assert_eq!(*tensor.into_f32(), values);
            }
        }
    }

    #[test]
    fn shapes_that_contradict_the_bytes_are_refused() {
        assert_eq!(
            Tensor::from_values(vec![2, 2], &[0.0f32; 3]).unwrap_err(),
            TensorError::WrongLength {
                dtype: DType::F32,
                shape: vec![2, 2],
                expected: 16,
                found: 12
            }
        );
        assert!(matches!(
            Tensor::new(DType::U8, vec![usize::MAX, 2], vec![]),
            Err(TensorError::TooLarge(_))
        ));
        assert!(Tensor::new(DType::U8, vec![usize::MAX, 2, 0], vec![]).is_ok());
        assert!(
            Tensor::from_values(vec![1], &[1.0f32])
                .unwrap()
                .values::<i64>()
                .is_err()
        );
    }

    #[test]
    fn scalars_and_empty_tensors_work() {
        let scalar = Tensor::from_values(vec![], &[7i64]).unwrap();
        assert_eq!(
            (scalar.element_count(), &*scalar.to_f32()),
            (1, &[7.0f32][..])
        );
        let empty = Tensor::new(DType::F64, vec![0, 4], Vec::new()).unwrap();
        assert!(empty.to_f32().is_empty() && empty.to_f64().is_empty());
    }
}
