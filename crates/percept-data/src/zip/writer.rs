//! Writing archives of plain entries.

use std::io::{self, Write};

use flate2::Crc;

use super::{DIRECTORY_HEADER, END_RECORD, LOCAL_HEADER};

/// Writes an archive of plain entries whose contents are known whole. The same entries give the same bytes.
pub(crate) struct ZipWriter<W> {
    out: W,
    offset: u64,
    directory: Vec<u8>,
    entries: u16,
}

impl<W: Write> ZipWriter<W> {
    pub(crate) fn new(out: W) -> ZipWriter<W> {
        ZipWriter {
            out,
            offset: 0,
            directory: Vec::new(),
            entries: 0,
        }
    }

    /// Adds an entry whose content is `parts` in a row.
    pub(crate) fn add(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut crc = Crc::new();
        parts.iter().for_each(|part| crc.update(part));
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();

        // Fields that the local header and the directory share, from the version needed to the extra length.
        let mut shared = Vec::with_capacity(26);
        let (version, flags, method, time, date) = (20u16, 0x0800u16, 0u16, 0u16, 0x0021u16);
        for field in [version, flags, method, time, date] {
            shared.extend(field.to_le_bytes());
        }
        let length = narrow(length)?;
        for field in [crc.sum(), length, length] {
            shared.extend(field.to_le_bytes());
        }
        shared.extend(narrow::<u16>(name.len() as u64)?.to_le_bytes());
        shared.extend(0u16.to_le_bytes());

        self.directory.extend(DIRECTORY_HEADER);
        self.directory.extend(version.to_le_bytes());
        self.directory.extend(&shared);
        // Comment length, disk, internal and external attributes: all zero.
        self.directory.extend([0; 10]);
        self.directory
            .extend(narrow::<u32>(self.offset)?.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.entries = self.entries.checked_add(1).ok_or_else(too_large)?;

        self.write(LOCAL_HEADER)?;
        self.write(&shared)?;
        self.write(name.as_bytes())?;
        parts.iter().try_for_each(|part| self.write(part))
    }

    /// Writes the directory.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let start: u32 = narrow(self.offset)?;
        let size: u32 = narrow(self.directory.len() as u64)?;
        let mut end = END_RECORD.to_vec();
        end.extend([0; 4]);
        end.extend(self.entries.to_le_bytes());
        end.extend(self.entries.to_le_bytes());
        end.extend(size.to_le_bytes());
        end.extend(start.to_le_bytes());
        end.extend([0; 2]);
        let directory = std::mem::take(&mut self.directory);
        self.write(&directory)?;
        self.write(&end)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn narrow<T: TryFrom<u64>>(value: u64) -> io::Result<T> {
    T::try_from(value).map_err(|_| too_large())
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        "too large for an npz archive, write safetensors instead",
    )
}
