//! numpy's files: one array (`.npy`) or a zip archive of named arrays (`.npz`).

mod integers;
mod npy;
mod npz;
mod planes;

use thiserror::Error;

pub use self::integers::{NpyInteger, read_npy_integers, write_npy_integers};
pub use self::npy::{read_npy, write_npy};
pub use self::npz::{NpzWriter, read_npz, write_npz};
pub(crate) use self::planes::Planes;
use crate::error::FaultKind;
use crate::zip::ZipFault;
use percept_graph::DType;

/// What is wrong with an npy or npz file.
#[derive(Debug, Error)]
pub enum ArrayFault {
    /// The content is something else.
    #[error("not {expected}: {found}")]
    WrongFormat {
        /// What was asked for.
        expected: &'static str,
        /// What it looks like.
        found: String,
    },
    /// The header breaks the rules.
    #[error("corrupt npy{}: {reason}", in_array(.array))]
    Header {
        /// The array in the npz file; empty in an npy file.
        array: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Header and data disagree.
    #[error("corrupt npy{}: shape {shape:?} of {dtype} needs {expected} bytes, the file holds {found}", in_array(.array))]
    Length {
        /// The array in the npz file; empty in an npy file.
        array: String,
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that the shape needs (the most that can be counted, when it is more).
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// An element type or header version that percept does not read or numpy cannot hold.
    #[error("npy{}: {what} is not supported", in_array(.array))]
    Unsupported {
        /// The array in the npz file; empty in an npy file.
        array: String,
        /// What it is.
        what: String,
    },
    /// The archive is broken.
    #[error(transparent)]
    Zip(#[from] ZipFault),
}

fn in_array(array: &str) -> String {
    if array.is_empty() {
        String::new()
    } else {
        format!(" array `{array}`")
    }
}

impl ArrayFault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::WrongFormat { .. }
            | Self::Unsupported { .. }
            | Self::Zip(ZipFault::Unsupported { .. }) => FaultKind::Unsupported,
            _ => FaultKind::Corrupt,
        }
    }

    /// The same fault, said of the named array of an archive.
    pub(crate) fn of_array(mut self, name: &str) -> ArrayFault {
        if let Self::Header { array, .. }
        | Self::Length { array, .. }
        | Self::Unsupported { array, .. } = &mut self
        {
            *array = name.to_owned();
        }
        self
    }
}
