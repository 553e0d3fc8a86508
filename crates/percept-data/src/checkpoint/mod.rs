//! PyTorch checkpoints (`.pth`, `.pt`, `.pth.tar`): a pickle and raw storages, in a zip archive (since PyTorch 1.6)
//! or one after the other (before), read without Python and without executing anything.

mod fault;
mod old_form;
mod pickle;
mod select;
mod storages;
#[cfg(test)]
mod tests;
mod torch;
mod value;
mod view;
mod zip_form;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use percept_kernels::MappedFile;

pub use self::fault::CheckpointFault;
pub use self::select::StateDict;
use self::storages::Storages;
use self::value::{ValueId, Values};
use self::view::StoredTensor;
use crate::error::{FileError, describe_content};
use crate::weights::{TensorSource, missing};
use crate::zip::ZipDirectory;
use percept_graph::{DType, Tensor, WeightError};

/// A checkpoint of which one dict of tensors is open.
pub struct Checkpoint {
    path: PathBuf,
    file: MappedFile,
    storages: Storages,
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
            storages: contents.storages,
            dicts: contents.dicts,
            chosen: contents.chosen,
            skipped: contents.skipped,
            tensors: contents.tensors,
        })
    }

    /// Whether a file that starts like this is for this reader (which also explains the forms it does not read).
    pub fn looks_like(start: &[u8]) -> bool {
        ZipDirectory::looks_like(start) || old_form::looks_like(start) || explained(start).is_some()
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
        let tensor = self.tensor(name).ok_or_else(|| missing(self, name))?;
        Ok(tensor
            .read(name, &self.storages, &self.file)
            .map_err(|fault| FileError::new(&self.path, fault))?)
    }

    fn release(&self, name: &str) {
        if let Some(range) = self
            .tensor(name)
            .and_then(|tensor| tensor.plain_range(&self.storages))
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
    storages: Storages,
    dicts: Vec<StateDict>,
    chosen: usize,
    skipped: Vec<String>,
    tensors: Vec<(String, StoredTensor)>,
}

impl Contents {
    fn read(file: &[u8], dict: Option<&str>) -> Result<Contents, CheckpointFault> {
        if ZipDirectory::looks_like(file) {
            let (pickle, storages) = zip_form::open(file)?;
            let loaded = pickle::load(&pickle)?;
            Contents::select(&loaded.values, loaded.root, storages, dict)
        } else if old_form::looks_like(file) {
            let (loaded, storages) = old_form::load(file)?;
            Contents::select(&loaded.values, loaded.root, storages, dict)
        } else {
            let found = describe_content(file);
            Err(explained(file).unwrap_or(CheckpointFault::NotCheckpoint { found }))
        }
    }

    fn select(
        values: &Values<'_>,
        root: ValueId,
        storages: Storages,
        dict: Option<&str>,
    ) -> Result<Contents, CheckpointFault> {
        let selection = select::select(values, root, dict)?;
        let tensors = selection.tensors.iter().map(|(name, view)| {
            let tensor = StoredTensor::locate(name, view, &storages)?;
            Ok((name.clone(), tensor))
        });
        let tensors = tensors.collect::<Result<_, CheckpointFault>>()?;
        Ok(Contents {
            tensors,
            dicts: selection.dicts,
            chosen: selection.chosen,
            skipped: selection.skipped,
            storages,
        })
    }
}

/// What a file is that Python or PyTorch wrote in a form that is not read.
fn explained(start: &[u8]) -> Option<CheckpointFault> {
    if start.get(257..262) == Some(b"ustar") {
        return Some(CheckpointFault::TarForm);
    }
    let is_pickle = matches!(start, [0x80, 2..=5, ..]);
    is_pickle.then_some(CheckpointFault::PlainPickle)
}
