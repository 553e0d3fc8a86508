use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::error::FileError;
use crate::masks::MaskFault;

/// Why pairs of views cannot be read.
#[derive(Debug, Error)]
pub enum PairsError {
    /// A file of them.
    #[error(transparent)]
    File(#[from] FileError),
    /// A JSON file that is broken or says something else.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A mask in an annotation.
    #[error("{}: the mask of {place}: {fault}", path.display())]
    Mask {
        /// The annotation.
        path: PathBuf,
        /// Which object, camera and frame.
        place: String,
        /// What is wrong with it.
        fault: MaskFault,
    },
    /// The object has no mask where a pair says that it is seen.
    #[error("{}: no mask of {place}", path.display())]
    NoMask {
        /// The annotation.
        path: PathBuf,
        /// Which object, camera and frame.
        place: String,
    },
    /// A line of the list of pairs that is none.
    #[error("{}: pair {index}: {reason}", path.display())]
    BadPair {
        /// The list.
        path: PathBuf,
        /// The pair, from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// No list of pairs, or several that could be meant.
    #[error("{}: expected one list *_pairs.json for {wanted}, found {}", path.display(), found(.lists))]
    Lists {
        /// The folder.
        path: PathBuf,
        /// The split and the direction.
        wanted: String,
        /// The lists that are there.
        lists: Vec<String>,
    },
    /// Nothing to read.
    #[error("{}: no pairs: expected {expected}", path.display())]
    NoPairs {
        /// The folder or list.
        path: PathBuf,
        /// What belongs there.
        expected: &'static str,
    },
    /// A file of a pair that belongs to something else.
    #[error("{}: {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl PairsError {
    pub(super) fn unfit(path: &Path, reason: impl ToString) -> Self {
        Self::Unfit {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

fn found(lists: &[String]) -> String {
    match lists {
        [] => "none".to_owned(),
        lists => lists.join(", "),
    }
}
