//! The record: named tensors behind a header and a checksum.
//!
//! ```text
//!   0   magic "percept\n"                      24  checksum (BLAKE3) of all other bytes
//!   8   format, u32                            56  zero
//!  12   bytes of the header, u32               64  header, padded
//!  16   bytes of the body, u64                     body: tensor after tensor, each padded
//! ```
//! Parts are padded with zeros to multiples of 64 bytes, so tensors in a mapped file are aligned. Numbers are little-endian. The
//! header holds: whether the record deletes (u8), kind (text), version (u32), key (32 bytes), and for each tensor its name
//! (text), element (u8), rank (u8) and sizes (u64 each). A text is its length in bytes (u16) and UTF-8.
//!
//! Reading believes nothing: sizes are checked against the bytes that are there before anything is allocated.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use thiserror::Error;

use crate::tensor::{Element, Tensor, TensorRef};
use crate::{Collection, Key, StoreError};

/// Records and their parts start at multiples of this.
pub const ALIGNMENT: usize = 64;

const MAGIC: [u8; 8] = *b"percept\n";
const FORMAT: u32 = 1;
const CHECKSUM: Range<usize> = 24..56;
/// Longest header: room for some thousand tensors.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// They begin like a record and end too early.
    #[error("the record is torn")]
    Torn,
    /// They do not begin like a record.
    #[error("not a record")]
    NotARecord,
    /// A later version of percept wrote it.
    #[error("records of format {0} are not supported")]
    Format(u32),
    /// The header contradicts itself.
    #[error("the record's header is damaged")]
    Header,
    /// The checksum does not match.
    #[error("the record is damaged: its checksum differs")]
    Checksum,
}

/// What is known of a record besides its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Collection and version.
    pub kind: Collection,
    /// The key.
    pub key: Key,
    /// Whether the record deletes the key (in a journal).
    pub deletes: bool,
    tensors: Vec<Place>,
    body: Range<usize>,
}

/// Where a tensor is.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    name: String,
    element: Element,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl Header {
    /// Bytes of the whole record.
    pub fn record_bytes(&self) -> usize {
        self.body.end
    }

    /// The tensors of the record that begins at `record[0]`, in the order in which they were written.
    pub fn tensors<'a>(&'a self, record: &'a [u8]) -> impl Iterator<Item = Tensor<'a>> {
        self.tensors.iter().map(|place| Tensor {
            name: Cow::Borrowed(&place.name),
            element: place.element,
            shape: Cow::Borrowed(&place.shape),
            bytes: &record[place.bytes.clone()],
        })
    }

    /// Reads the header of the record that `bytes` begin with, and no further. The record fits `bytes`.
    pub fn read(bytes: &[u8]) -> Result<Header, RecordError> {
        let prefix = bytes.get(..ALIGNMENT).ok_or_else(|| {
            let known = bytes.len().min(MAGIC.len());
            match bytes[..known] == MAGIC[..known] {
                true => RecordError::Torn,
                false => RecordError::NotARecord,
            }
        })?;
        let mut prefix = Reader(prefix);
        if prefix.array()? != MAGIC {
            return Err(RecordError::NotARecord);
        }
        let format = u32::from_le_bytes(prefix.array()?);
        if format != FORMAT {
            return Err(RecordError::Format(format));
        }
        let header_bytes = u32::from_le_bytes(prefix.array()?) as usize;
        let body_bytes = usize::try_from(u64::from_le_bytes(prefix.array()?));
        let body_bytes = body_bytes.map_err(|_| RecordError::Header)?;
        if header_bytes > MAX_HEADER_BYTES || !body_bytes.is_multiple_of(ALIGNMENT) {
            return Err(RecordError::Header);
        }
        let body_start = ALIGNMENT + header_bytes.next_multiple_of(ALIGNMENT);
        let end = body_start.checked_add(body_bytes);
        let body = body_start..end.ok_or(RecordError::Header)?;
        if body.end > bytes.len() {
            return Err(RecordError::Torn);
        }
        parse_header(&bytes[ALIGNMENT..][..header_bytes], body)
    }
}

