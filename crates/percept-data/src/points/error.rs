use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::error::FileError;

/// What can go wrong when point clouds, labels, poses and tables are read.
#[derive(Debug, Error)]
pub enum PointsError {
    /// The file or folder could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file's length is not a whole number of rows.
    #[error(
        "{}: {bytes} bytes is not a whole number of {row_bytes}-byte {rows}: truncated, or another format",
        path.display()
    )]
    PartialRow {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The length of one row.
        row_bytes: usize,
        /// What a row is.
        rows: &'static str,
    },
    /// A laser's number that is no small whole number: another format, or damage.
    #[error("{}: point {index}: ring is {ring}", path.display())]
    BadRing {
        /// The file.
        path: PathBuf,
        /// The point, counted from 0.
        index: usize,
        /// What stands there.
        ring: f32,
    },
    /// A label file that does not match its point cloud.
    #[error("{}: {labels} labels for {points} points", path.display())]
    LabelCount {
        /// The label file.
        path: PathBuf,
        /// Labels in it.
        labels: usize,
        /// Points in the cloud.
        points: usize,
    },
    /// A line of a text file that does not read as expected.
    #[error("{}:{line}: expected {expected}, got {got:?}", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What belongs there.
        expected: &'static str,
        /// The beginning of what stands there.
        got: String,
    },
    /// A JSON table that does not parse.
    #[error("{}: {source}", path.display())]
    Json {
        /// The table.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A record that refers to one which does not exist.
    #[error("{}: table {table} has no record {token:?}", root.display())]
    MissingRecord {
        /// The dataset's table folder.
        root: PathBuf,
        /// The table that was searched.
        table: &'static str,
        /// The token that it does not hold.
        token: String,
    },
    /// A rotation that is no rotation, a box without extent, and the like.
    #[error("{}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
    /// A camera that a frame does not have.
    #[error("no camera {channel}: {}", if present.is_empty() { "the frame has none".to_owned() } else { format!("the frame has {}", present.join(", ")) })]
    NoCamera {
        /// The channel asked for.
        channel: String,
        /// The channels that are there.
        present: Vec<String>,
    },
    /// A frame number beyond the end.
    #[error("{}: frame {index} does not exist: there are {frames}", path.display())]
    NoSuchFrame {
        /// The dataset.
        path: PathBuf,
        /// The frame asked for, counted from 0.
        index: usize,
        /// How many there are.
        frames: usize,
    },
    /// A format of points that percept knows and does not read.
    #[error("{}: {what} is not supported", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A file of rows whose length fits several formats, or none.
    #[error("{}: {bytes} bytes fit {}", path.display(), if fitting.is_empty() { "none of the point formats".to_owned() } else { fitting.join(", ") })]
    AmbiguousFormat {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The names of the formats that it could be.
        fitting: Vec<&'static str>,
    },
    /// A file whose name tells no format.
    #[error("{}: not a known point format: expected .pcd.bin, .bin, .pcd, .ply or .npy", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// An array file that cannot be read.
    #[error(transparent)]
    Array(#[from] FileError),
    /// A path that holds none of the known layouts.
    #[error(
        "{}: not a known layout: expected a .pcd.bin or .bin point cloud, a nuScenes folder (with v1.0-*/), a folder with one keyframe (LIDAR_TOP.pcd.bin) or a SemanticKITTI folder (with sequences/)",
        path.display()
    )]
    UnknownLayout {
        /// The path.
        path: PathBuf,
    },
}

impl PointsError {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::AmbiguousFormat { .. } | Self::UnknownFormat { .. } => {
                Some("say what it is: --format nuscenes, kitti, f16x5, pcd, ply or npy")
            }
            _ => None,
        }
    }

    /// Wraps a system error with the path it happened on.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    /// A structural error in `path`.
    pub(crate) fn invalid(path: &Path, what: impl Into<String>) -> Self {
        Self::Invalid {
            path: path.to_path_buf(),
            what: what.into(),
        }
    }
}

/// Reads a whole file, naming it when that fails.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, PointsError> {
    std::fs::read(path).map_err(|source| PointsError::io(path, source))
}

/// Reads a whole text file, naming it when that fails.
pub(crate) fn read_text(path: &Path) -> Result<String, PointsError> {
    std::fs::read_to_string(path).map_err(|source| PointsError::io(path, source))
}
