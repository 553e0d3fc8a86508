use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a world could not be written.
#[derive(Debug, Error)]
pub enum WorldError {
    /// Asked for nothing.
    #[error("0 frames: expected at least 1")]
    NoFrames,
    /// Asked for a town that nobody drives through.
    #[error("0 passes: expected at least 1")]
    NoPasses,
    /// Asked for no rooms.
    #[error("0 takes: expected at least 1")]
    NoTakes,
    /// A number of sweeps that does not exist.
    #[error("{sweeps} sweeps a frame: expected 1 to {}", super::MAX_SWEEPS)]
    Sweeps {
        /// The number asked for.
        sweeps: usize,
    },
    /// A picture without pixels, or a huge one.
    #[error("pictures of {width}x{height}: expected 1 to 8192 pixels a side")]
    PictureSize {
        /// The width asked for.
        width: usize,
        /// The height asked for.
        height: usize,
    },
    /// A number of samples that makes no picture.
    #[error("{samples} samples a pixel: expected 1 to 256")]
    Samples {
        /// The number asked for.
        samples: usize,
    },
    /// No such camera.
    #[error("unknown channel {name:?}: expected {}", percept_data::points::CAMERA_CHANNELS.join(", "))]
    UnknownChannel {
        /// The name asked for.
        name: String,
    },
    /// The output is there already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The output folder.
        path: PathBuf,
    },
    /// The output is there already, and was not made by us: it is not replaced even when forced.
    #[error("{} exists and is not a world that percept made, so it is not replaced", path.display())]
    NotOurs {
        /// The output folder.
        path: PathBuf,
    },
    /// A file of arrays could not be written.
    #[error(transparent)]
    File(#[from] percept_data::error::FileError),
    /// A file could not be written: no space, no permission.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl WorldError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        |source| Self::Io { path, source }
    }
}
