//! Writing safetensors files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::fault::SafetensorsFault;
use super::header::{METADATA_KEY, PREFIX_BYTES, TensorInfo, name_of};
use crate::atomic::{without_temporary_name, write_atomically};
use crate::error::FileError;
use percept_graph::{DType, Tensor};

/// Writes `tensors` and free-form `metadata` to `path`, beside and renamed.
///
/// Tensors are laid out by element size, widest first, then by name, and the data begins at a multiple
/// of 64 bytes, so that every tensor can be viewed in place. The same tensors give the same file.
pub fn write_safetensors(
    path: &Path,
    tensors: &[(String, Tensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), FileError> {
    let mut ordered: Vec<(Placed, &Tensor<'_>)> = tensors
        .iter()
        .map(|(name, tensor)| (Placed::of(name, tensor), tensor))
        .collect();
    ordered.sort_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
    let header = encode_header(ordered.iter().map(|(placed, _)| placed), metadata);
    let header = header.map_err(|fault| FileError::new(path, fault))?;
    write_atomically(path, |file| -> io::Result<()> {
        write_header(file, &header)?;
        ordered
            .iter()
            .try_for_each(|(_, tensor)| file.write_all(tensor.bytes()))
    })
    .map_err(|error| FileError::new(path, error))
}

/// A safetensors file that is written tensor by tensor and appears when it is finished, in the layout of
/// [`write_safetensors`]. Its header stands in front and is known last, so the values wait in a file without a name.
pub struct SafetensorsWriter {
    path: PathBuf,
    waiting: File,
    end: u64,
    tensors: Vec<(Placed, u64)>,
}

impl SafetensorsWriter {
    /// Begins a file.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let waiting = tempfile::tempfile_in(folder);
        Ok(Self {
            path: path.to_owned(),
            waiting: waiting
                .map_err(|error| FileError::new(path, without_temporary_name(error)))?,
            end: 0,
            tensors: Vec::new(),
        })
    }

    /// Adds a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor<'_>) -> Result<(), FileError> {
        let written = self.waiting.write_all(tensor.bytes());
        written.map_err(|error| FileError::new(&self.path, error))?;
        self.tensors.push((Placed::of(name, tensor), self.end));
        self.end += tensor.bytes().len() as u64;
        Ok(())
    }

    /// Brings the whole file to its place.
    pub fn finish(mut self, metadata: &BTreeMap<String, String>) -> Result<(), FileError> {
        self.tensors
            .sort_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
        let header = encode_header(self.tensors.iter().map(|(placed, _)| placed), metadata);
        let header = header.map_err(|fault| FileError::new(&self.path, fault))?;
        let (mut waiting, tensors) = (self.waiting, &self.tensors);
        write_atomically(&self.path, |file| -> io::Result<()> {
            write_header(file, &header)?;
            tensors.iter().try_for_each(|(placed, start)| {
                waiting.seek(SeekFrom::Start(*start))?;
                let copied = io::copy(&mut (&waiting).take(placed.bytes as u64), file)?;
                match copied == placed.bytes as u64 {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            })
        })
        .map_err(|error| FileError::new(&self.path, error))
    }
}

/// What the header says of a tensor.
struct Placed {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
}

impl Placed {
    fn of(name: &str, tensor: &Tensor<'_>) -> Self {
        Self {
            name: name.to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.bytes().len(),
        }
    }

    /// Widest first, then by name.
    fn order(&self) -> (Reverse<usize>, &str) {
        (Reverse(self.dtype.size_bytes()), &self.name)
    }
}

fn write_header(file: &mut dyn Write, header: &[u8]) -> io::Result<()> {
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)
}

fn encode_header<'a>(
    ordered: impl Iterator<Item = &'a Placed>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, SafetensorsFault> {
    let mut fields = serde_json::Map::new();
    if !metadata.is_empty() {
        fields.insert(METADATA_KEY.to_owned(), serde_json::json!(metadata));
    }
    let mut offset = 0;
    for placed in ordered {
        let end = offset + placed.bytes;
        let info = TensorInfo {
            dtype: name_of(placed.dtype),
            shape: placed.shape.clone(),
            data_offsets: (offset, end),
        };
        offset = end;
        let reserved = placed.name == METADATA_KEY;
        if reserved
            || fields
                .insert(placed.name.clone(), serde_json::json!(info))
                .is_some()
        {
            let reason = if reserved {
                "the name is reserved"
            } else {
                "the name appears twice"
            };
            return Err(SafetensorsFault::Name {
                tensor: placed.name.clone(),
                reason,
            });
        }
    }
    let mut header = serde_json::Value::Object(fields).to_string().into_bytes();
    let padded = (PREFIX_BYTES + header.len()).next_multiple_of(64) - PREFIX_BYTES;
    header.resize(padded, b' ');
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_by_tensor_gives_the_same_file_as_all_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [whole, grown] = ["whole", "grown"].map(|name| folder.path().join(name));
        let tensors = [
            ("b", Tensor::from_values([2], vec![1.0f32, 2.0]).unwrap()),
            ("long", Tensor::from_values([3], vec![1i64, 2, 3]).unwrap()),
            ("a", Tensor::from_values([1, 2], vec![3.0f32, 4.0]).unwrap()),
            (
                "none",
                Tensor::from_values([0, 2], Vec::<f32>::new()).unwrap(),
            ),
        ];
        let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
        let metadata = BTreeMap::from([("made".to_owned(), "here".to_owned())]);
        write_safetensors(&whole, &tensors, &metadata).unwrap();
        let mut writer = SafetensorsWriter::create(&grown).unwrap();
        for (name, tensor) in &tensors {
            writer.add(name, tensor).unwrap();
        }
        assert!(!grown.exists());
        writer.finish(&metadata).unwrap();
        assert_eq!(
            std::fs::read(&grown).unwrap(),
            std::fs::read(&whole).unwrap()
        );
    }
}
