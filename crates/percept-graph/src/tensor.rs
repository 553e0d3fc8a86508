//! Tensors with their values: what files hold, what goes into a network and what comes out of it.

use std::borrow::Cow;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use thiserror::Error;

use crate::{DType, Element};

// Files are little-endian; viewing their bytes as numbers without a copy needs the same of the machine.
const _: () = assert!(cfg!(target_endian = "little"));

/// A tensor that contradicts itself, or that is asked for what it does not hold.
#[derive(Clone, Debug, Error, PartialEq)]
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
    /// An element is no value of the type asked for.
    #[error("element {place} is {value}, which is no {dtype}")]
    NotInType {
        /// Which element.
        place: usize,
        /// Its value.
        value: f64,
        /// The type asked for.
        dtype: DType,
    },
}

impl From<TensorError> for String {
    fn from(error: TensorError) -> String {
        error.to_string()
    }
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

/// A dense, row-major tensor. Its values are owned or borrowed (from a memory map, from a slice, from a program's memory).
///
/// ```
/// use percept_graph::{DType, Tensor};
/// let tensor = Tensor::from_values([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!((tensor.dtype(), tensor.shape()), (DType::F32, &[2, 2][..]));
/// assert_eq!(tensor.values::<f32>()?[3], 4.0);
/// let labels = Tensor::from_values([2], &[7i32, 3])?;
/// assert!(labels.values::<f32>().is_err(), "an integer is no float in disguise");
/// assert_eq!(*labels.to_f32(), [7.0, 3.0]);
/// # Ok::<(), percept_graph::TensorError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    shape: Vec<usize>,
    values: Values<'a>,
}

/// Equal means the same type, shape and bits: a NaN equals itself, and 0.0 is not -0.0.
impl PartialEq for Tensor<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype(), &self.shape, self.bytes()) == (other.dtype(), &other.shape, other.bytes())
    }
}

impl<'a> Tensor<'a> {
    /// A tensor over little-endian `bytes`; they are copied when they do not lie aligned.
    pub fn new(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Tensor<'a>, TensorError> {
        let (shape, bytes) = (shape.into(), bytes.into());
        check_length(dtype, &shape, bytes.len())?;
        let values = Values::from_bytes(dtype, bytes);
        Ok(Tensor { shape, values })
    }

