//! Checkpoints since PyTorch 1.6: a zip archive with one folder, which holds the pickle `data.pkl` and an entry per storage.

use std::borrow::Cow;

use super::fault::CheckpointFault;
use super::storages::Storages;
use crate::zip::ZipDirectory;

/// The pickle of an archive, and its storages.
pub(crate) fn open(file: &[u8]) -> Result<(Cow<'_, [u8]>, Storages), CheckpointFault> {
    let archive = ZipDirectory::parse(file)?;
    let folder = checkpoint_folder(&archive)?.to_owned();
    let read = |name: &str| {
        let entry = archive.get(&format!("{folder}{name}"));
        entry.map(|entry| entry.read(file)).transpose()
    };
    if read("byteorder")?.is_some_and(|order| order.trim_ascii() == b"big") {
        return Err(CheckpointFault::BigEndian);
    }
    let pickle = read("data.pkl")?.unwrap_or_default();
    Ok((pickle, Storages::Zip { archive, folder }))
}

/// The archive's one top folder (with its slash), which holds `data.pkl`.
fn checkpoint_folder(archive: &ZipDirectory) -> Result<&str, CheckpointFault> {
    let names = || archive.entries().iter().map(|entry| entry.name.as_str());
    let mut folders = names()
        .filter_map(|name| name.strip_suffix("data.pkl"))
        .filter(|folder| folder.is_empty() || folder.find('/') == Some(folder.len() - 1));
    match (folders.next(), folders.next()) {
        (Some(folder), None) => {
            let scripted =
                |name: &str| name.starts_with("constants.pkl") || name.starts_with("code/");
            if names()
                .filter_map(|name| name.strip_prefix(folder))
                .any(scripted)
            {
                return Err(CheckpointFault::TorchScript);
            }
            Ok(folder)
        }
        (None, _) => {
            let arrays = names().any(|name| name.ends_with(".npy"));
            let found = if arrays {
                "an npz file of arrays"
            } else {
                "a zip archive without one"
            };
            Err(CheckpointFault::NotCheckpoint {
                found: found.to_owned(),
            })
        }
        (Some(_), Some(_)) => {
            let found = "a zip archive with several".to_owned();
            Err(CheckpointFault::NotCheckpoint { found })
        }
    }
}
