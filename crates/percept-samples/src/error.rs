use std::path::{Path, PathBuf};

use percept_data::FileError;
use percept_data::egoexo::PairsError;
use percept_data::points::PointsError;
use percept_kernels::CpuError;
use percept_world::WorldError;
use thiserror::Error;

/// Why paths give no samples.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Points(#[from] PointsError),
    #[error(transparent)]
    Pairs(#[from] PairsError),
    #[error(transparent)]
    World(#[from] WorldError),
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error("{}: the folder has no {expected} files", path.display())]
    EmptyFolder {
        path: PathBuf,
        expected: &'static str,
    },
    #[error("{}: no tensor is named `{input}`; the file has: {}", path.display(), listed(present))]
    NoTensor {
        path: PathBuf,
        input: String,
        present: Vec<String>,
    },
    #[error("{}: expected a tensor file (.safetensors, .npz or .npy)", path.display())]
    NotTensors { path: PathBuf },
    #[error("{network} has no part `{part}`; a sample of it has {}", known.join(", "))]
    UnknownPart {
        network: &'static str,
        part: String,
        known: Vec<&'static str>,
    },
    #[error("{}: name the part that it holds, as the others do: {}", path.display(), known.join(", "))]
    PartOrWhole {
        path: PathBuf,
        known: Vec<&'static str>,
    },
    #[error("{a_part} has {a} samples, {b_part} has {b}")]
    OtherLength {
        a_part: String,
        a: usize,
        b_part: String,
        b: usize,
    },
    #[error("{}: it has {frames} frames, so there is no frame {frame}", path.display())]
    NoSuchFrame {
        path: PathBuf,
        frame: usize,
        frames: usize,
    },
    #[error("{sweeps} sweeps: {} is one; sweeps are merged from a nuScenes folder", path.display())]
    OneSweep { path: PathBuf, sweeps: usize },
    #[error("{}: a part `{part}` comes from a folder of frames, or name a file for each part", path.display())]
    NotAFolder { path: PathBuf, part: &'static str },
}

impl OpenError {
    /// Whether the request is wrong, and not a file.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownPart { .. }
                | Self::PartOrWhole { .. }
                | Self::NoSuchFrame { .. }
                | Self::OneSweep { .. }
                | Self::NotAFolder { .. }
                | Self::World(_)
                | Self::Cpu(_)
        )
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}

/// Names, the first of many.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let first = &names[..names.len().min(MOST)];
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
}
