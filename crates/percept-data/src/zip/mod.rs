//! Zip archives as PyTorch and numpy write them, over mapped bytes.
//!
//! The `zip` crate reads the directory and writes archives. Contents are read here: lent straight from the map when
//! they are not compressed, checked once, and expanded only as far as the archive's size explains.

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ::zip::read::{ArchiveOffset, Config};
use ::zip::result::ZipError;
use ::zip::write::SimpleFileOptions;
use ::zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use thiserror::Error;

const END_RECORD: &[u8] = b"PK\x05\x06";
const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
/// What a compressed entry may always expand to, and how many times the archive's size beyond that.
const MAX_INFLATED_BYTES: u64 = 64 << 20;
const MAX_INFLATED_RATIO: u64 = 16;

/// What is wrong with a zip archive.
#[derive(Debug, Error)]
pub enum ZipFault {
    /// There is no directory, or it breaks the rules.
    #[error("corrupt zip: {reason}")]
    Directory {
        /// What is wrong with it.
        reason: String,
    },
    /// An entry contradicts itself or the archive.
    #[error("corrupt zip: entry `{entry}` {reason}")]
    Entry {
        /// The entry.
        entry: String,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
    /// An entry's content is not what was written.
    #[error("corrupt zip: entry `{entry}` has the checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The entry.
        entry: String,
        /// The checksum in the directory.
        expected: u32,
        /// The checksum of the content.
        found: u32,
    },
    /// A kind of entry that percept does not read.
    #[error("zip entry `{entry}` is {what}, which is not supported")]
    Unsupported {
        /// The entry.
        entry: String,
        /// What it uses.
        what: &'static str,
    },
}

impl From<ZipError> for ZipFault {
    fn from(error: ZipError) -> ZipFault {
        ZipFault::Directory {
            reason: format!("{error} (truncated?)"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Stored,
    Deflated,
    Other,
}

/// One file in an archive.
#[derive(Debug)]
pub(crate) struct ZipEntry {
    pub(crate) name: String,
    method: Method,
    encrypted: bool,
    checksum: u32,
    /// Whether the checksum was found right: a storage that many tensors share is checked once.
    checked: AtomicBool,
    /// Where the (compressed) content lies in the archive.
    content: Range<usize>,
    /// Length of the content when it is not compressed.
    pub(crate) length: u64,
}

impl ZipEntry {
    /// Where the content lies in the archive, when it lies there as it is.
    pub(crate) fn plain_range(&self) -> Option<Range<usize>> {
        (self.method == Method::Stored && !self.encrypted).then(|| self.content.clone())
    }

    /// The content, checked against its checksum; lent when it is stored plainly.
    pub(crate) fn read<'a>(&self, archive: &'a [u8]) -> Result<Cow<'a, [u8]>, ZipFault> {
        let unsupported = |what| ZipFault::Unsupported {
            entry: self.name.clone(),
            what,
        };
        if self.encrypted {
            return Err(unsupported("encrypted"));
        }
        let raw = archive
            .get(self.content.clone())
            .ok_or_else(|| self.fault("lies outside the archive"))?;
        let content = match self.method {
            Method::Stored => Cow::Borrowed(raw),
            Method::Deflated => Cow::Owned(self.inflate(raw, archive.len())?),
            Method::Other => return Err(unsupported("compressed by another method than deflate")),
        };
        self.check(&content)?;
        Ok(content)
    }

    /// The content bit by bit, for who keeps little of it: however far it expands, no memory is taken for it.
    pub(crate) fn stream<'a>(&'a self, archive: &'a [u8]) -> Result<EntryStream<'a>, ZipFault> {
        let content: Box<dyn Read + 'a> = match self.method {
            Method::Deflated if !self.encrypted => {
                let raw = archive.get(self.content.clone());
                let raw = raw.ok_or_else(|| self.fault("lies outside the archive"))?;
                Box::new(DeflateDecoder::new(raw))
            }
            _ => Box::new(Cursor::new(self.read(archive)?)),
        };
        Ok(EntryStream {
            entry: self,
            content,
            crc: Crc::new(),
        })
    }

    fn check(&self, content: &[u8]) -> Result<(), ZipFault> {
        // Zero stands for "not computed": some writers can leave checksums out.
        if self.checksum == 0 || self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut crc = Crc::new();
        crc.update(content);
        self.check_sum(&crc)
    }