    /// A tensor of `values`: a vector is kept, a slice borrowed.
    pub fn from_values<T: Element>(
        shape: impl Into<Vec<usize>>,
        values: impl Into<Cow<'a, [T]>>,
    ) -> Result<Tensor<'a>, TensorError> {
        let (shape, values) = (shape.into(), values.into());
        check_length(T::DTYPE, &shape, size_of_val(&*values))?;
        let values = T::store(values);
        Ok(Tensor { shape, values })
    }

    /// A tensor of zeros.
    pub fn zeros(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
    ) -> Result<Tensor<'static>, TensorError> {
        let shape = shape.into();
        let bytes = byte_length(dtype, &shape);
        let bytes = bytes.ok_or_else(|| TensorError::TooLarge(shape.clone()))?;
        let values = Values::zeros(dtype, bytes / dtype.size_bytes());
        Ok(Tensor { shape, values })
    }

    /// One number, without axes.
    pub fn scalar<T: Element>(value: T) -> Tensor<'static> {
        let (shape, values) = (Vec::new(), T::store(Cow::Owned(vec![value])));
        Tensor { shape, values }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// The size of each axis, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &[u8] {
        self.values.bytes()
    }

    /// The elements' bytes to be changed; borrowed ones are copied first.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.values.bytes_mut()
    }

    /// How many elements it has.
    pub fn element_count(&self) -> usize {
        self.bytes().len() / self.dtype().size_bytes()
    }

    /// The elements, when they are of type `T`.
    pub fn values<T: Element>(&self) -> Result<&[T], TensorError> {
        T::stored(&self.values).ok_or(self.is_no::<T>())
    }

    /// The elements to be changed, when they are of type `T`; borrowed ones are copied first.
    pub fn values_mut<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        let wrong = self.is_no::<T>();
        T::stored_mut(&mut self.values).ok_or(wrong)
    }

    /// The shape and the elements, when they are of type `T`: what an op begins with.
    pub fn read<T: Element>(&self) -> Result<(&[usize], &[T]), TensorError> {
        Ok((&self.shape, self.values()?))
    }

    fn is_no<T: Element>(&self) -> TensorError {
        TensorError::WrongType {
            expected: T::DTYPE,
            found: self.dtype(),
        }
    }

    /// The elements as f32 (rounded from f64 and wide integers); without a copy when they are f32.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        self.borrowed().into_f32()
    }

    /// Like [`Tensor::to_f32`], keeping a borrow of the original values alive where there was one.
    pub fn into_f32(self) -> Cow<'a, [f32]> {
        match self.values {
            Values::F32(values) => values,
            Values::F64(values) => convert(&values, |value| value as f32),
            Values::F16(values) => Cow::Owned(values.to_f32_vec()),
            Values::BF16(values) => Cow::Owned(values.to_f32_vec()),
            Values::I64(values) => convert(&values, |value| value as f32),
            Values::I32(values) => convert(&values, |value| value as f32),
            Values::I16(values) => convert(&values, f32::from),
            Values::I8(values) => convert(&values, f32::from),
            Values::U8(values) => convert(&values, f32::from),
            Values::Bool(values) => convert(&values, |value| f32::from(value != 0)),
        }
    }

    /// The elements as f64, exact but for 64-bit integers above 2^53.
    pub fn to_f64(&self) -> Cow<'_, [f64]> {
        match &self.values {
            Values::F64(values) => Cow::Borrowed(values),
            Values::I64(values) => convert(values, |value| value as f64),
            Values::I32(values) => convert(values, f64::from),
            _ => convert(&self.to_f32(), f64::from),
        }
    }

    /// The elements as i32; one that is no whole number within its range is an error.
    pub fn to_i32(&self) -> Result<Cow<'_, [i32]>, TensorError> {
        if let Values::I32(values) = &self.values {
            return Ok(Cow::Borrowed(values));
        }
        let whole = |(place, &value): (usize, &f64)| {
            let whole = value as i32;
            let dtype = DType::I32;
            match f64::from(whole) == value {
                true => Ok(whole),
                false => Err(TensorError::NotInType {
                    place,
                    value,
                    dtype,
                }),
            }
        };
        self.to_f64().iter().enumerate().map(whole).collect()
    }

    /// The same tensor, lent.
    pub fn borrowed(&self) -> Tensor<'_> {
        Tensor {
            shape: self.shape.clone(),
            values: self.values.borrowed(),
        }
    }

    /// The same tensor with values of its own.
    pub fn into_owned(self) -> Tensor<'static> {
        Tensor {
            shape: self.shape,
            values: self.values.into_owned(),
        }
    }
}

fn check_length(dtype: DType, shape: &[usize], found: usize) -> Result<(), TensorError> {
    match byte_length(dtype, shape) {
        None => Err(TensorError::TooLarge(shape.to_vec())),
        Some(expected) if expected != found => Err(TensorError::WrongLength {
            dtype,
            shape: shape.to_vec(),
            expected,
            found,
        }),
        Some(_) => Ok(()),
    }
}

fn convert<'a, T: Copy, U: Clone>(values: &[T], convert_one: impl Fn(T) -> U) -> Cow<'a, [U]> {
    values.iter().map(|&value| convert_one(value)).collect()
}

