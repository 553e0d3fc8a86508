//! What can go wrong with a store. Damage to a cache's file is none of it: that is a miss.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a store could not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// What could not be read or written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A kind that cannot name a folder.
    #[error("kind '{kind}': expected 1 to 32 lowercase letters, digits and hyphens")]
    Collection {
        /// The kind asked for.
        kind: String,
    },
    /// The cache is smaller than what it was given.
    #[error("{bytes} bytes do not fit a cache of {limit}")]
    TooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// Bytes that the cache may hold.
        limit: u64,
    },
    /// A record that cannot be written.
    #[error("a record cannot hold {what}")]
    Record {
        /// What does not fit.
        what: String,
    },
    /// The file is no journal, or one that this version cannot read.
    #[error("{}: not a journal that this version reads", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal holds something else.
    #[error("{}: holds '{found}', expected '{expected}'", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// Collection and version in the file.
        found: String,
        /// Collection and version asked for.
        expected: String,
    },
    /// Another process writes to the journal.
    #[error("{}: another process is writing to it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl StoreError {
    /// For `map_err`: an error at this path.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { path, source }
    }
}