    fn check_sum(&self, crc: &Crc) -> Result<(), ZipFault> {
        if self.checksum != 0 && crc.sum() != self.checksum {
            let (entry, expected, found) = (self.name.clone(), self.checksum, crc.sum());
            return Err(ZipFault::Checksum {
                entry,
                expected,
                found,
            });
        }
        self.checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn inflate(&self, raw: &[u8], archive_bytes: usize) -> Result<Vec<u8>, ZipFault> {
        let limit = (archive_bytes as u64).saturating_mul(MAX_INFLATED_RATIO);
        if self.length > limit.max(MAX_INFLATED_BYTES) {
            return Err(self.fault("claims to hold far more than the archive"));
        }
        let mut content = Vec::with_capacity(self.length as usize);
        DeflateDecoder::new(raw)
            .take(self.length + 1)
            .read_to_end(&mut content)
            .map_err(|_| self.fault("cannot be decompressed"))?;
        if content.len() as u64 != self.length {
            return Err(self.fault("does not decompress to the length that it claims"));
        }
        Ok(content)
    }

    fn fault(&self, reason: &'static str) -> ZipFault {
        entry_fault(&self.name, reason)
    }
}

/// An entry that is read bit by bit.
pub(crate) struct EntryStream<'a> {
    entry: &'a ZipEntry,
    content: Box<dyn Read + 'a>,
    crc: Crc,
}

impl EntryStream<'_> {
    /// Checks what was read, which has to be all of it.
    pub(crate) fn finish(mut self) -> Result<(), ZipFault> {
        let rest = self.content.read(&mut [0]);
        if rest.ok() != Some(0) {
            return Err(self.entry.fault("is longer than its header says"));
        }
        self.entry.check_sum(&self.crc)
    }
}

impl Read for EntryStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.content.read(buffer)?;
        self.crc.update(&buffer[..bytes]);
        Ok(bytes)
    }
}

/// The entries of an archive.
#[derive(Debug)]
pub(crate) struct ZipDirectory {
    entries: Vec<ZipEntry>,
    by_name: HashMap<String, usize>,
}

impl ZipDirectory {
    /// Whether the bytes start like a zip archive.
    pub(crate) fn looks_like(start: &[u8]) -> bool {
        start.starts_with(LOCAL_HEADER) || start.starts_with(END_RECORD)
    }

    /// Reads the directory of `archive` and finds every entry's content.
    pub(crate) fn parse(archive: &[u8]) -> Result<ZipDirectory, ZipFault> {
        let config = Config {
            archive_offset: ArchiveOffset::Known(0),
        };
        let mut zip = ZipArchive::with_config(config, Cursor::new(archive))?;
        // Names that a map would merge, and contents that many entries share: no writer that we read makes them.
        let shared = zip.has_duplicate_names() || zip.has_overlapping_files()?;
        if shared {
            return Err(ZipFault::Directory {
                reason: "entries share a name or their content".to_owned(),
            });
        }
        let mut directory = ZipDirectory {
            entries: Vec::with_capacity(zip.len()),
            by_name: HashMap::new(),
        };
        for index in 0..zip.len() {
            let entry = locate_entry(&mut zip, index)?;
            directory.by_name.insert(entry.name.clone(), index);
            directory.entries.push(entry);
        }
        Ok(directory)
    }

    pub(crate) fn entries(&self) -> &[ZipEntry] {
        &self.entries
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ZipEntry> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

fn locate_entry(zip: &mut ZipArchive<Cursor<&[u8]>>, index: usize) -> Result<ZipEntry, ZipFault> {
    let directory_start = zip.central_directory_start();
    let name = zip.by_index_data(index)?.name()?.into_owned();
    let file = zip
        .by_index_raw(index)
        .map_err(|error| entry_fault(&name, error.to_string()))?;
    let content = file
        .data_start()
        .and_then(|start| Some(start..start.checked_add(file.compressed_size())?))
        .filter(|content| content.end <= directory_start)
        .ok_or_else(|| entry_fault(&name, "lies outside the archive"))?;
    let method = match file.compression() {
        CompressionMethod::Stored => Method::Stored,
        CompressionMethod::DEFLATE => Method::Deflated,
        _ => Method::Other,
    };
    if method == Method::Stored && file.compressed_size() != file.size() {
        return Err(entry_fault(&name, "is not compressed, yet has two sizes"));
    }
    Ok(ZipEntry {
        method,
        encrypted: file.encrypted(),
        checksum: file.crc32(),
        checked: AtomicBool::new(false),
        // Inside the archive, which is in memory.
        content: content.start as usize..content.end as usize,
        length: file.size(),
        name,
    })
}

fn entry_fault(entry: &str, reason: impl Into<Cow<'static, str>>) -> ZipFault {
    ZipFault::Entry {
        entry: entry.to_owned(),
        reason: reason.into(),
    }
}

/// Adds an entry whose content is `parts` in a row. The same entries give the same bytes.
pub(crate) fn add_entry<W: Write + Seek>(
    zip: &mut ZipWriter<W>,
    name: &str,
    parts: &[&[u8]],
    method: CompressionMethod,
) -> io::Result<()> {
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let options = SimpleFileOptions::default()
        .compression_method(method)
        .last_modified_time(DateTime::DEFAULT)
        .large_file(bytes >= u64::from(u32::MAX));
    zip.start_file(name, options)?;
    parts.iter().try_for_each(|part| zip.write_all(part))
}
