//! What can be wrong with a PyTorch checkpoint.

use thiserror::Error;

use crate::error::FaultKind;
use crate::zip::ZipFault;

/// What is wrong with a checkpoint: first what is valid but not supported, then what is corrupt.
#[derive(Debug, Error)]
pub enum CheckpointFault {
    /// Written by the first releases of PyTorch, as a tar archive.
    #[error("a PyTorch file of the first form (a tar archive), which is not supported")]
    TarForm,
    /// A Python pickle that is no `torch.save` file.
    #[error("a plain Python pickle, not a file of torch.save")]
    PlainPickle,
    /// A scripted or traced module.
    #[error("a TorchScript archive (code and weights), not a checkpoint of weights")]
    TorchScript,
    /// A zip archive of something else.
    #[error(
        "not a PyTorch checkpoint: expected a file of torch.save (a zip archive with one data.pkl, or pickles in a row), found {found}"
    )]
    NotCheckpoint {
        /// What it is instead.
        found: String,
    },
    /// Written on a big-endian machine.
    #[error("the checkpoint holds big-endian numbers, which is not supported")]
    BigEndian,
    /// No dict of tensors in it.
    #[error("no dict of tensors in the checkpoint{}", pickled_module(.objects))]
    NoStateDict {
        /// Python classes whose objects it holds instead.
        objects: Vec<String>,
    },
    /// The dict asked for is not in it.
    #[error("no dict of tensors at `{asked}` in the checkpoint, it has: {}", .present.join(", "))]
    NoSuchDict {
        /// The path asked for.
        asked: String,
        /// The paths of those that are there.
        present: Vec<String>,
    },
    /// A tensor of a type that percept does not read.
    #[error("tensor `{tensor}` has the element type {dtype}, which is not supported")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// PyTorch's name of the type.
        dtype: String,
    },
    /// A storage whose length cannot be told, so that nothing behind it can be found.
    #[error("storage `{storage}` has the element type {dtype}, which is not supported")]
    UnsupportedStorage {
        /// The storage's key.
        storage: String,
        /// PyTorch's name of its class.
        dtype: String,
    },
    /// A pickle operation outside what `torch.save` writes.
    #[error("pickle operation 0x{opcode:02x} at byte {at} of the pickle is not supported")]
    UnsupportedOpcode {
        /// The operation.
        opcode: u8,
        /// Where it stands.
        at: usize,
    },
    /// A pickle so long that reading it could exhaust memory.
    #[error("the pickle has more than {limit} operations, which is not supported")]
    TooLong {
        /// The most operations that are read.
        limit: usize,
    },
    /// The archive itself is broken.
    #[error(transparent)]
    Zip(#[from] ZipFault),
    /// The pickle breaks the rules.
    #[error("corrupt checkpoint: byte {at} of the pickle: {reason}")]
    Pickle {
        /// Where.
        at: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A stored run of elements is not what the pickle says, or ends early.
    #[error("corrupt checkpoint: storage `{storage}` {reason}")]
    Storage {
        /// The storage's key.
        storage: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A tensor does not fit its storage, or the storage is missing.
    #[error("corrupt checkpoint: tensor `{tensor}` (storage `{storage}`) {reason}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// The storage it looks into.
        storage: String,
        /// What is wrong.
        reason: &'static str,
    },
}

impl CheckpointFault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Self::Zip(ZipFault::Unsupported { .. }) => FaultKind::Unsupported,
            Self::Zip(_) | Self::Pickle { .. } | Self::Storage { .. } | Self::Tensor { .. } => {
                FaultKind::Corrupt
            }
            _ => FaultKind::Unsupported,
        }
    }

    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TarForm => Some(
                "save it once more with a current PyTorch: torch.save(torch.load(file, map_location=\"cpu\"), file)",
            ),
            Self::TorchScript | Self::NoStateDict { .. } => {
                Some("save the weights alone: torch.save(model.state_dict(), file)")
            }
            _ => None,
        }
    }
}

fn pickled_module(objects: &[String]) -> String {
    match objects {
        [] => String::new(),
        [first, ..] => format!(
            ": it holds pickled objects ({first}{})",
            if objects.len() > 1 { ", ..." } else { "" }
        ),
    }
}
