//! What can be wrong with a safetensors file.

use thiserror::Error;

use crate::error::FaultKind;

/// What is wrong with a safetensors file.
#[derive(Debug, Error)]
pub enum SafetensorsFault {
    /// The content is something else.
    #[error("not a safetensors file: {found}")]
    NotSafetensors {
        /// What it looks like.
        found: String,
    },
    /// The header does not fit the file.
    #[error(
        "corrupt safetensors: the header claims {claimed} bytes, the file has {available} for it"
    )]
    HeaderLength {
        /// Bytes claimed.
        claimed: u64,
        /// Bytes that follow the length.
        available: u64,
    },
    /// The header is no valid JSON, repeats a name, or holds the wrong fields.
    #[error("corrupt safetensors: the header is not valid: {reason}")]
    Header {
        /// What the JSON parser says.
        reason: String,
    },
    /// A tensor's offsets do not fit its shape.
    #[error(
        "corrupt safetensors: tensor `{tensor}` ({dtype} {shape:?}) has data offsets {begin}..{end}, \
         which do not fit its shape"
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Where its data begins.
        begin: usize,
        /// Where its data ends.
        end: usize,
    },
    /// A tensor lies past the end of the file.
    #[error(
        "corrupt safetensors: tensor `{tensor}` ends at byte {end} of the data, the file holds {available} \
         (truncated?)"
    )]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// Where its data ends.
        end: usize,
        /// Data bytes in the file.
        available: usize,
    },
    /// The tensors overlap or leave bytes that belong to none.
    #[error(
        "corrupt safetensors: data before {before} should begin at byte {expected}, it begins at {found}"
    )]
    Layout {
        /// The tensor, or the end of the file.
        before: String,
        /// Where the tensor before it ends.
        expected: usize,
        /// Where it begins.
        found: usize,
    },
    /// An element type that percept does not read.
    #[error("tensor `{tensor}` has the element type {dtype}, which is not supported")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// The type as the file names it.
        dtype: String,
    },
    /// A name that a file cannot hold (written only).
    #[error("cannot write a tensor named `{tensor}`: {reason}")]
    Name {
        /// The name.
        tensor: String,
        /// Why it cannot be written.
        reason: &'static str,
    },
}

impl SafetensorsFault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::NotSafetensors { .. } | Self::UnsupportedType { .. } | Self::Name { .. } => {
                FaultKind::Unsupported
            }
            _ => FaultKind::Corrupt,
        }
    }
}
