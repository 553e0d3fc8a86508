//! Memory-mapped files: weights are read in place, and given back to the system once they are packed.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

/// A file mapped for reading.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps the whole file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: as with every mapped file, another process that truncates it while we read can stop us with a signal;
        // the bytes are only ever read as plain data and checked by their readers.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile { map })
    }

    /// Tells the system that these bytes are no longer needed in memory. Reading them again is allowed and reads the file.
    ///
    /// Only whole pages inside the range are given back. It is advice: failure changes nothing but memory use.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            /// At least the page size of every common system, and a multiple of it.
            const PAGE_BYTES: usize = 65536;
            let start = range.start.min(self.map.len()).next_multiple_of(PAGE_BYTES);
            let end = match range.end {
                end if end >= self.map.len() => self.map.len(),
                end => end / PAGE_BYTES * PAGE_BYTES,
            };
            if start < end {
                // SAFETY: the map is a read-only view of a file: dropped pages are read from it again.
                let _ = unsafe {
                    self.map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        start,
                        end - start,
                    )
                };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_rereads_after_release() {
        let path = std::env::temp_dir().join(format!("percept-mapped-{}", std::process::id()));
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert_eq!(&file[..], &bytes[..]);
        for range in [0..300_000, 5..70_000, 0..0, 299_999..400_000] {
            file.release(range);
        }
        assert_eq!(&file[..], &bytes[..]);
        std::fs::remove_file(&path).unwrap();
        assert!(MappedFile::open(&path).is_err());
    }
}
