use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::*;

fn two_entries() -> Vec<u8> {
    let mut file = Vec::new();
    let mut zip = ZipWriter::new(&mut file);
    zip.add("a/first", &[b"hello ", b"world"]).unwrap();
    zip.add("a/second", &[]).unwrap();
    zip.finish().unwrap();
    file
}

fn put(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn directory_start(file: &[u8]) -> usize {
    file.windows(4)
        .position(|window| window == DIRECTORY_HEADER)
        .unwrap()
}

/// `two_entries` with its first one compressed, claiming to hold `claimed` bytes.
fn compressed(content: &[u8], claimed: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    let raw = encoder.finish().unwrap();
    let mut file = Vec::new();
    let mut zip = ZipWriter::new(&mut file);
    zip.add("deflated", &[&raw]).unwrap();
    zip.finish().unwrap();
    let directory = directory_start(&file);
    file[directory + 10] = 8;
    let mut crc = Crc::new();
    crc.update(content);
    put(&mut file, directory + 16, crc.sum());
    put(&mut file, directory + 24, claimed);
    file
}

#[test]
fn written_entries_are_found_and_lent() {
    let file = two_entries();
    let directory = ZipDirectory::parse(&file).unwrap();
    let names: Vec<_> = directory
        .entries()
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["a/first", "a/second"]);
    let first = directory.get("a/first").unwrap();
    assert!(matches!(
        first.read(&file).unwrap(),
        Cow::Borrowed(b"hello world")
    ));
    assert_eq!(file[first.plain_range().unwrap()], *b"hello world");
    assert!(
        directory
            .get("a/second")
            .unwrap()
            .read(&file)
            .unwrap()
            .is_empty()
    );
    assert!(directory.get("a/third").is_none());
}

#[test]
fn compressed_entries_are_bounded_by_what_they_claim() {
    let content = vec![7u8; 100_000];
    let read = |file: &[u8]| -> Result<Vec<u8>, ZipFault> {
        let directory = ZipDirectory::parse(file)?;
        Ok(directory.entries()[0].read(file)?.into_owned())
    };
    assert_eq!(read(&compressed(&content, 100_000)).unwrap(), content);
    for (claimed, expected) in [
        (99_999, "does not decompress to the length"),
        (100_001, "does not decompress to the length"),
        (u32::MAX - 1, "far more than the archive"),
        (u32::MAX, "has no size"),
    ] {
        let error = read(&compressed(&content, claimed))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn lies_in_the_directory_are_told() {
    let file = two_entries();
    let directory = directory_start(&file);
    let end = file.len() - END_RECORD_BYTES;
    // (where, what, the fault)
    let table = [
        (directory + 16, 1, "has the checksum"),
        (directory + 20, 5, "two sizes"),
        (directory + 42, 1, "has no header"),
        (directory + 42, 1 << 30, "has no header"),
        (directory, 0, "a directory entry"),
        (end + 12, 1 << 30, "the directory"),
        (end + 16, 1 << 30, "the directory"),
        (end + 8, 0x0009_0009, "the number of entries"),
        (end, 0, "no directory at its end"),
    ];
    for (at, value, expected) in table {
        let mut damaged = file.clone();
        put(&mut damaged, at, value);
        let read =
            ZipDirectory::parse(&damaged).and_then(|zip| zip.entries()[0].read(&damaged).map(drop));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(expected), "byte {at}: {error}");
    }
    let mut encrypted = file;
    encrypted[directory + 8] |= 1;
    let error = ZipDirectory::parse(&encrypted).unwrap().entries()[0]
        .read(&encrypted)
        .unwrap_err();
    assert!(matches!(error, ZipFault::Unsupported { .. }));
}

#[test]
fn a_repeated_name_is_refused() {
    let mut file = Vec::new();
    let mut zip = ZipWriter::new(&mut file);
    zip.add("same", &[b"1"]).unwrap();
    zip.add("same", &[b"2"]).unwrap();
    zip.finish().unwrap();
    assert!(
        ZipDirectory::parse(&file)
            .unwrap_err()
            .to_string()
            .contains("`same` appears twice")
    );
}

proptest! {
    #[test]
    fn damaged_archives_give_an_error_or_entries_inside_the_file(
        writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..4),
    ) {
        let mut file = two_entries();
        for (at, value) in writes {
            let at = at.index(file.len() - 4);
            put(&mut file, at, value);
        }
        if let Ok(directory) = ZipDirectory::parse(&file) {
            for entry in directory.entries() {
                if let Ok(content) = entry.read(&file) {
                    prop_assert_eq!(content.len() as u64, entry.length);
                }
            }
        }
    }
}
