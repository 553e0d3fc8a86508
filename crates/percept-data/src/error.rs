//! What can be wrong with a file: one outer error that names the file, one fault type a format inside.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::arrays::ArrayFault;
use crate::checkpoint::CheckpointFault;
use crate::images::ImageFault;
use crate::masks::MaskFault;
use crate::safetensors::SafetensorsFault;

/// A file that could not be read or written, and why.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a file, by format.
#[derive(Debug, Error)]
pub enum Fault {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The content is no known weight format.
    #[error("not a weight file: expected safetensors or a PyTorch checkpoint, found {found}")]
    NotWeights {
        /// What the content looks like.
        found: String,
    },
    /// A safetensors file.
    #[error(transparent)]
    Safetensors(#[from] SafetensorsFault),
    /// A PyTorch checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointFault),
    /// An npy or npz file.
    #[error(transparent)]
    Array(#[from] ArrayFault),
    /// An image.
    #[error(transparent)]
    Image(#[from] ImageFault),
    /// A mask.
    #[error(transparent)]
    Mask(#[from] MaskFault),
}

/// The three reasons why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operating system refused: missing, not readable, disk full.
    Io,
    /// The content breaks the rules of its format: truncated, flipped bits, hostile.
    Corrupt,
    /// The content may well be valid, but percept does not take it.
    Unsupported,
}

impl FileError {
    /// `fault` in the file at `path`.
    pub fn new(path: &Path, fault: impl Into<Fault>) -> FileError {
        FileError {
            path: path.to_owned(),
            fault: fault.into(),
        }
    }

    /// Whether the system refused, the file is broken, or it is just not supported.
    pub fn kind(&self) -> FaultKind {
        match &self.fault {
            Fault::Io(_) => FaultKind::Io,
            Fault::NotWeights { .. } => FaultKind::Unsupported,
            Fault::Safetensors(fault) => fault.kind(),
            Fault::Checkpoint(fault) => fault.kind(),
            Fault::Array(fault) => fault.kind(),
            Fault::Image(fault) => fault.kind(),
            Fault::Mask(fault) => fault.kind(),
        }
    }

    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match &self.fault {
            Fault::Checkpoint(fault) => fault.hint(),
            _ => None,
        }
    }
}

/// Says in a few words what `bytes` look like, for "found ..." in errors.
pub(crate) fn describe_content(bytes: &[u8]) -> String {
    const SIGNATURES: [(&[u8], &str); 10] = [
        (b"PK\x03\x04", "a zip archive"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\x93NUMPY", "an npy array"),
        (
            b"version https://git-lfs",
            "a Git LFS pointer (the file itself was not downloaded)",
        ),
        (b"\x1f\x8b", "gzip-compressed data"),
        (b"<!DOCTYPE", "an HTML page"),
        (b"<html", "an HTML page"),
        (b"RIFF", "a RIFF container (WebP, WAV, AVI)"),
        (b"GIF8", "a GIF image"),
    ];
    if bytes.is_empty() {
        return "an empty file".to_owned();
    }
    if let Some((_, name)) = SIGNATURES
        .iter()
        .find(|(start, _)| bytes.starts_with(start))
    {
        return (*name).to_owned();
    }
    let start = &bytes[..bytes.len().min(8)];
    format!(
        "unknown content that starts with \"{}\"",
        start.escape_ascii()
    )
}
