//! An append-only file of records that never evicts.
//!
//! The latest record of a key counts; a record that deletes says that the key is gone. A process that is killed while it
//! appends leaves a torn tail, which the next writer writes over; what was appended before is on the disk. Nothing that
//! was whole is ever changed in place, so others may read while one writes.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use percept_kernels::MappedFile;

use crate::atomic::{sync_folder, write_atomically};
use crate::record::{self, ALIGNMENT, Draft, Header, RecordError};
use crate::tensor::{Tensor, TensorRef};
use crate::{Collection, Key, StoreError};

/// What opening a journal found besides whole records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes behind the last whole record: an append that was cut off.
    pub torn_bytes: u64,
    /// Byte ranges between whole records that hold none: damage to the file. What they held is lost.
    pub damaged: Vec<Range<u64>>,
}

/// A journal: open for reading, or for reading and writing.
///
/// ```
/// use percept_store::{Journal, Key, Collection, TensorRef};
/// let folder = tempfile::tempdir()?;
/// let kind = Collection::new("places", 1)?;
/// let mut journal = Journal::open(folder.path().join("places.journal"), &kind)?;
/// let key = Key::of().part(b"crossing").finish();
/// journal.append(key, &[TensorRef::new("descriptor", &[2], &[0.6f32, 0.8])])?;
/// assert_eq!(journal.len(), 1);
/// journal.delete(key)?;
/// assert!(journal.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    kind: Collection,
    /// For writing: the file, and the lock that keeps other writers out.
    writer: Option<(File, File)>,
    contents: Contents,
    recovery: Recovery,
}

/// The records of a mapped file.
#[derive(Debug)]
struct Contents {
    file: MappedFile,
    /// Where the next record goes.
    end: u64,
    /// Whole records that hold something, by their places; those replaced or deleted are `None`.
    records: Vec<Option<(usize, Header)>>,
    live: HashMap<Key, usize>,
}

impl Journal {
    /// Opens a journal for writing, and makes it where it is missing. One process writes at a time.
    pub fn open(path: impl Into<PathBuf>, kind: &Collection) -> Result<Journal, StoreError> {
        let path = path.into();
        let mut lock_path = path.clone().into_os_string();
        lock_path.push(".lock");
        // The lock stands beside the journal: where it cannot be made, neither can the journal, which is what the caller knows.
        let open = |file: &Path| {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(false).read(true).write(true);
            options.open(file).map_err(StoreError::at(&path))
        };
        let lock = open(Path::new(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(StoreError::Busy { path }),
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(StoreError::at(lock_path)(error));
            }
        }
        let file = open(&path)?;
        let mut journal = Journal::read(path, kind)?;
        journal.writer = Some((file, lock));
        Ok(journal)
    }

    /// Opens a journal that exists, as it is now, for reading. Somebody may be writing to it.
    pub fn read(path: impl Into<PathBuf>, kind: &Collection) -> Result<Journal, StoreError> {
        let path = path.into();
        let (contents, recovery) = Contents::read(&path, kind)?;
        Ok(Journal {
            path,
            kind: kind.clone(),
            writer: None,
            contents,
            recovery,
        })
    }

