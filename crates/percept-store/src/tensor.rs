//! Typed tensors as records hold them.

use std::borrow::Cow;

use half::f16;

/// The type of a tensor's numbers. The codes are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    /// Bytes.
    U8 = 1,
    /// 32-bit integers: indices.
    I32 = 2,
    /// Half precision.
    F16 = 3,
    /// Single precision.
    F32 = 4,
    /// Double precision.
    F64 = 5,
}

impl Element {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F16 => 2,
            Element::I32 | Element::F32 => 4,
            Element::F64 => 8,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Element> {
        use Element::{F16, F32, F64, I32, U8};
        [U8, I32, F16, F32, F64]
            .into_iter()
            .find(|&element| element as u8 == code)
    }
}

/// A number that tensors are made of.
pub trait Number: bytemuck::Pod {
    /// Its type.
    const ELEMENT: Element;
}

macro_rules! impl_number {
    ($($type:ty: $element:ident),*) => {$(
        impl Number for $type {
            const ELEMENT: Element = Element::$element;
        }
    )*};
}
impl_number!(u8: U8, i32: I32, f16: F16, f32: F32, f64: F64);

/// A named tensor to write.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    pub(crate) name: &'a str,
    pub(crate) element: Element,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

impl<'a> TensorRef<'a> {
    /// A row-major tensor.
    ///
    /// # Panics
    /// When the shape does not hold that many numbers: the caller's bug.
    pub fn new<T: Number>(name: &'a str, shape: &'a [usize], values: &'a [T]) -> TensorRef<'a> {
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "numbers of {name}"
        );
        TensorRef {
            name,
            element: T::ELEMENT,
            shape,
            bytes: bytemuck::cast_slice(values),
        }
    }
}

/// A tensor as it lies in a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// The name it was written under.
    pub name: Cow<'a, str>,
    /// The type of its numbers.
    pub element: Element,
    /// Its shape; row-major.
    pub shape: Cow<'a, [usize]>,
    /// Its numbers, little-endian.
    pub bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// The numbers, where they are of this type.
    pub fn numbers<T: Number>(&self) -> Option<&'a [T]> {
        if T::ELEMENT != self.element {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes).ok()
    }
}
