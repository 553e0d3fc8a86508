//! Safetensors files: read through a memory map, written beside and renamed.

mod fault;
mod header;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use percept_kernels::MappedFile;

pub use self::fault::SafetensorsFault;
use self::header::{Entry, Header, dtype_named};
pub use self::write::{SafetensorsWriter, write_safetensors};
use crate::error::FileError;
use crate::weights::{TensorSource, missing};
use percept_graph::{DType, Tensor, WeightError};

/// A safetensors file, mapped into memory.
pub struct Safetensors {
    path: PathBuf,
    file: Content,
    header: Header,
    index: HashMap<String, usize>,
}

/// Where the bytes are.
enum Content {
    Mapped(MappedFile),
    Embedded(&'static [u8]),
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file,
            Self::Embedded(bytes) => bytes,
        }
    }
}

impl Safetensors {
    /// Opens the file and checks its whole header; tensor data is read when asked for.
    pub fn open(path: &Path) -> Result<Safetensors, FileError> {
        let file = MappedFile::open(path).map_err(|error| FileError::new(path, error))?;
        Self::parse(path, Content::Mapped(file))
    }

    /// The file that is part of the program; errors call it `name`.
    pub fn embedded(name: &str, bytes: &'static [u8]) -> Result<Safetensors, FileError> {
        Self::parse(Path::new(name), Content::Embedded(bytes))
    }

    fn parse(path: &Path, file: Content) -> Result<Safetensors, FileError> {
        let header = Header::parse(&file).map_err(|fault| FileError::new(path, fault))?;
        let names = header.entries.iter().map(|entry| entry.name.clone());
        Ok(Safetensors {
            path: path.to_owned(),
            index: names.zip(0..).collect(),
            file,
            header,
        })
    }

    /// The free-form metadata of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.header.entries.get(*self.index.get(name)?)
    }
}

impl TensorSource for Safetensors {
    fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata.get(key).map(String::as_str)
    }

    fn names(&self) -> Vec<&str> {
        self.header
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.entry(name)?.shape.clone())
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        dtype_named(&self.entry(name)?.dtype)
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        let entry = self.entry(name).ok_or_else(|| missing(self, name))?;
        let dtype = dtype_named(&entry.dtype).ok_or_else(|| {
            let (tensor, dtype) = (name.to_owned(), entry.dtype.clone());
            FileError::new(
                &self.path,
                SafetensorsFault::UnsupportedType { tensor, dtype },
            )
        })?;
        Ok(Tensor::new(
            dtype,
            entry.shape.clone(),
            &self.file[entry.bytes.clone()],
        )?)
    }

    fn release(&self, name: &str) {
        if let (Some(entry), Content::Mapped(file)) = (self.entry(name), &self.file) {
            file.release(entry.bytes.clone());
        }
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// Reads every tensor of a file into memory of its own (for small files: inputs, references).
pub fn read_safetensors(path: &Path) -> Result<Vec<(String, Tensor<'static>)>, WeightError> {
    let file = Safetensors::open(path)?;
    let names = file.names();
    names
        .into_iter()
        .map(|name| Ok((name.to_owned(), file.read(name)?.into_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn written(tensors: &[(String, Tensor<'_>)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        write_safetensors(&path, tensors, &metadata).unwrap();
        (folder, path)
    }

    fn sample() -> Vec<(String, Tensor<'static>)> {
        let f32s: Tensor<'_> =
            Tensor::from_values(vec![2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let i64s = Tensor::from_values(vec![2], &[-1i64, 1 << 40]).unwrap();
        let bools = Tensor::new(DType::Bool, vec![3], vec![1, 0, 1]).unwrap();
        let empty = Tensor::new(DType::F16, vec![0, 5], vec![]).unwrap();
        let named = [("mask", bools), ("w", f32s), ("idx", i64s), ("none", empty)];
        named
            .map(|(name, tensor)| (name.to_owned(), tensor.into_owned()))
            .into()
    }

    #[test]
    fn what_is_written_is_read_back_in_place() {
        let tensors = sample();
        let (_folder, path) = written(&tensors);
        let file = Safetensors::open(&path).unwrap();
        assert_eq!(file.names(), ["idx", "w", "none", "mask"]);
        assert_eq!(file.metadata()["format"], "pt");
        for (name, tensor) in &tensors {
            assert_eq!(file.read(name).unwrap(), *tensor);
            assert_eq!(file.shape(name).unwrap(), tensor.shape());
            assert_eq!(file.dtype(name), Some(tensor.dtype()));
        }
        let lent = file.read_f32("w").unwrap();
        assert!(matches!(lent, Cow::Borrowed(_)));
        file.release("w");
        assert_eq!(lent[5], 6.0);
        assert!(matches!(file.read("v"), Err(WeightError::Missing { .. })));
        assert_eq!(read_safetensors(&path).unwrap().len(), 4);
    }

    #[test]
    fn the_reference_crate_agrees() {
        let tensors = sample();
        let (_folder, path) = written(&tensors);
        let bytes = std::fs::read(&path).unwrap();
        let reference = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(reference.len(), tensors.len());
        for (name, tensor) in &tensors {
            let view = reference.tensor(name).unwrap();
            assert_eq!(
                (view.shape(), view.data()),
                (tensor.shape(), tensor.bytes())
            );
        }
    }

    #[test]
    fn names_that_cannot_be_written_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let one = || Tensor::from_values(vec![1], &[1u8]).unwrap();
        for names in [["a", "a"], ["a", "__metadata__"]] {
            let tensors = names.map(|name| (name.to_owned(), one()));
            assert!(write_safetensors(&path, &tensors, &BTreeMap::new()).is_err());
            assert!(!path.exists());
        }
    }

    #[test]
    fn an_unsupported_type_is_told_when_it_is_read() {
        let json = r#"{"q":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}"#;
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.push(0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.safetensors");
        std::fs::write(&path, bytes).unwrap();
        let file = Safetensors::open(&path).unwrap();
        assert_eq!((file.dtype("q"), file.shape("q")), (None, Some(vec![1])));
        let error = file.read("q").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("tensor `q` has the element type F8_E4M3, which is not supported")
        );
    }
}