    /// What opening found besides whole records.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.contents.live.len()
    }

    /// Whether it holds no key.
    pub fn is_empty(&self) -> bool {
        self.contents.live.is_empty()
    }

    /// The tensors of a key.
    pub fn get(&self, key: Key) -> Option<impl Iterator<Item = Tensor<'_>>> {
        let &index = self.contents.live.get(&key)?;
        let (_, tensors) = self.contents.record(index)?;
        Some(tensors)
    }

    /// All keys with their tensors, in the order in which they were appended.
    pub fn iter(&self) -> impl Iterator<Item = (Key, impl Iterator<Item = Tensor<'_>>)> {
        (0..self.contents.records.len()).filter_map(|index| self.contents.record(index))
    }

    /// Appends the tensors of a key, in place of what it held before. They are on the disk when this returns.
    pub fn append(&mut self, key: Key, tensors: &[TensorRef<'_>]) -> Result<(), StoreError> {
        self.write(key, false, tensors)
    }

    /// Deletes a key, if it is there; says whether it was.
    pub fn delete(&mut self, key: Key) -> Result<bool, StoreError> {
        let known = self.contents.live.contains_key(&key);
        if known {
            self.write(key, true, &[])?;
        }
        Ok(known)
    }

    /// Writes the file anew without what was replaced, deleted or damaged. Returns the bytes gained.
    pub fn compact(&mut self) -> Result<u64, StoreError> {
        self.writable()?;
        let path = &self.path;
        let before = self.contents.file.len() as u64;
        write_atomically(path, |file| {
            for (start, header) in self.contents.records.iter().flatten() {
                file.write_all(&self.contents.file[*start..][..header.record_bytes()])?;
            }
            Ok(())
        })
        .map_err(StoreError::at(path))?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(StoreError::at(path))?;
        if let Some(writer) = &mut self.writer {
            writer.0 = file;
        }
        (self.contents, self.recovery) = Contents::read(&self.path, &self.kind)?;
        Ok(before.saturating_sub(self.contents.file.len() as u64))
    }

    fn writable(&mut self) -> Result<&mut File, StoreError> {
        let path = &self.path;
        self.writer.as_mut().map(|(file, _)| file).ok_or_else(|| {
            StoreError::at(path)(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the journal was opened for reading",
            ))
        })
    }

    fn write(
        &mut self,
        key: Key,
        deletes: bool,
        tensors: &[TensorRef<'_>],
    ) -> Result<(), StoreError> {
        let kind = self.kind.clone();
        let draft = Draft {
            kind: &kind,
            key,
            deletes,
            tensors,
        };
        let (front, bytes) = draft.front()?;
        let end = self.contents.end;
        let file = self.writable()?;
        let written = file.seek(SeekFrom::Start(end)).and_then(|_| {
            let mut writer = BufWriter::with_capacity(1 << 18, &*file);
            draft.write(&front, &mut writer)?;
            writer.flush()?;
            drop(writer);
            file.sync_data()
        });
        written.map_err(StoreError::at(&self.path))?;
        if end == 0 {
            let folder = self.path.parent().filter(|path| path.file_name().is_some());
            let folder = folder.unwrap_or(Path::new("."));
            sync_folder(folder).map_err(StoreError::at(folder))?;
        }
        let contents = &mut self.contents;
        contents.file = MappedFile::open(&self.path).map_err(StoreError::at(&self.path))?;
        contents.end = end + bytes;
        let header = record::read(&contents.file[end as usize..]).map_err(|damage| {
            StoreError::at(&self.path)(io::Error::other(format!("just written: {damage}")))
        })?;
        contents.add(end as usize, header);
        Ok(())
    }
}

impl Contents {
    fn read(path: &Path, kind: &Collection) -> Result<(Contents, Recovery), StoreError> {
        let file = MappedFile::open(path).map_err(StoreError::at(path))?;
        let mut contents = Contents {
            file,
            end: 0,
            records: Vec::new(),
            live: HashMap::new(),
        };
        let mut recovery = Recovery::default();
        let mut at = 0;
        while let Some((start, header)) = next_record(&contents.file, at) {
            if header.kind != *kind {
                return Err(StoreError::OtherKind {
                    path: path.to_owned(),
                    found: header.kind.to_string(),
                    expected: kind.to_string(),
                });
            }
            if start > at {
                recovery.damaged.push(at as u64..start as u64);
            }
            at = start + header.record_bytes();
            contents.add(start, header);
        }
        // A file of something else must not be written over.
        let first = Header::read(&contents.file);
        let foreign = matches!(first, Err(RecordError::NotARecord | RecordError::Format(_)));
        if at == 0 && !contents.file.is_empty() && foreign {
            return Err(StoreError::NotAJournal {
                path: path.to_owned(),
            });
        }
        contents.end = at as u64;
        recovery.torn_bytes = (contents.file.len() - at) as u64;
        Ok((contents, recovery))
    }

    fn add(&mut self, start: usize, header: Header) {
        let (key, deletes) = (header.key, header.deletes);
        let replaced = match deletes {
            true => self.live.remove(&key),
            false => self.live.insert(key, self.records.len()),
        };
        if let Some(replaced) = replaced {
            self.records[replaced] = None;
        }
        if !deletes {
            self.records.push(Some((start, header)));
        }
    }

    fn record(&self, index: usize) -> Option<(Key, impl Iterator<Item = Tensor<'_>>)> {
        let (start, header) = self.records[index].as_ref()?;
        Some((header.key, header.tensors(&self.file[*start..])))
    }
}

/// The next whole record from `at` on.
fn next_record(file: &[u8], at: usize) -> Option<(usize, Header)> {
    (at..file.len())
        .step_by(ALIGNMENT)
        .find_map(|start| Some((start, record::read(&file[start..]).ok()?)))
}
