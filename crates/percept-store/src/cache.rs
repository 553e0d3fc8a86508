//! A bounded cache of records, one file each, shared by any number of processes.
//!
//! A file is `KIND/KEY.blob`. It is written beside its place and renamed, so readers see all of it or nothing; it never
//! changes afterwards, so it can be mapped and read while it is replaced or evicted. Using it sets its modification time,
//! which is what "least recently used" goes by. Only eviction takes a lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use percept_kernels::MappedFile;

use crate::atomic::{remove_old_leftovers, write_atomically};
use crate::record::{self, Draft, Header, RecordError};
use crate::tensor::{Number, Tensor, TensorRef};
use crate::{Collection, Key, StoreError};

const SUFFIX: &str = "blob";
const LOCK: &str = "lock";
/// A half-written file that was not touched for so long has no writer any more.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);
/// After writing this part of the limit, a process looks at what others have written.
const LOOK_SHARE: u64 = 16;

/// A bounded cache of tensors on disk.
///
/// ```
/// use percept_store::{Cache, Key, Collection, TensorRef};
/// let folder = tempfile::tempdir()?;
/// let cache = Cache::open(folder.path(), 1 << 20)?;
/// let (kind, key) = (Collection::new("squares", 1)?, Key::of().part(&[1i32, 2, 3]).finish());
/// assert!(cache.get(&kind, key)?.is_none());
/// cache.put(&kind, key, &[TensorRef::new("y", &[3], &[1i32, 4, 9])])?;
/// let blob = cache.get(&kind, key)?.expect("just written");
/// assert_eq!(blob.numbers::<i32>("y"), Some(&[1, 4, 9][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit_bytes: u64,
    /// Bytes written since this process last looked at the folder.
    unseen_bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
}

/// What a cache did since it was opened, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records found.
    pub hits: u64,
    /// Records not found, or not usable.
    pub misses: u64,
    /// Bytes of the records found.
    pub bytes_read: u64,
    /// Bytes of the records written.
    pub bytes_written: u64,
    /// Files removed to stay within the limit.
    pub evicted: u64,
    /// Files removed because they were torn, damaged or of another version.
    pub damaged: u64,
}

/// A record in the cache, mapped.
#[derive(Debug)]
pub struct Blob {
    file: MappedFile,
    header: Header,
}

impl Blob {
    /// All tensors, in the order in which they were written.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.header.tensors(&self.file)
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors().find(|tensor| tensor.name == name)
    }

    /// The numbers of the tensor of this name, where it holds this type.
    pub fn numbers<T: Number>(&self, name: &str) -> Option<&[T]> {
        self.tensor(name)?.numbers()
    }
}

/// A file of the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The kind's name.
    pub kind: String,
    /// The key.
    pub key: Key,
    /// Bytes on disk.
    pub bytes: u64,
    /// When it was written or last read.
    pub used: SystemTime,
    path: PathBuf,
}

/// The outcome of [`Cache::verify`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Files that are whole.
    pub whole: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were damaged, with the reason; they are removed.
    pub removed: Vec<(PathBuf, RecordError)>,
}

impl Cache {
    /// Opens the cache in `folder`, which is made where it is missing. All files together hold at most `limit_bytes`, be
    /// it that several processes write at once: then for a moment a sixteenth more for each.
    pub fn open(folder: impl Into<PathBuf>, limit_bytes: u64) -> Result<Cache, StoreError> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(StoreError::at(&folder))?;
        Ok(Cache {
            folder,
            limit_bytes,
            // Look at the first write: an earlier process may have had another limit.
            unseen_bytes: AtomicU64::new(limit_bytes),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that all files may hold together.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What this cache did so far.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            hits: read(&self.hits),
            misses: read(&self.misses),
            bytes_read: read(&self.bytes_read),
            bytes_written: read(&self.bytes_written),
            evicted: read(&self.evicted),
            damaged: read(&self.damaged),
        }
    }

