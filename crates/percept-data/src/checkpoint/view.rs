//! Strided tensors over the storages of a file.

use std::borrow::Cow;
use std::ops::Range;

use super::fault::CheckpointFault;
use super::storages::Storages;
use super::value::TensorView;
use percept_graph::{DType, Tensor, byte_length, element_count};

/// An expanded (stride 0) tensor may be larger than its storage, up to this; no file can claim memory it does not fill.
pub(crate) const MAX_EXPANDED_BYTES: usize = 64 << 20;

/// A tensor whose place in the file has been checked.
pub(crate) struct StoredTensor {
    /// PyTorch's name of the type, when percept has none.
    dtype: Result<DType, String>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    /// The storage's key.
    storage: String,
}

impl StoredTensor {
    /// Finds the storage of the tensor `name` and checks that the view lies inside it.
    pub(crate) fn locate(
        name: &str,
        view: &TensorView<'_>,
        storages: &Storages,
    ) -> Result<StoredTensor, CheckpointFault> {
        let fault = |reason| CheckpointFault::Tensor {
            tensor: name.to_owned(),
            storage: view.storage.key.to_owned(),
            reason,
        };
        // Strides of axes that are never stepped along, and the offset of nothing, are free to be absurd.
        let axes = view.shape.iter().zip(&view.strides);
        let is_empty = view.shape.contains(&0);
        let stored = StoredTensor {
            dtype: view.storage.element_type.map_err(str::to_owned),
            shape: view.shape.clone(),
            strides: axes
                .map(|(&size, &stride)| if size > 1 { stride } else { 0 })
                .collect(),
            offset: if is_empty { 0 } else { view.offset },
            storage: view.storage.key.to_owned(),
        };
        let stored_bytes = storages
            .length(&stored.storage)
            .ok_or_else(|| fault("has no storage in the file"))?;
        if view.shape.len() != view.strides.len() {
            return Err(fault("has a shape and strides of different rank"));
        }
        let Ok(dtype) = stored.dtype else {
            return Ok(stored);
        };
        let storage_bytes = view.storage.elements.checked_mul(dtype.size_bytes() as u64);
        if storage_bytes.is_none_or(|bytes| bytes > stored_bytes) {
            return Err(fault("has a storage that is shorter than it claims"));
        }
        let bytes =
            byte_length(dtype, &view.shape).ok_or_else(|| fault("is too large to address"))?;
        let past = stored
            .elements_reached()
            .ok_or_else(|| fault("is too large to address"))?;
        if past as u64 > view.storage.elements {
            return Err(fault("reaches past the end of its storage"));
        }
        if bytes as u64 > stored_bytes.max(MAX_EXPANDED_BYTES as u64) {
            return Err(fault("is expanded far beyond its storage"));
        }
        Ok(stored)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn dtype(&self) -> Option<DType> {
        self.dtype.clone().ok()
    }

    /// Where the tensor's bytes lie in the file, as far as they lie there in one piece.
    pub(crate) fn plain_range(&self, storages: &Storages) -> Option<Range<usize>> {
        let storage = storages.plain_range(&self.storage)?;
        let size = self.dtype()?.size_bytes();
        let end = storage.start + self.elements_reached()? * size;
        Some(storage.start + self.offset * size..end)
    }

    /// Reads the tensor `name`; lent from the file when it lies there in order.
    pub(crate) fn read<'f>(
        &self,
        name: &str,
        storages: &Storages,
        file: &'f [u8],
    ) -> Result<Tensor<'f>, CheckpointFault> {
        let fault = |reason| CheckpointFault::Tensor {
            tensor: name.to_owned(),
            storage: self.storage.clone(),
            reason,
        };
        let dtype = self
            .dtype
            .clone()
            .map_err(|dtype| CheckpointFault::UnsupportedType {
                tensor: name.to_owned(),
                dtype,
            })?;
        let storage = storages
            .read(&self.storage, file)?
            .ok_or_else(|| fault("has no storage in the file"))?;
        let size = dtype.size_bytes();
        let bytes = if self.is_contiguous() {
            let start = self.offset * size;
            let end = start + element_count(&self.shape).unwrap_or(0) * size;
            match storage {
                Cow::Borrowed(storage) => storage.get(start..end).map(Cow::Borrowed),
                Cow::Owned(storage) => storage
                    .get(start..end)
                    .map(|part| Cow::Owned(part.to_vec())),
            }
        } else {
            gather(&storage, size, self.offset, &self.shape, &self.strides).map(Cow::Owned)
        };
        let bytes = bytes.ok_or_else(|| fault("reaches past the end of its storage"))?;
        Tensor::new(dtype, self.shape.clone(), bytes).map_err(|_| fault("is too large to address"))
    }

    fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        self.shape
            .iter()
            .zip(&self.strides)
            .rev()
            .all(|(&size, &stride)| {
                let fits = size <= 1 || stride == expected;
                expected *= size;
                fits
            })
    }

    /// How many leading elements of the storage the view needs; none when that overflows.
    fn elements_reached(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut axes = self.shape.iter().zip(&self.strides);
        let last = axes.try_fold(self.offset, |last, (&size, &stride)| {
            last.checked_add((size - 1).checked_mul(stride)?)
        });
        last?.checked_add(1)
    }
}

/// Copies a strided view into row-major order.
fn gather(
    storage: &[u8],
    element_bytes: usize,
    offset: usize,
    shape: &[usize],
    strides: &[usize],
) -> Option<Vec<u8>> {
    let elements = element_count(shape)?;
    let mut bytes = Vec::with_capacity(elements * element_bytes);
    let mut position = vec![0; shape.len()];
    let mut at = offset;
    for _ in 0..elements {
        let start = at * element_bytes;
        bytes.extend_from_slice(storage.get(start..start + element_bytes)?);
        for axis in (0..shape.len()).rev() {
            position[axis] += 1;
            at += strides[axis];
            if position[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            position[axis] = 0;
        }
    }
    Some(bytes)
}
