//! The metrics of a run as JSON lines: one object a line, appended, never rewritten.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a record was measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Training batches.
    Train,
    /// Pictures that the run does not train on.
    Eval,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Steps that were done when it was written.
    pub step: u64,
    /// The epoch of the last of them.
    pub epoch: u64,
    /// Training or evaluation.
    pub phase: Phase,
    /// Loss, accuracy, rates and times by name. What is no number is `null` in the file, and none here.
    #[serde(flatten)]
    pub values: BTreeMap<String, Option<f64>>,
}

impl Record {
    /// A record of these values.
    pub fn new<'a>(
        step: u64,
        epoch: u64,
        phase: Phase,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Self {
        let number =
            |(name, value): (&str, f64)| (name.to_owned(), value.is_finite().then_some(value));
        Self {
            step,
            epoch,
            phase,
            values: values.into_iter().map(number).collect(),
        }
    }
}

/// Why a log cannot be read or written.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line that is no record, with records behind it: more than a cut-off end.
    #[error("{}:{line}: not a record of metrics: {reason}", path.display())]
    BadLine {
        /// The log.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
}

impl MetricsError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// A log that is being written.
///
/// ```
/// use percept_train::{MetricsLog, Phase, Record, read_metrics};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("metrics.jsonl");
/// let mut log = MetricsLog::resume(&path, 0)?;
/// log.append(&Record::new(1, 0, Phase::Train, [("loss", 2.5)]))?;
/// assert_eq!(read_metrics(&path)?[0].values["loss"], Some(2.5));
/// # Ok::<(), percept_train::MetricsError>(())
/// ```
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log for a run that goes on behind `step`: later records, which that run will write again, and a line
    /// that a killed process cut off, are removed. A log that does not exist is begun.
    pub fn resume(path: &Path, step: u64) -> Result<Self, MetricsError> {
        let content = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content.map_err(MetricsError::io(path))?,
        };
        let lines = parse(path, &content)?;
        let kept = lines.iter().take_while(|line| line.record.step <= step);
        let end = kept.last().map_or(0, |line| line.end);
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).open(path);
        let file = opened.map_err(MetricsError::io(path))?;
        if end < content.len() {
            file.set_len(end as u64).map_err(MetricsError::io(path))?;
        }
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Adds a record, in one piece.
    pub fn append(&mut self, record: &Record) -> Result<(), MetricsError> {
        let line = serde_json::to_string(record).map_err(io::Error::from);
        let written = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(MetricsError::io(&self.path))
    }

    /// Brings all records to the disk: to be called before the checkpoint that counts on them.
    pub fn sync(&mut self) -> Result<(), MetricsError> {
        self.file.sync_data().map_err(MetricsError::io(&self.path))
    }
}

/// All records of a log; a cut-off end is passed over.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>, MetricsError> {
    let content = fs::read(path).map_err(MetricsError::io(path))?;
    let lines = parse(path, &content)?;
    Ok(lines.into_iter().map(|line| line.record).collect())
}

struct Line {
    record: Record,
    /// Where the next line begins.
    end: usize,
}

/// The lines up to the first that is damaged, which must be the last one with anything to read.
fn parse(path: &Path, content: &[u8]) -> Result<Vec<Line>, MetricsError> {
    let mut lines = Vec::new();
    let mut damaged: Option<(usize, String)> = None;
    let mut end = 0;
    for (number, text) in content.split_inclusive(|&byte| byte == b'\n').enumerate() {
        end += text.len();
        let record = match text.strip_suffix(b"\n") {
            Some(text) => serde_json::from_slice(text).map_err(|error| error.to_string()),
            None => Err("the line is not complete".to_owned()),
        };
        match (record, &damaged) {
            (Ok(record), None) => lines.push(Line { record, end }),
            (Err(reason), None) => damaged = Some((number + 1, reason)),
            (Ok(_), Some((line, reason))) => {
                return Err(MetricsError::BadLine {
                    path: path.to_owned(),
                    line: *line,
                    reason: reason.clone(),
                });
            }
            (Err(_), Some(_)) => {}
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(step: u64) -> Record {
        Record::new(
            step,
            step / 10,
            Phase::Train,
            [("loss", 1.0 / step as f64), ("rate", 0.1)],
        )
    }

    fn written(folder: &Path, steps: std::ops::RangeInclusive<u64>) -> PathBuf {
        let path = folder.join("metrics.jsonl");
        let mut log = MetricsLog::resume(&path, 0).unwrap();
        for step in steps {
            log.append(&record(step)).unwrap();
        }
        log.sync().unwrap();
        path
    }

    #[test]
    fn a_line_is_plain_json() {
        let values = [("loss", f64::NAN), ("top1", 0.5)];
        let record = Record::new(12, 3, Phase::Eval, values);
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(
            line,
            r#"{"step":12,"epoch":3,"phase":"eval","loss":null,"top1":0.5}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
    }

    #[test]
    fn resuming_rewinds_to_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 1..=30);
        let mut log = MetricsLog::resume(&path, 17).unwrap();
        assert_eq!(read_metrics(&path).unwrap().len(), 17);
        log.append(&record(18)).unwrap();
        let expected: Vec<Record> = (1..=18).map(record).collect();
        assert_eq!(read_metrics(&path).unwrap(), expected);
        drop(MetricsLog::resume(&path, 99).unwrap());
        assert_eq!(read_metrics(&path).unwrap().len(), 18);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_log_that_was_cut_anywhere_goes_on(cut in any::<prop::sample::Index>(), zeros in 0usize..40) {
            let folder = tempfile::tempdir().unwrap();
            let path = written(folder.path(), 1..=9);
            let mut content = fs::read(&path).unwrap();
            content.truncate(cut.index(content.len() + 1));
            // After a loss of power some file systems end in zeros.
            content.extend(vec![0; zeros]);
            fs::write(&path, &content).unwrap();
            let whole = content.iter().filter(|&&byte| byte == b'\n').count() as u64;
            let mut log = MetricsLog::resume(&path, whole).unwrap();
            log.append(&record(whole + 1)).unwrap();
            let expected: Vec<Record> = (1..=whole + 1).map(record).collect();
            prop_assert_eq!(read_metrics(&path).unwrap(), expected);
        }

        #[test]
        fn damaged_logs_give_records_or_a_typed_error(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = written(folder.path(), 1..=5);
            let mut content = fs::read(&path).unwrap();
            for (at, byte) in flips {
                let at = at.index(content.len());
                content[at] = byte;
            }
            fs::write(&path, &content).unwrap();
            if read_metrics(&path).is_ok() {
                prop_assert!(MetricsLog::resume(&path, 3).is_ok());
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_told_with_its_line_and_nothing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 1..=5);
        let content = fs::read_to_string(&path)
            .unwrap()
            .replacen("\"step\":3", "\"step\":x", 1);
        fs::write(&path, &content).unwrap();
        let error = MetricsLog::resume(&path, 9).unwrap_err().to_string();
        assert!(
            error.contains("metrics.jsonl:3: not a record of metrics"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        let missing = read_metrics(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, MetricsError::Io { .. }));
    }
}
