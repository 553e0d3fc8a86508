//! Checkpoints before PyTorch 1.6: five pickles in a row (a magic number, the version of the protocol, facts about
//! the machine, the object itself, the keys of its storages), then each storage, its number of elements first.

use std::collections::HashMap;
use std::ops::Range;

use super::fault::CheckpointFault;
use super::pickle::{Loaded, load_at};
use super::storages::Storages;
use super::torch::element_bytes;
use super::value::{Storage, Value, Values};

/// The magic number as an opcode with its ten bytes.
const MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
const PROTOCOL_VERSION: usize = 1001;

/// Whether a file starts with the magic number.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    matches!(start, [0x80, 2..=5, rest @ ..] if rest.starts_with(MAGIC))
}

/// The object of a file, and where its storages lie.
pub(crate) fn load(file: &[u8]) -> Result<(Loaded<'_>, Storages), CheckpointFault> {
    let magic = load_at(file, 0)?;
    let version = load_at(file, magic.end)?;
    if version.values.size(version.root) != Some(PROTOCOL_VERSION) {
        return Err(CheckpointFault::Pickle {
            at: magic.end,
            reason: "the version of the protocol is not 1001",
        });
    }
    // Numbers are little-endian in every file, whatever the machine was.
    let machine = load_at(file, version.end)?;
    let object = load_at(file, machine.end)?;
    let keys = load_at(file, object.end)?;
    let listed = keys.values.items(keys.root);
    let texts = listed.and_then(|keys_| keys_.iter().map(|&key| keys.values.text(key)).collect());
    let names: Vec<&str> = texts.ok_or(CheckpointFault::Pickle {
        at: object.end,
        reason: "the keys of the storages are no list of texts",
    })?;
    let places = places(file, keys.end, &names, &object.values)?;
    Ok((object, Storages::Plain(places)))
}

/// Where each storage lies: they follow each other from byte `at`, in the order of `keys`.
fn places(
    file: &[u8],
    mut at: usize,
    keys: &[&str],
    values: &Values<'_>,
) -> Result<HashMap<String, Range<usize>>, CheckpointFault> {
    let described: HashMap<&str, &Storage<'_>> = values
        .iter()
        .filter_map(|value| match value {
            Value::Storage(storage) => Some((storage.key, storage)),
            _ => None,
        })
        .collect();
    let mut places = HashMap::new();
    for &key in keys {
        let fault = |reason| CheckpointFault::Storage {
            storage: key.to_owned(),
            reason,
        };
        let storage = described
            .get(key)
            .ok_or_else(|| fault("belongs to no tensor"))?;
        let size = element_bytes(storage.element_type).ok_or_else(|| {
            CheckpointFault::UnsupportedStorage {
                storage: key.to_owned(),
                dtype: storage.element_type.err().unwrap_or_default().to_owned(),
            }
        })?;
        let past_end = || fault("ends past the end of the file (truncated?)");
        let rest = file.get(at..).ok_or_else(past_end)?;
        let (count, rest) = rest.split_first_chunk::<8>().ok_or_else(past_end)?;
        let elements = u64::from_le_bytes(*count);
        if elements != storage.elements {
            return Err(fault("does not hold as many elements as the pickle says"));
        }
        let bytes = usize::try_from(elements)
            .ok()
            .and_then(|elements| elements.checked_mul(size))
            .filter(|&bytes| bytes <= rest.len())
            .ok_or_else(past_end)?;
        let start = at + count.len();
        at = start + bytes;
        if places.insert(key.to_owned(), start..at).is_some() {
            return Err(fault("appears twice"));
        }
    }
    Ok(places)
}
