use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a set of pictures cannot be used.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The system refused a file or folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder of classes without any.
    #[error("{}: no classes: expected one folder of images a class", path.display())]
    NoClasses {
        /// The folder.
        path: PathBuf,
    },
    /// A class without a picture.
    #[error("{}: class `{class}` has no images{}", path.display(), of_split(.split))]
    EmptyClass {
        /// The folder of the class, or of the dataset.
        path: PathBuf,
        /// The class.
        class: String,
        /// The part of the dataset that lacks it, where it has parts.
        split: Option<&'static str>,
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
    /// An identifier that stands twice in one file.
    #[error("{}:{line}: the id {id} appears twice", path.display())]
    Repeated {
        /// The file.
        path: PathBuf,
        /// The second line, counted from 1.
        line: usize,
        /// The identifier.
        id: u32,
    },
    /// An identifier that another file does not know.
    #[error("{}: the {what} {id} is missing", path.display())]
    Missing {
        /// The file that lacks it.
        path: PathBuf,
        /// What it identifies.
        what: &'static str,
        /// The identifier.
        id: u32,
    },
    /// A picture that a list names and the disk does not have.
    #[error("{}: no such file, but {}:{line} lists it", path.display(), list.display())]
    MissingFile {
        /// The picture.
        path: PathBuf,
        /// The list.
        list: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// A text file far longer than any dataset's.
    #[error("{}: {bytes} bytes, at most {limit} are read", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The most that is read.
        limit: u64,
    },
}

impl DatasetError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

fn of_split(split: &Option<&'static str>) -> String {
    split.map_or_else(String::new, |split| format!(" for {split}"))
}