    /// The record of this kind and key. A file that is torn, damaged or of another version is a miss, and removed.
    pub fn get(&self, kind: &Collection, key: Key) -> Result<Option<Blob>, StoreError> {
        let path = self.path(kind, key);
        let file = match MappedFile::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
            Err(error) => return Err(StoreError::at(path)(error)),
        };
        match read_whole(&file) {
            Ok(header) if header.kind == *kind && header.key == key => {
                // A cache that may only be read still serves; it just does not remember the use.
                let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                self.hits.fetch_add(1, Ordering::Relaxed);
                let bytes = file.len() as u64;
                self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
                Ok(Some(Blob { file, header }))
            }
            _ => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                self.remove_damaged(&path)?;
                Ok(None)
            }
        }
    }

    /// Keeps tensors under this kind and key. Writing the same key twice, at the same time too, keeps one of them.
    pub fn put(
        &self,
        kind: &Collection,
        key: Key,
        tensors: &[TensorRef<'_>],
    ) -> Result<(), StoreError> {
        let draft = Draft {
            kind,
            key,
            deletes: false,
            tensors,
        };
        let (front, bytes) = draft.front()?;
        let limit = self.limit_bytes;
        if bytes > limit {
            return Err(StoreError::TooLarge { bytes, limit });
        }
        let path = self.path(kind, key);
        let folder = self.folder.join(kind.name());
        fs::create_dir_all(&folder).map_err(StoreError::at(folder))?;
        write_atomically(&path, |file| draft.write(&front, file)).map_err(StoreError::at(path))?;
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        let unseen = self.unseen_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unseen > limit / LOOK_SHARE {
            self.evict()?;
        }
        Ok(())
    }

    /// All files, least recently used first.
    pub fn list(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for kind in self.kind_folders()? {
            let name = kind.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            for file in read_dir(&kind)? {
                let path = file.path();
                let digits = path.file_stem().and_then(|stem| stem.to_str());
                let key = digits.and_then(Key::parse);
                let known = path.extension().is_some_and(|suffix| suffix == SUFFIX);
                // What another process evicts meanwhile is not there any more.
                if let (true, Some(key), Ok(about)) = (known, key, file.metadata()) {
                    entries.push(Entry {
                        kind: name.clone(),
                        key,
                        bytes: about.len(),
                        used: about.modified().map_err(StoreError::at(&path))?,
                        path,
                    });
                }
            }
        }
        entries.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.path.cmp(&b.path)));
        Ok(entries)
    }

    /// Reads every file and removes those that are damaged.
    pub fn verify(&self) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        for entry in self.list()? {
            let file = match MappedFile::open(&entry.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(StoreError::at(&entry.path))?,
            };
            match read_whole(&file) {
                Ok(_) => {
                    verified.whole += 1;
                    verified.bytes += entry.bytes;
                }
                Err(reason) => {
                    self.remove_damaged(&entry.path)?;
                    verified.removed.push((entry.path, reason));
                }
            }
        }
        Ok(verified)
    }

    /// Removes every file, of all processes. Returns how many, and their bytes.
    pub fn clear(&self) -> Result<(usize, u64), StoreError> {
        let entries = self.list()?;
        for entry in &entries {
            remove(&entry.path)?;
        }
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        Ok((entries.len(), bytes))
    }

    fn path(&self, kind: &Collection, key: Key) -> PathBuf {
        self.folder
            .join(kind.name())
            .join(format!("{key}.{SUFFIX}"))
    }

    fn kind_folders(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = read_dir(&self.folder)?.into_iter();
        Ok(entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect())
    }

    /// Removes the least recently used files until all together fit the limit, and what killed processes left.
    fn evict(&self) -> Result<(), StoreError> {
        let path = self.folder.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .and_then(|lock| lock.lock().map(|()| lock))
            .map_err(StoreError::at(path))?;
        self.unseen_bytes.store(0, Ordering::Relaxed);
        for folder in self.kind_folders()? {
            match remove_old_leftovers(&folder, LEFTOVER_AGE) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::at(folder)(error));
                }
                _ => {}
            }
        }
        let entries = self.list()?;
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            if total <= self.limit_bytes {
                break;
            }
            remove(&entry.path)?;
            total -= entry.bytes;
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        drop(lock);
        Ok(())
    }

    fn remove_damaged(&self, path: &Path) -> Result<(), StoreError> {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        remove(path)
    }
}

/// Reads a file that must hold one record and nothing else.
fn read_whole(file: &[u8]) -> Result<Header, RecordError> {
    let header = record::read(file)?;
    match header.record_bytes() == file.len() {
        true => Ok(header),
        false => Err(RecordError::Header),
    }
}

/// Removes a file that another process may have removed already.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::at(path)(error)),
        _ => Ok(()),
    }
}

fn read_dir(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    fs::read_dir(folder)
        .and_then(Iterator::collect)
        .map_err(StoreError::at(folder))
}
