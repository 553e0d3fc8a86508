//! `.npz`: a zip archive with one `NAME.npy` an array.

use std::io;
use std::path::{Path, PathBuf};

use ::zip::write::StreamWriter;
use ::zip::{CompressionMethod, ZipWriter};
use percept_kernels::MappedFile;

use super::ArrayFault;
use super::npy::{encode_header, parse_npy};
use crate::atomic::AtomicFile;
use crate::error::{FileError, describe_content};
use crate::zip::{ZipDirectory, add_entry};
use percept_graph::Tensor;

/// Reads every array of a `.npz` file (plain or compressed), in file order.
pub fn read_npz(path: &Path) -> Result<Vec<(String, Tensor<'static>)>, FileError> {
    let file = MappedFile::open(path).map_err(|error| FileError::new(path, error))?;
    parse_npz(&file).map_err(|fault| FileError::new(path, fault))
}

fn parse_npz(file: &[u8]) -> Result<Vec<(String, Tensor<'static>)>, ArrayFault> {
    if !ZipDirectory::looks_like(file) {
        let found = describe_content(file);
        return Err(ArrayFault::WrongFormat {
            expected: "an npz file",
            found,
        });
    }
    let archive = ZipDirectory::parse(file)?;
    let arrays = archive
        .entries()
        .iter()
        .filter_map(|entry| Some((entry.name.strip_suffix(".npy")?, entry)));
    arrays
        .map(|(name, entry)| {
            let content = entry.read(file)?;
            let tensor = parse_npy(&content).map_err(|fault| fault.of_array(name))?;
            Ok((name.to_owned(), tensor.into_owned()))
        })
        .collect()
}

/// Writes named `arrays` as a `.npz` file, beside and renamed. The same arrays give the same file.
pub fn write_npz(path: &Path, arrays: &[(String, Tensor<'_>)]) -> Result<(), FileError> {
    let mut writer = NpzWriter::create(path)?;
    for (name, tensor) in arrays {
        writer.add(name, tensor)?;
    }
    writer.finish()
}

/// A `.npz` file that is written array by array and appears when it is finished.
pub struct NpzWriter {
    path: PathBuf,
    zip: ZipWriter<StreamWriter<AtomicFile>>,
    method: CompressionMethod,
}

impl NpzWriter {
    /// Begins a file.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let file = AtomicFile::create(path).map_err(|error| FileError::new(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            zip: ZipWriter::new_stream(file),
            method: CompressionMethod::Stored,
        })
    }

    /// Compresses what is added, as numpy's `savez_compressed` does: for masks, which shrink to a hundredth.
    pub fn compressed(self) -> Self {
        Self {
            method: CompressionMethod::Deflated,
            ..self
        }
    }

    /// Adds an array.
    pub fn add(&mut self, name: &str, tensor: &Tensor<'_>) -> Result<(), FileError> {
        let header = encode_header(tensor).map_err(|fault| fault.of_array(name));
        let header = header.map_err(|fault| FileError::new(&self.path, fault))?;
        let parts = [&header, tensor.bytes()];
        let added = add_entry(&mut self.zip, &format!("{name}.npy"), &parts, self.method);
        added.map_err(|error| FileError::new(&self.path, error))
    }

    /// Brings the whole file to its place.
    pub fn finish(self) -> Result<(), FileError> {
        let finished = self.zip.finish().map_err(io::Error::from);
        finished
            .and_then(|stream| stream.into_inner().finish())
            .map_err(|error| FileError::new(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::zip::tests::archive_of;
    use percept_graph::DType;

    const BY_NUMPY: &[u8] = include_bytes!("../../tests/fixtures/numpy.npz");

    #[test]
    fn what_numpy_compressed_is_read() {
        let ramp = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let arrays = parse_npz(BY_NUMPY).unwrap();
        let table: [(&str, DType, &[usize], &[f32]); 8] = [
            ("f32", DType::F32, &[2, 3], &ramp),
            ("fortran", DType::F32, &[2, 3], &ramp),
            ("f64", DType::F64, &[2, 3], &ramp),
            ("i64", DType::I64, &[], &[7.0]),
            ("u8", DType::U8, &[2, 3], &ramp),
            (
                "bool",
                DType::Bool,
                &[2, 3],
                &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
            ),
            ("f16", DType::F16, &[2, 3], &ramp),
            ("empty", DType::I32, &[0, 3], &[]),
        ];
        assert_eq!(arrays.len(), table.len());
        for ((name, tensor), (expected, dtype, shape, values)) in arrays.iter().zip(table) {
            assert_eq!(
                (name.as_str(), tensor.dtype(), tensor.shape()),
                (expected, dtype, shape)
            );
            assert_eq!(*tensor.to_f32(), *values, "{name}");
        }
    }

    #[test]
    fn written_archives_are_read_back_and_repeat() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.npz");
        let arrays = parse_npz(BY_NUMPY).unwrap();
        write_npz(&path, &arrays).unwrap();
        assert_eq!(read_npz(&path).unwrap(), arrays);
        let first = std::fs::read(&path).unwrap();
        write_npz(&path, &arrays).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        let zeros = Tensor::from_values([9, 100, 100], vec![0u8; 90_000]).unwrap();
        let mut writer = NpzWriter::create(&path).unwrap().compressed();
        writer.add("arr_0", &zeros).unwrap();
        writer.finish().unwrap();
        assert_eq!(read_npz(&path).unwrap(), [("arr_0".to_owned(), zeros)]);
        assert!(std::fs::metadata(&path).unwrap().len() < 2000);
    }

    #[test]
    fn a_fault_names_its_array() {
        let file = archive_of(&[("broken.npy", &[b"\x93NUMPY\x01\x00"])]);
        let error = parse_npz(&file).unwrap_err().to_string();
        assert_eq!(error, "corrupt npy array `broken`: the header is cut off");
    }

    proptest! {
        #[test]
        fn damaged_archives_give_an_error_or_arrays(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = BY_NUMPY.to_vec();
            for (at, byte) in flips {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
                prop_assert!(parse_npz(&file).is_err());
            } else {
                drop(parse_npz(&file));
            }
        }
    }
}