fn parse_header(bytes: &[u8], body: Range<usize>) -> Result<Header, RecordError> {
    let mut header = Reader(bytes);
    let [deletes] = header.array()?;
    let name = header.text()?;
    let version = u32::from_le_bytes(header.array()?);
    let kind = Collection::new(&name, version).map_err(|_| RecordError::Header)?;
    let key = Key(header.array()?);
    let mut tensors = Vec::new();
    let mut start = body.start;
    while !header.0.is_empty() {
        let name = header.text()?;
        let [element, rank] = header.array()?;
        let element = Element::from_code(element).ok_or(RecordError::Header)?;
        let mut shape = Vec::new();
        let mut len = element.bytes();
        for _ in 0..rank {
            let size = usize::try_from(u64::from_le_bytes(header.array()?));
            let size = size.map_err(|_| RecordError::Header)?;
            len = len.checked_mul(size).ok_or(RecordError::Header)?;
            shape.push(size);
        }
        let end = start.checked_add(len).filter(|&end| end <= body.end);
        let end = end.ok_or(RecordError::Header)?;
        tensors.push(Place {
            name,
            element,
            shape,
            bytes: start..end,
        });
        start = end.next_multiple_of(ALIGNMENT);
    }
    if start != body.end || deletes > 1 {
        return Err(RecordError::Header);
    }
    Ok(Header {
        kind,
        key,
        deletes: deletes == 1,
        tensors,
        body,
    })
}

/// Reads and verifies the record that `bytes` begin with.
pub fn read(bytes: &[u8]) -> Result<Header, RecordError> {
    let header = Header::read(bytes)?;
    let record = &bytes[..header.record_bytes()];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&record[..CHECKSUM.start]);
    hasher.update(&record[CHECKSUM.end..]);
    match hasher.finalize().as_bytes() == &record[CHECKSUM] {
        true => Ok(header),
        false => Err(RecordError::Checksum),
    }
}

/// A record to write.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// Collection and version.
    pub kind: &'a Collection,
    /// The key.
    pub key: Key,
    /// Whether it deletes the key (in a journal).
    pub deletes: bool,
    /// The tensors, if any.
    pub tensors: &'a [TensorRef<'a>],
}

impl Draft<'_> {
    /// The record's front (prefix and header, padded) and the bytes of the whole.
    pub fn front(&self) -> Result<(Vec<u8>, u64), StoreError> {
        let mut front = vec![0; ALIGNMENT];
        front.push(u8::from(self.deletes));
        push_text(&mut front, self.kind.name())?;
        front.extend(self.kind.version().to_le_bytes());
        front.extend(self.key.0);
        let mut body_bytes = 0u64;
        for tensor in self.tensors {
            push_text(&mut front, tensor.name)?;
            let rank = u8::try_from(tensor.shape.len());
            let rank = rank.map_err(|_| cannot_hold(format!("{} sizes", tensor.shape.len())))?;
            front.extend([tensor.element as u8, rank]);
            for &size in tensor.shape {
                front.extend((size as u64).to_le_bytes());
            }
            body_bytes += (tensor.bytes.len() as u64).next_multiple_of(ALIGNMENT as u64);
        }
        let header_bytes = front.len() - ALIGNMENT;
        if header_bytes > MAX_HEADER_BYTES {
            return Err(cannot_hold(format!("a header of {header_bytes} bytes")));
        }
        front[..8].copy_from_slice(&MAGIC);
        front[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        front[12..16].copy_from_slice(&(header_bytes as u32).to_le_bytes());
        front[16..24].copy_from_slice(&body_bytes.to_le_bytes());
        front.resize(front.len().next_multiple_of(ALIGNMENT), 0);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&front[..CHECKSUM.start]);
        hasher.update(&front[CHECKSUM.end..]);
        for tensor in self.tensors {
            hasher.update(tensor.bytes);
            hasher.update(padding(tensor.bytes.len()));
        }
        front[CHECKSUM].copy_from_slice(hasher.finalize().as_bytes());
        let bytes = front.len() as u64 + body_bytes;
        Ok((front, bytes))
    }

    /// Writes the record whose front was made by [`Draft::front`].
    pub fn write(&self, front: &[u8], file: &mut dyn Write) -> io::Result<()> {
        file.write_all(front)?;
        for tensor in self.tensors {
            file.write_all(tensor.bytes)?;
            file.write_all(padding(tensor.bytes.len()))?;
        }
        Ok(())
    }
}

fn padding(len: usize) -> &'static [u8] {
    &[0; ALIGNMENT][..len.next_multiple_of(ALIGNMENT) - len]
}

fn push_text(front: &mut Vec<u8>, text: &str) -> Result<(), StoreError> {
    let len = u16::try_from(text.len());
    let len = len.map_err(|_| cannot_hold(format!("a name of {} bytes", text.len())))?;
    front.extend(len.to_le_bytes());
    front.extend(text.as_bytes());
    Ok(())
}

fn cannot_hold(what: String) -> StoreError {
    StoreError::Record { what }
}

/// Takes a header apart, front to back.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (part, rest) = self.0.split_first_chunk().ok_or(RecordError::Header)?;
        self.0 = rest;
        Ok(*part)
    }

    fn text(&mut self) -> Result<String, RecordError> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(len).ok_or(RecordError::Header)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| RecordError::Header)
    }
}
