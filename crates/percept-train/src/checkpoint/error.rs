use std::io;
use std::path::{Path, PathBuf};

use percept_data::{FaultKind, FileError};
use percept_graph::WeightError;
use thiserror::Error;

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The system refused a file or folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no safetensors file, or a damaged one, or could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A tensor of the file cannot be read.
    #[error(transparent)]
    Tensor(#[from] WeightError),
    /// Another run works in this folder.
    #[error("{}: another run writes its checkpoints here", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A safetensors file that no run wrote.
    #[error("{}: not a checkpoint of a training run: it has no `{key}`", path.display())]
    NotACheckpoint {
        /// The file.
        path: PathBuf,
        /// What its metadata lacks.
        key: &'static str,
    },
    /// A checkpoint of another version of percept.
    #[error("{}: a checkpoint of version {found}, this program reads version {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The version that is read.
        expected: &'static str,
    },
    /// The state of the run does not parse.
    #[error("{}: the state of the run is not valid: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        reason: String,
    },
    /// The content is not what was written.
    #[error("{}: the content does not match its checksum: damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint of another network.
    #[error("{}: a checkpoint of {found}, not of {expected}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// Its network.
        found: String,
        /// The network of the run.
        expected: String,
    },
    /// The thread that writes is gone.
    #[error("the thread that writes checkpoints panicked (a bug)")]
    WriterDied,
}

impl CheckpointError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        let io = match self {
            Self::Io { source, .. } => source,
            Self::File(file) => match &file.fault {
                percept_data::error::Fault::Io(source) => source,
                _ => return false,
            },
            _ => return false,
        };
        matches!(
            io.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }

    /// Whether the content of the file is at fault, so that an older one may do.
    pub(super) fn is_in_content(&self) -> bool {
        let in_file = |error: &FileError| error.kind() != FaultKind::Io;
        match self {
            Self::File(error) => in_file(error),
            Self::Tensor(WeightError::Source(error)) => error.downcast_ref().is_none_or(in_file),
            Self::Tensor(_)
            | Self::NotACheckpoint { .. }
            | Self::State { .. }
            | Self::Damaged { .. } => true,
            _ => false,
        }
    }
}
