//! PyTorch checkpoints (`.pth`, `.pt`, `.pth.tar`): zip archives of a pickle and raw storages, read
//! without Python and without executing anything.

mod fault;
mod pickle;
mod select;
#[cfg(test)]
mod tests;
mod torch;
mod value;
mod view;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use percept_kernels::MappedFile;

pub use self::fault::CheckpointFault;
pub use self::select::StateDict;
use self::view::StoredTensor;
use crate::error::{FileError, describe_content};
use crate::tensor::{DType, Tensor};
use crate::weights::{TensorSource, WeightError};
use crate::zip::ZipDirectory;

/// A checkpoint of which one dict of tensors is open.
pub struct Checkpoint {
    path: PathBuf,
    file: MappedFile,
    archive: ZipDirectory,
    dicts: Vec<StateDict>,
    chosen: usize,
    skipped: Vec<String>,
    tensors: Vec<(String, StoredTensor)>,
    index: HashMap<String, usize>,
}

impl Checkpoint {
    /// Opens the dict with the most tensors, wherever it is nested.
    pub fn open(path: &Path) -> Result<Checkpoint, FileError> {
        Checkpoint::open_dict(path, None)
    }

    /// Opens the dict at `dict` (keys joined by dots, such as `state_dict_ema`); none chooses as [`Checkpoint::open`].
    pub fn open_dict(path: &Path, dict: Option<&str>) -> Result<Checkpoint, FileError> {
        let file = MappedFile::open(path).map_err(|error| FileError::new(path, error))?;
        let contents = Contents::read(&file, dict).map_err(|fault| FileError::new(path, fault))?;
        let names = contents.tensors.iter().map(|(name, _)| name.clone());
        Ok(Checkpoint {
            path: path.to_owned(),
            index: names.zip(0..).collect(),
            file,
            archive: contents.archive,
            dicts: contents.dicts,
            chosen: contents.chosen,
            skipped: contents.skipped,
            tensors: contents.tensors,
        })
    }

    /// Whether a file that starts like this is for this reader (which also explains the forms it does not read).
    pub fn looks_like(start: &[u8]) -> bool {
        ZipDirectory::looks_like(start) || old_form(start).is_some()
    }

    /// The dict that is open.
    pub fn dict(&self) -> &StateDict {
        &self.dicts[self.chosen]
    }

    /// All dicts of tensors in the file, nearest to the root first.
    pub fn dicts(&self) -> &[StateDict] {
        &self.dicts
    }

    /// Names in the open dict whose values are no tensors.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn tensor(&self, name: &str) -> Option<&StoredTensor> {
        Some(&self.tensors.get(*self.index.get(name)?)?.1)
    }
}

impl TensorSource for Checkpoint {
    fn names(&self) -> Vec<&str> {
        self.tensors.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.tensor(name)?.shape().to_vec())
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.tensor(name)?.dtype()
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        let tensor = self
            .tensor(name)
            .ok_or_else(|| WeightError::not_found(self, name))?;
        Ok(tensor
            .read(name, &self.archive, &self.file)
            .map_err(|fault| FileError::new(&self.path, fault))?)
    }

    fn release(&self, name: &str) {
        if let Some(range) = self
            .tensor(name)
            .and_then(|tensor| tensor.plain_range(&self.archive))
        {
            self.file.release(range);
        }
    }

    fn describe(&self) -> String {
        match self.dict().path.as_str() {
            "" => self.path.display().to_string(),
            dict => format!("{} ({dict})", self.path.display()),
        }
    }
}

/// What opening finds in the bytes of a file.
struct Contents {
    archive: ZipDirectory,
    dicts: Vec<StateDict>,
    chosen: usize,
    skipped: Vec<String>,
    tensors: Vec<(String, StoredTensor)>,
}

impl Contents {
    fn read(file: &[u8], dict: Option<&str>) -> Result<Contents, CheckpointFault> {
        if !ZipDirectory::looks_like(file) {
            let found = describe_content(file);
            return Err(old_form(file).unwrap_or(CheckpointFault::NotCheckpoint { found }));
        }
        let archive = ZipDirectory::parse(file)?;
        let folder = checkpoint_folder(&archive)?;
        let read = |name: &str| {
            archive
                .get(&format!("{folder}{name}"))
                .map(|entry| entry.read(file))
        };
        if read("byteorder")
            .transpose()?
            .is_some_and(|order| order.trim_ascii() == b"big")
        {
            return Err(CheckpointFault::BigEndian);
        }
        let pickle = read("data.pkl").transpose()?.unwrap_or_default();
        let (values, root) = pickle::load(&pickle)?;
        let selection = select::select(&values, root, dict)?;
        let tensors = selection.tensors.iter().map(|(name, view)| {
            let tensor = StoredTensor::locate(name, view, &archive, folder)?;
            Ok((name.clone(), tensor))
        });
        let tensors = tensors.collect::<Result<_, CheckpointFault>>()?;
        let (dicts, chosen, skipped) = (selection.dicts, selection.chosen, selection.skipped);
        Ok(Contents {
            dicts,
            chosen,
            skipped,
            tensors,
            archive,
        })
    }
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

/// Recognises the files of Python and PyTorch that are no zip archives.
fn old_form(start: &[u8]) -> Option<CheckpointFault> {
    // The old form is a series of pickles, the first of which is this number.
    const OLD_MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    let is_pickle = matches!(start, [0x80, 2..=5, ..]);
    let tar = start.get(257..262) == Some(b"ustar");
    if tar || (is_pickle && start[2..].starts_with(OLD_MAGIC)) {
        Some(CheckpointFault::OldForm)
    } else {
        is_pickle.then_some(CheckpointFault::PlainPickle)
    }
}
