//! `.npz`: a zip archive with one `NAME.npy` an array.

use std::path::Path;

use percept_kernels::MappedFile;

use super::ArrayFault;
use super::npy::{encode_header, parse_npy};
use crate::atomic::write_atomically;
use crate::error::{Fault, FileError, describe_content};
use crate::tensor::Tensor;
use crate::zip::{ZipDirectory, ZipWriter};

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
    write_atomically(path, |file| -> Result<(), Fault> {
        let mut zip = ZipWriter::new(file);
        for (name, tensor) in arrays {
            let header = encode_header(tensor).map_err(|fault| fault.of_array(name))?;
            zip.add(&format!("{name}.npy"), &[&header, tensor.bytes()])?;
        }
        Ok(zip.finish()?)
    })
    .map_err(|fault| FileError::new(path, fault))
}
