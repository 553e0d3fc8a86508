//! Zip archives as PyTorch and numpy write them: a directory over mapped bytes, and a writer of plain entries.
//!
//! Sizes, offsets and counts that the archive claims are checked against its bytes before anything is
//! allocated; entries are found once, then lent straight from the map when they are not compressed.

#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Crc;
use flate2::read::DeflateDecoder;
use thiserror::Error;

pub(crate) use self::writer::ZipWriter;

const END_RECORD: &[u8] = b"PK\x05\x06";
const END_RECORD_BYTES: usize = 22;
const END64_RECORD: &[u8] = b"PK\x06\x06";
const END64_LOCATOR: &[u8] = b"PK\x06\x07";
const END64_LOCATOR_BYTES: usize = 20;
const DIRECTORY_HEADER: &[u8] = b"PK\x01\x02";
const DIRECTORY_HEADER_BYTES: usize = 46;
const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const LOCAL_HEADER_BYTES: usize = 30;
/// What a compressed entry may always expand to, and how many times the archive's size beyond that.
const MAX_INFLATED_BYTES: u64 = 64 << 20;
const MAX_INFLATED_RATIO: u64 = 16;

/// What is wrong with a zip archive.
#[derive(Debug, Error)]
pub enum ZipFault {
    /// There is no end record: something else, or cut off.
    #[error("corrupt zip: no directory at its end (truncated?)")]
    NoDirectory,
    /// A record lies outside the archive or is not what it should be.
    #[error("corrupt zip: {0} is out of place")]
    Record(&'static str),
    /// An entry contradicts itself or the archive.
    #[error("corrupt zip: entry `{entry}` {reason}")]
    Entry {
        /// The entry.
        entry: String,
        /// What is wrong with it.
        reason: &'static str,
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

    fn check(&self, content: &[u8]) -> Result<(), ZipFault> {
        // Zero stands for "not computed": some writers can leave checksums out.
        if self.checksum == 0 || self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut crc = Crc::new();
        crc.update(content);
        if crc.sum() != self.checksum {
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
        ZipFault::Entry {
            entry: self.name.clone(),
            reason,
        }
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
        let (directory, claimed_entries) = locate_directory(archive)?;
        let mut headers = archive
            .get(directory.clone())
            .ok_or(ZipFault::Record("the directory"))?;
        let mut entries = Vec::new();
        let mut by_name = HashMap::new();
        while !headers.is_empty() {
            let (entry, rest) = parse_directory_header(headers, archive, directory.start)?;
            headers = rest;
            if by_name.insert(entry.name.clone(), entries.len()).is_some() {
                return Err(entry.fault("appears twice"));
            }
            entries.push(entry);
        }
        if entries.len() as u64 != claimed_entries {
            return Err(ZipFault::Record("the number of entries"));
        }
        Ok(ZipDirectory { entries, by_name })
    }

    pub(crate) fn entries(&self) -> &[ZipEntry] {
        &self.entries
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ZipEntry> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

/// The directory's place in the archive and the number of entries that it claims.
fn locate_directory(archive: &[u8]) -> Result<(Range<usize>, u64), ZipFault> {
    let earliest = archive
        .len()
        .saturating_sub(END_RECORD_BYTES + usize::from(u16::MAX));
    let end = (earliest..=archive.len().saturating_sub(END_RECORD_BYTES))
        .rev()
        .find(|&at| is_end_record(archive, at))
        .ok_or(ZipFault::NoDirectory)?;
    let record = Fields(&archive[end..]);
    let out_of_place = || ZipFault::Record("the directory");
    let (mut entries, mut size, mut start) = (
        u64::from(record.u16(10).ok_or_else(out_of_place)?),
        u64::from(record.u32(12).ok_or_else(out_of_place)?),
        u64::from(record.u32(16).ok_or_else(out_of_place)?),
    );
    let locator = end
        .checked_sub(END64_LOCATOR_BYTES)
        .map(|at| &archive[at..end])
        .filter(|locator| locator.starts_with(END64_LOCATOR));
    let mut directory_limit = end;
    if let Some(locator) = locator {
        let wrong = || ZipFault::Record("the zip64 end record");
        let at = Fields(locator)
            .length(8)
            .filter(|&at| at < end)
            .ok_or_else(wrong)?;
        let record = Fields(&archive[at..end]);
        if !record.0.starts_with(END64_RECORD) {
            return Err(wrong());
        }
        entries = record.u64(32).ok_or_else(wrong)?;
        size = record.u64(40).ok_or_else(wrong)?;
        start = record.u64(48).ok_or_else(wrong)?;
        directory_limit = at;
    }
    let past = start
        .checked_add(size)
        .filter(|&past| past <= directory_limit as u64);
    let past = past.ok_or_else(out_of_place)?;
    Ok((start as usize..past as usize, entries))
}

/// The end record's comment must end exactly with the archive.
fn is_end_record(archive: &[u8], at: usize) -> bool {
    let record = &archive[at..];
    let comment_bytes = Fields(record).u16(20);
    record.starts_with(END_RECORD)
        && comment_bytes
            .is_some_and(|comment| END_RECORD_BYTES + usize::from(comment) == record.len())
}

fn parse_directory_header<'a>(
    headers: &'a [u8],
    archive: &[u8],
    directory_start: usize,
) -> Result<(ZipEntry, &'a [u8]), ZipFault> {
    let cut = || ZipFault::Record("a directory entry");
    let (fixed, rest) = headers
        .split_at_checked(DIRECTORY_HEADER_BYTES)
        .ok_or_else(cut)?;
    if !fixed.starts_with(DIRECTORY_HEADER) {
        return Err(cut());
    }
    let fixed = Fields(fixed);
    let part = |at| fixed.u16(at).map(usize::from).ok_or_else(cut);
    let (name, rest) = rest.split_at_checked(part(28)?).ok_or_else(cut)?;
    let (extra, rest) = rest.split_at_checked(part(30)?).ok_or_else(cut)?;
    let (_comment, rest) = rest.split_at_checked(part(32)?).ok_or_else(cut)?;

    let name = str::from_utf8(name).map_err(|_| ZipFault::Record("an entry name (not UTF-8)"))?;
    let fault = |reason| ZipFault::Entry {
        entry: name.to_owned(),
        reason,
    };
    let mut zip64 = zip64_values(extra);
    let mut wide = |at| match fixed.u32(at) {
        Some(u32::MAX) => zip64.next(),
        narrow => narrow.map(u64::from),
    };
    let no_size = || fault("has no size");
    let length = wide(24).ok_or_else(no_size)?;
    let compressed = wide(20).ok_or_else(no_size)?;
    let local_offset = wide(42).ok_or_else(no_size)?;

    let entries = &archive[..directory_start];
    let local = usize::try_from(local_offset)
        .ok()
        .and_then(|at| entries.get(at..))
        .filter(|local| local.starts_with(LOCAL_HEADER))
        .ok_or_else(|| fault("has no header"))?;
    let local_part = |at| Fields(local).u16(at).map(usize::from);
    let content = local_part(26)
        .zip(local_part(28))
        .map(|(name, extra)| local_offset as usize + LOCAL_HEADER_BYTES + name + extra)
        .and_then(|start| Some(start..start.checked_add(usize::try_from(compressed).ok()?)?))
        .filter(|content| content.end <= directory_start)
        .ok_or_else(|| fault("lies outside the archive"))?;

    let method = match part(10)? {
        0 => Method::Stored,
        8 => Method::Deflated,
        _ => Method::Other,
    };
    if method == Method::Stored && compressed != length {
        return Err(fault("is not compressed, yet has two sizes"));
    }
    let entry = ZipEntry {
        name: name.to_owned(),
        method,
        encrypted: part(8)? & 1 != 0,
        checksum: fixed.u32(16).ok_or_else(cut)?,
        checked: AtomicBool::new(false),
        content,
        length,
    };
    Ok((entry, rest))
}

/// The 64-bit values of the zip64 extra field, in order; none when there is no such field.
fn zip64_values(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut values: &[u8] = &[];
    while let (Some(tag), Some(length)) = (Fields(extra).u16(0), Fields(extra).u16(2)) {
        let Some(field) = extra.get(4..4 + usize::from(length)) else {
            break;
        };
        if tag == 1 {
            values = field;
            break;
        }
        extra = &extra[4 + field.len()..];
    }
    values
        .as_chunks::<8>()
        .0
        .iter()
        .map(|value| u64::from_le_bytes(*value))
}

/// Little-endian numbers at offsets of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }
    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }
    fn u64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
    fn length(&self, at: usize) -> Option<usize> {
        usize::try_from(self.u64(at)?).ok()
    }
}
