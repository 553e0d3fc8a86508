//! Where the storages of a checkpoint lie: entries of an archive, or stretches of the file itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::fault::CheckpointFault;
use crate::zip::{ZipDirectory, ZipEntry};

/// The storages of a file, by key.
pub(crate) enum Storages {
    /// Entries `FOLDERdata/KEY` of a zip archive.
    Zip {
        archive: ZipDirectory,
        /// The archive's top folder with its slash.
        folder: String,
    },
    /// Raw bytes in the file, each stretch inside it.
    Plain(HashMap<String, Range<usize>>),
}

impl Storages {
    /// How many bytes a storage holds.
    pub(crate) fn length(&self, key: &str) -> Option<u64> {
        match self {
            Storages::Zip { .. } => Some(self.entry(key)?.length),
            Storages::Plain(places) => Some(places.get(key)?.len() as u64),
        }
    }

    /// Where a storage lies in the file, when it lies there as it is.
    pub(crate) fn plain_range(&self, key: &str) -> Option<Range<usize>> {
        match self {
            Storages::Zip { .. } => self.entry(key)?.plain_range(),
            Storages::Plain(places) => places.get(key).cloned(),
        }
    }

    /// The bytes of a storage, lent when they lie in the file as they are; none when there is no such storage.
    pub(crate) fn read<'f>(
        &self,
        key: &str,
        file: &'f [u8],
    ) -> Result<Option<Cow<'f, [u8]>>, CheckpointFault> {
        match self {
            Storages::Zip { .. } => {
                Ok(self.entry(key).map(|entry| entry.read(file)).transpose()?)
            }
            Storages::Plain(places) => {
                let bytes = places.get(key).and_then(|place| file.get(place.clone()));
                Ok(bytes.map(Cow::Borrowed))
            }
        }
    }

    fn entry(&self, key: &str) -> Option<&ZipEntry> {
        match self {
            Storages::Zip { archive, folder } => archive.get(&format!("{folder}data/{key}")),
            Storages::Plain(_) => None,
        }
    }
}