fn view_or_copy<T: Pod>(bytes: Cow<'_, [u8]>) -> Cow<'_, [T]> {
    if let Cow::Borrowed(bytes) = bytes
        && let Ok(values) = bytemuck::try_cast_slice(bytes)
    {
        return Cow::Borrowed(values);
    }
    let elements = bytes.chunks_exact(size_of::<T>());
    elements.map(bytemuck::pod_read_unaligned).collect()
}

/// How a Rust type is kept in a tensor. Only [`Element`]s do.
pub trait Stored: Pod {
    #[doc(hidden)]
    fn store(values: Cow<'_, [Self]>) -> Values<'_>;
    #[doc(hidden)]
    fn stored<'v>(values: &'v Values<'_>) -> Option<&'v [Self]>;
    #[doc(hidden)]
    fn stored_mut<'v>(values: &'v mut Values<'_>) -> Option<&'v mut [Self]>;
}

macro_rules! values {
    ($($dtype:ident => $rust:ty),*) => {
        /// Elements of one type.
        #[doc(hidden)]
        #[derive(Clone, Debug)]
        pub enum Values<'a> { $($dtype(Cow<'a, [$rust]>),)* Bool(Cow<'a, [u8]>) }

        impl<'a> Values<'a> {
            fn from_bytes(dtype: DType, bytes: Cow<'a, [u8]>) -> Self {
                match dtype {
                    $(DType::$dtype => Values::$dtype(view_or_copy(bytes)),)*
                    DType::Bool => Values::Bool(bytes),
                }
            }

            fn zeros(dtype: DType, count: usize) -> Values<'static> {
                match dtype {
                    $(DType::$dtype => {
                        Values::$dtype(Cow::Owned(vec![bytemuck::Zeroable::zeroed(); count]))
                    })*
                    DType::Bool => Values::Bool(Cow::Owned(vec![0; count])),
                }
            }

            fn dtype(&self) -> DType {
                match self {
                    $(Values::$dtype(_) => DType::$dtype,)*
                    Values::Bool(_) => DType::Bool,
                }
            }

            fn bytes(&self) -> &[u8] {
                match self {
                    $(Values::$dtype(values) => bytemuck::cast_slice(values),)*
                    Values::Bool(values) => values,
                }
            }

            fn bytes_mut(&mut self) -> &mut [u8] {
                match self {
                    $(Values::$dtype(values) => bytemuck::cast_slice_mut(values.to_mut()),)*
                    Values::Bool(values) => values.to_mut(),
                }
            }

            fn borrowed(&self) -> Values<'_> {
                match self {
                    $(Values::$dtype(values) => Values::$dtype(Cow::Borrowed(values)),)*
                    Values::Bool(values) => Values::Bool(Cow::Borrowed(values)),
                }
            }

            fn into_owned(self) -> Values<'static> {
                match self {
                    $(Values::$dtype(values) => Values::$dtype(Cow::Owned(values.into_owned())),)*
                    Values::Bool(values) => Values::Bool(Cow::Owned(values.into_owned())),
                }
            }
        }

        $(impl Stored for $rust {
            fn store(values: Cow<'_, [Self]>) -> Values<'_> {
                Values::$dtype(values)
            }

            fn stored<'v>(values: &'v Values<'_>) -> Option<&'v [Self]> {
                match values {
                    Values::$dtype(values) => Some(values),
                    _ => None,
                }
            }

            fn stored_mut<'v>(values: &'v mut Values<'_>) -> Option<&'v mut [Self]> {
                match values {
                    Values::$dtype(values) => Some(values.to_mut()),
                    _ => None,
                }
            }
        })*
    };
}
values!(
    F64 => f64, F32 => f32, F16 => f16, BF16 => bf16,
    I64 => i64, I32 => i32, I16 => i16, I8 => i8, U8 => u8
);

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[test]
    fn every_type_converts_to_f32() {
        fn check<T: Element + PartialEq + fmt::Debug>(values: &[T]) {
            let tensor = Tensor::from_values([values.len()], values).unwrap();
            assert_eq!(*tensor.to_f32(), [0.0, 1.0, 100.0], "{}", T::DTYPE);
            assert_eq!(*tensor.to_f64(), [0.0, 1.0, 100.0], "{}", T::DTYPE);
            assert_eq!(*tensor.to_i32().unwrap(), [0, 1, 100], "{}", T::DTYPE);
            assert_eq!(tensor.values::<T>().unwrap(), values);
            assert_eq!(tensor.bytes().len(), 3 * T::DTYPE.size_bytes());
            let again = Tensor::new(T::DTYPE, [3], tensor.bytes().to_vec()).unwrap();
            assert_eq!(again, tensor, "bytes and values are two ways to the same");
        }
        check(&[0.0f64, 1.0, 100.0]);
        check(&[0.0f32, 1.0, 100.0]);
        check(&[0.0, 1.0, 100.0].map(f16::from_f32));
        check(&[0.0, 1.0, 100.0].map(bf16::from_f32));
        check(&[0i64, 1, 100]);
        check(&[0i32, 1, 100]);
        check(&[0i16, 1, 100]);
        check(&[0i8, 1, 100]);
        check(&[0u8, 1, 100]);
        let truths = Tensor::new(DType::Bool, [3], vec![0, 1, 7]).unwrap();
        assert_eq!(*truths.to_f32(), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn aligned_f32_is_borrowed_and_unaligned_f32_is_copied() {
        let values = [1.0f32, 2.0, 3.0];
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let aligned = Tensor::new(DType::F32, [3], bytes).unwrap().into_f32();
        assert!(matches!(aligned, Cow::Borrowed(borrowed) if borrowed == values));

        let mut shifted = vec![0];
        shifted.extend_from_slice(bytes);
        // One of the two starts at an address that is no multiple of four.
        for (start, end) in [(1, 13), (0, 12)] {
            let tensor = Tensor::new(DType::F32, [3], &shifted[start..end]).unwrap();
            assert_eq!(tensor.to_f32().len(), 3);
            if start == 1 {
                assert_eq!(*tensor.into_f32(), values);
            }
        }
    }

    #[test]
    fn vectors_are_kept_and_slices_copied_when_they_are_changed() {
        let values = vec![1i32, 2, 3];
        let address = values.as_ptr();
        let mut kept = Tensor::from_values([3], values).unwrap();
        kept.values_mut::<i32>().unwrap()[0] = 7;
        assert_eq!(kept.values::<i32>().unwrap().as_ptr(), address);
        let mut lent = kept.borrowed();
        lent.values_mut::<i32>().unwrap()[1] = 9;
        assert_eq!(lent.values::<i32>().unwrap(), [7, 9, 3]);
        assert_eq!(kept.values::<i32>().unwrap(), [7, 2, 3]);
        assert!(kept.values_mut::<f32>().is_err());
    }

    #[test]
    fn only_whole_numbers_in_range_become_integers() {
        for value in [0.5, -3e9, f64::NAN, f64::INFINITY] {
            let tensor = Tensor::from_values([2], vec![1.0, value]).unwrap();
            let error = tensor.to_i32().unwrap_err();
            assert!(
                matches!(error, TensorError::NotInType { place: 1, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn shapes_that_contradict_the_bytes_are_refused() {
        assert_eq!(
            Tensor::from_values([2, 2], &[0.0f32; 3]).unwrap_err(),
            TensorError::WrongLength {
                dtype: DType::F32,
                shape: vec![2, 2],
                expected: 16,
                found: 12
            }
        );
        assert!(matches!(
            Tensor::new(DType::U8, [usize::MAX, 2], vec![]),
            Err(TensorError::TooLarge(_))
        ));
        assert!(Tensor::new(DType::U8, [usize::MAX, 2, 0], vec![]).is_ok());
        assert!(
            Tensor::from_values([1], &[1.0f32])
                .unwrap()
                .values::<i64>()
                .is_err()
        );
    }

    #[test]
    fn scalars_and_empty_tensors_work() {
        let scalar = Tensor::scalar(7i64);
        assert_eq!(
            (scalar.element_count(), &*scalar.to_f32()),
            (1, &[7.0f32][..])
        );
        let mut zeros = Tensor::zeros(DType::I16, [2, 3]).unwrap();
        zeros.bytes_mut()[2] = 5;
        assert_eq!(zeros.values::<i16>().unwrap(), [0, 5, 0, 0, 0, 0]);
        assert!(Tensor::zeros(DType::F64, [usize::MAX, 2]).is_err());
        let empty = Tensor::new(DType::F64, [0, 4], Vec::new()).unwrap();
        assert!(empty.to_f32().is_empty() && empty.to_f64().is_empty());
    }
}
