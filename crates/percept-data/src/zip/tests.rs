use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::*;

/// An archive of these entries.
pub(crate) fn archive_of(entries: &[(&str, &[&[u8]])]) -> Vec<u8> {
    let mut zip = ZipWriter::new_stream(Vec::new());
    for (name, parts) in entries {
        add_entry(&mut zip, name, parts, CompressionMethod::Stored).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn two_entries() -> Vec<u8> {
    archive_of(&[("a/first", &[b"hello ", b"world"]), ("a/second", &[])])
}

const DIRECTORY_HEADER: &[u8] = b"PK\x01\x02";
const END_RECORD_BYTES: usize = 22;

fn put(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn directory_start(file: &[u8]) -> usize {
    file.windows(4)
        .position(|window| window == DIRECTORY_HEADER)
        .unwrap()
}

/// An archive of one compressed entry, which claims to hold `claimed` bytes.
pub(crate) fn compressed(content: &[u8], claimed: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    let raw = encoder.finish().unwrap();
    let mut file = archive_of(&[("deflated", &[&raw])]);
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
        (directory + 20, u32::MAX, "corrupt zip"),
        (directory + 24, u32::MAX, "corrupt zip"),
        (directory + 42, 1, "corrupt zip"),
        (directory + 42, 1 << 30, "corrupt zip"),
        (directory, 0, "corrupt zip"),
        (end + 16, 1 << 30, "corrupt zip"),
        (end + 8, 0x0009_0009, "corrupt zip"),
        (end, 0, "corrupt zip"),
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
fn entries_that_share_a_name_or_their_content_are_refused() {
    let file = archive_of(&[("same", &[b"1"]), ("sane", &[b"2"])]);
    let directory = directory_start(&file);
    let second = directory + 46 + "same".len();
    let mut renamed = file.clone();
    let at = second + 46 + 2;
    assert_eq!(renamed[at], b'n');
    renamed[at] = b'm';
    let mut shared = file.clone();
    put(&mut shared, second + 42, 0);
    for damaged in [renamed, shared] {
        let error = ZipDirectory::parse(&damaged).unwrap_err().to_string();
        assert!(error.contains("share"), "{error}");
    }
    assert!(ZipDirectory::parse(&file).is_ok());
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    assert_eq!(two_entries(), two_entries());
    let mut zip = ZipWriter::new_stream(Vec::new());
    add_entry(&mut zip, "same", &[], CompressionMethod::Stored).unwrap();
    assert!(add_entry(&mut zip, "same", &[], CompressionMethod::Stored).is_err());
}

#[test]
fn absurd_numbers_in_the_records_at_the_end_are_told() {
    // PyTorch writes zip64 records too.
    let whole: &[u8] = include_bytes!("../../tests/fixtures/nested.pth");
    let entries = ZipDirectory::parse(whole).unwrap().entries.len() as u64;
    for at in whole.len() - 300..whole.len() - 8 {
        for absurd in [u64::MAX, i64::MAX as u64, 1 << 40, 0] {
            let mut file = whole.to_vec();
            file[at..at + 8].copy_from_slice(&absurd.to_le_bytes());
            if let Ok(directory) = ZipDirectory::parse(&file) {
                let ends = directory.entries.iter().map(|entry| entry.content.end);
                assert!(ends.max().unwrap_or(0) <= file.len(), "byte {at}");
                assert!(directory.entries.len() as u64 <= entries, "byte {at}");
            }
        }
    }
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
