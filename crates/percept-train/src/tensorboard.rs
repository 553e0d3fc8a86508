//! Scalars as TensorBoard reads them: an event file of length-prefixed, checksummed records, each a protocol buffer.
//!
//! The two formats are small and fixed, so they stand here whole: TFRecord framing (tensorflow/core/lib/io/record_writer.h)
//! and the messages `Event` and `Summary` (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{MetricsError, Phase, Record};

/// The folder of event files in that of a run.
const FOLDER: &str = "tensorboard";
/// TensorBoard takes every file whose name has `tfevents` in it. One name, so that a resumed run replaces its file.
const FILE: &str = "events.out.tfevents.0000000000.percept";
const VERSION: &[u8] = b"brain.Event:2";

/// An event file that is being written.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Begins the event file of a run in `folder` with the records that its log has already.
    pub fn begin(folder: &Path, records: &[Record]) -> Result<Self, MetricsError> {
        let folder = folder.join(FOLDER);
        fs::create_dir_all(&folder).map_err(MetricsError::io(&folder))?;
        let path = folder.join(FILE);
        let file = File::create(&path).map_err(MetricsError::io(&path))?;
        let mut events = Self { path, file };
        let mut version = wall_time();
        version.extend(bytes_field(3, VERSION));
        events.write(&version)?;
        for record in records {
            events.append(record)?;
        }
        Ok(events)
    }

    /// Adds the numbers of a record as scalars `train/loss`, `eval/top1`.
    pub fn append(&mut self, record: &Record) -> Result<(), MetricsError> {
        let phase = match record.phase {
            Phase::Train => "train",
            Phase::Eval => "eval",
        };
        let mut summary = Vec::new();
        for (name, value) in &record.values {
            if let Some(value) = value {
                let mut scalar = bytes_field(1, format!("{phase}/{name}").as_bytes());
                scalar.push(2 << 3 | 5);
                scalar.extend((*value as f32).to_le_bytes());
                summary.extend(bytes_field(1, &scalar));
            }
        }
        let mut event = wall_time();
        event.push(2 << 3);
        event.extend(varint(record.step));
        event.extend(bytes_field(5, &summary));
        self.write(&event)
    }

    /// One record: its length, the checksum of that, itself, its checksum.
    fn write(&mut self, event: &[u8]) -> Result<(), MetricsError> {
        let length = (event.len() as u64).to_le_bytes();
        let mut framed = length.to_vec();
        framed.extend(masked_crc(&length).to_le_bytes());
        framed.extend(event);
        framed.extend(masked_crc(event).to_le_bytes());
        let written = self.file.write_all(&framed);
        written.map_err(MetricsError::io(&self.path))
    }
}

/// The field `wall_time` of an event: seconds since 1970.
fn wall_time() -> Vec<u8> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0.0, |since| since.as_secs_f64());
    let mut field = vec![1 << 3 | 1];
    field.extend(seconds.to_le_bytes());
    field
}

/// A field of text, bytes or an inner message.
fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(content.len() as u64));
    field.extend(content);
    field
}

/// Seven bits a byte, the lowest first.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The checksum of a record: a CRC of a text that holds a CRC would be weak, so it is rotated and shifted.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: events are short and rare.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_published_examples() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(varint(300), [0xac, 2]);
    }

    /// The records of an event file, with their checksums checked.
    fn records(mut content: &[u8]) -> Vec<&[u8]> {
        let mut records = Vec::new();
        while !content.is_empty() {
            let (length, rest) = content.split_at(8);
            let (crc, rest) = rest.split_at(4);
            assert_eq!(crc, masked_crc(length).to_le_bytes());
            let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let (record, rest) = rest.split_at(length);
            let (crc, rest) = rest.split_at(4);
            assert_eq!(crc, masked_crc(record).to_le_bytes());
            records.push(record);
            content = rest;
        }
        records
    }

    #[test]
    fn an_event_file_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = Record::new(1, 0, Phase::Train, [("loss", 2.5), ("rate", f64::NAN)]);
        let second = Record::new(300, 1, Phase::Eval, [("top1", 0.5)]);
        let mut events = EventFile::begin(folder.path(), &[first]).unwrap();
        events.append(&second).unwrap();
        let content = fs::read(folder.path().join(FOLDER).join(FILE)).unwrap();
        let records = records(&content);
        assert_eq!(records.len(), 3);
        assert!(records[0].ends_with(VERSION));
        // Behind the time: the step, and the summary with one scalar; what is no number is left out.
        let scalar = |tag: &[u8], value: f32| {
            let tag = bytes_field(1, tag);
            let scalar = [&tag[..], &[2 << 3 | 5], &value.to_le_bytes()].concat();
            bytes_field(5, &bytes_field(1, &scalar))
        };
        let expected = [&[2 << 3, 1][..], &scalar(b"train/loss", 2.5)].concat();
        assert_eq!(records[1][9..], expected);
        let expected = [&[2 << 3, 0xac, 2][..], &scalar(b"eval/top1", 0.5)].concat();
        assert_eq!(records[2][9..], expected);
        // A resumed run begins its file anew.
        EventFile::begin(folder.path(), &[]).unwrap();
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 1);
    }
}
