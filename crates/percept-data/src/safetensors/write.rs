//! Writing safetensors files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::fault::SafetensorsFault;
use super::header::{METADATA_KEY, PREFIX_BYTES, TensorInfo, name_of};
use crate::atomic::write_atomically;
use crate::error::FileError;
use percept_graph::Tensor;

/// Writes `tensors` and free-form `metadata` to `path`, beside and renamed.
///
/// Tensors are laid out by element size, widest first, then by name, and the data begins at a multiple
/// of 64 bytes, so that every tensor can be viewed in place. The same tensors give the same file.
pub fn write_safetensors(
    path: &Path,
    tensors: &[(String, Tensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), FileError> {
    let mut ordered: Vec<&(String, Tensor<'_>)> = tensors.iter().collect();
    ordered.sort_by_key(|(name, tensor)| (Reverse(tensor.dtype().size_bytes()), name));
    let header = encode_header(&ordered, metadata).map_err(|fault| FileError::new(path, fault))?;
    write_atomically(path, |file| -> io::Result<()> {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        ordered
            .iter()
            .try_for_each(|(_, tensor)| file.write_all(tensor.bytes()))
    })
    .map_err(|error| FileError::new(path, error))
}

fn encode_header(
    ordered: &[&(String, Tensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, SafetensorsFault> {
    let mut fields = serde_json::Map::new();
    if !metadata.is_empty() {
        fields.insert(METADATA_KEY.to_owned(), serde_json::json!(metadata));
    }
    let mut offset = 0;
    for (name, tensor) in ordered {
        let end = offset + tensor.bytes().len();
        let info = TensorInfo {
            dtype: name_of(tensor.dtype()),
            shape: tensor.shape().to_vec(),
            data_offsets: (offset, end),
        };
        offset = end;
        let reserved = name == METADATA_KEY;
        if reserved
            || fields
                .insert(name.clone(), serde_json::json!(info))
                .is_some()
        {
            let reason = if reserved {
                "the name is reserved"
            } else {
                "the name appears twice"
            };
            return Err(SafetensorsFault::Name {
                tensor: name.clone(),
                reason,
            });
        }
    }
    let mut header = serde_json::Value::Object(fields).to_string().into_bytes();
    let padded = (PREFIX_BYTES + header.len()).next_multiple_of(64) - PREFIX_BYTES;
    header.resize(padded, b' ');
    Ok(header)
}
