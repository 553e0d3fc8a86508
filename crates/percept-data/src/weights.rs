//! Where weights come from: one trait over files, memory and the seeded generator.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::{Fault, FileError, describe_content};
use crate::safetensors::Safetensors;
use percept_graph::{DType, Tensor, WeightError};

/// Named tensors that can be read one by one.
pub trait TensorSource: Send + Sync {
    /// All names, in the order of the source.
    fn names(&self) -> Vec<&str>;

    /// The shape of a tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// The element type of a tensor; none also when the source holds a type that percept does not read.
    fn dtype(&self, name: &str) -> Option<DType>;

    /// A tensor as it is stored; borrowed where the source holds its bytes in one piece.
    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError>;

    /// A tensor's elements as f32; borrowed where they are stored so.
    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        Ok(self.read(name)?.into_f32())
    }

    /// Says that a tensor's bytes are not needed for now, so that mapped pages can leave memory.
    fn release(&self, _name: &str) {}

    /// What the file says about itself under `key`, where its form has room for that.
    fn metadata(&self, _key: &str) -> Option<&str> {
        None
    }

    /// What the weights are, for reports: a file name, or "seeded, accuracy means nothing".
    fn describe(&self) -> String;
}

impl<S: TensorSource + ?Sized> TensorSource for Box<S> {
    fn names(&self) -> Vec<&str> {
        (**self).names()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        (**self).shape(name)
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        (**self).dtype(name)
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        (**self).read(name)
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        (**self).read_f32(name)
    }

    fn release(&self, name: &str) {
        (**self).release(name);
    }

    fn metadata(&self, key: &str) -> Option<&str> {
        (**self).metadata(key)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }
}

impl From<FileError> for WeightError {
    fn from(error: FileError) -> WeightError {
        WeightError::Source(Box::new(error))
    }
}

/// `name` is not in `source`.
pub(crate) fn missing(source: &dyn TensorSource, name: &str) -> WeightError {
    WeightError::Missing {
        name: name.to_owned(),
        weights: source.describe(),
    }
}

/// Opens a weight file, whatever its extension: safetensors or a PyTorch checkpoint.
pub fn open_weights(path: &Path) -> Result<Box<dyn TensorSource>, FileError> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(512).read_to_end(&mut start))
        .map_err(|error| FileError::new(path, error))?;
    let named_safetensors = path
        .extension()
        .is_some_and(|extension| extension == "safetensors");
    if start.get(8) == Some(&b'{') || named_safetensors {
        Ok(Box::new(Safetensors::open(path)?))
    } else if Checkpoint::looks_like(&start) {
        Ok(Box::new(Checkpoint::open(path)?))
    } else {
        let found = describe_content(&start);
        Err(FileError::new(path, Fault::NotWeights { found }))
    }
}

/// Weights held in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryWeights<'a> {
    tensors: BTreeMap<String, Tensor<'a>>,
    description: String,
}

impl<'a> MemoryWeights<'a> {
    /// Weights from `tensors`; `description` says in reports where they came from.
    pub fn new(
        description: impl Into<String>,
        tensors: impl IntoIterator<Item = (String, Tensor<'a>)>,
    ) -> MemoryWeights<'a> {
        MemoryWeights {
            tensors: tensors.into_iter().collect(),
            description: description.into(),
        }
    }

    /// Adds or replaces a tensor.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor<'a>) {
        self.tensors.insert(name.into(), tensor);
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor<'a>> {
        self.tensors.get(name)
    }
}

impl TensorSource for MemoryWeights<'_> {
    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.tensors.get(name)?.shape().to_vec())
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        Some(self.tensors.get(name)?.dtype())
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        let tensor = self.get(name).ok_or_else(|| missing(self, name))?;
        Ok(tensor.borrowed())
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_weights_lend_their_values() {
        let values = [1.0f32, 2.0];
        let mut weights = MemoryWeights::new("made by hand", []);
        weights.insert("fc.bias", Tensor::from_values(vec![2], &values).unwrap());
        assert_eq!(weights.names(), ["fc.bias"]);
        assert_eq!(weights.shape("fc.bias"), Some(vec![2]));
        assert_eq!(weights.dtype("fc.bias"), Some(DType::F32));
        assert!(
            matches!(weights.read_f32("fc.bias").unwrap(), Cow::Borrowed(lent) if lent == values)
        );
        assert_eq!(
            weights.read("fc.weight").unwrap_err().to_string(),
            "no tensor named `fc.weight` in the weights (made by hand)"
        );
    }

    #[test]
    fn files_that_are_no_weights_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&str, &[u8], &str); 4] = [
            ("a.pth", b"", "an empty file"),
            ("b.bin", b"\xff\xd8\xff\xe0 jpeg", "a JPEG image"),
            (
                "c.pth",
                b"version https://git-lfs.github.com/spec/v1\n",
                "a Git LFS pointer",
            ),
            (
                "d.pt",
                b"hello world",
                "unknown content that starts with \"hello wo\"",
            ),
        ];
        for (name, content, expected) in cases {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let error = open_weights(&path).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(expected), "{error}");
        }
        let missing = open_weights(&folder.path().join("none")).err().unwrap();
        assert_eq!(missing.kind(), crate::error::FaultKind::Io);
    }
}
