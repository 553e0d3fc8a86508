//! Answers in files, written as they come: a table of the answers, or every output as a tensor.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use percept_data::Sample;
use percept_data::arrays::{NpzWriter, write_npy};
use percept_data::atomic::AtomicFile;
use percept_data::safetensors::SafetensorsWriter;
use percept_graph::Tensor;
use percept_models::answer::{Answer, AnswerKind};
use percept_report::counted;

use super::{boxes, classes, labels, matches, numbered, written};
use crate::fail::{Blame, Fail, Result};

/// A file that takes what runs give, and appears when it is finished.
pub struct Saver {
    path: PathBuf,
    file: Form,
    /// Tensors, rows or files.
    written: usize,
}

enum Form {
    Safetensors(Box<SafetensorsWriter>),
    Npz(Box<NpzWriter>),
    Table(Box<AtomicFile>),
    /// Descriptors as rows of one array, which is written at the end.
    Rows {
        values: Vec<f32>,
        width: usize,
    },
    /// A file per sample, numbered when there are several.
    PerSample {
        several: bool,
    },
}

impl Saver {
    /// Begins a file in the form that its name tells, for answers of this kind.
    pub fn create(path: &Path, kind: AnswerKind, several: bool) -> Result<Self> {
        let columns: &[&str] = match kind {
            AnswerKind::Classes => &classes::COLUMNS,
            AnswerKind::Boxes => &boxes::COLUMNS,
            AnswerKind::Matches => &matches::COLUMNS,
            AnswerKind::PointLabels | AnswerKind::Descriptor | AnswerKind::Features => &[],
        };
        let endings: &[&str] = match kind {
            AnswerKind::Classes | AnswerKind::Boxes => &["csv"],
            AnswerKind::PointLabels => &labels::ENDINGS,
            AnswerKind::Descriptor => &["npy"],
            AnswerKind::Matches => &matches::ENDINGS,
            AnswerKind::Features => &[],
        };
        let ending = path.extension().and_then(|ending| ending.to_str());
        let file = match ending {
            Some("safetensors") => Form::Safetensors(Box::new(SafetensorsWriter::create(path)?)),
            Some("npz") => Form::Npz(Box::new(NpzWriter::create(path)?)),
            Some("csv") if !columns.is_empty() => Form::Table(Box::new(table(path, columns)?)),
            Some(ending) if endings.contains(&ending) => match kind {
                AnswerKind::Descriptor => Form::Rows {
                    values: Vec::new(),
                    width: 0,
                },
                _ => Form::PerSample { several },
            },
            _ => {
                let own: String = endings
                    .iter()
                    .map(|ending| format!(".{ending}, "))
                    .collect();
                return Err(Fail::usage(format!(
                    "--save {}: expected a name that ends in {own}.safetensors or .npz",
                    path.display()
                )));
            }
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            written: 0,
        })
    }

    /// Adds what one run gave. `prefix` tells its tensors from those of other runs.
    pub fn add(
        &mut self,
        prefix: &str,
        outputs: &[(&str, Tensor<'_>)],
        samples: &[Sample],
        answers: &[Answer],
        top: Option<usize>,
    ) -> Result<()> {
        match &mut self.file {
            Form::Safetensors(file) => {
                for (name, tensor) in outputs {
                    file.add(&format!("{prefix}{name}"), tensor)?;
                }
                self.written += outputs.len();
            }
            Form::Npz(file) => {
                for (name, tensor) in outputs {
                    file.add(&format!("{prefix}{name}"), tensor)?;
                }
                self.written += outputs.len();
            }
            Form::Table(file) => {
                for (sample, answer) in samples.iter().zip(answers) {
                    let rows: Vec<Vec<String>> = match answer {
                        Answer::Classes(answer) => vectors(classes::rows(answer, top)),
                        Answer::Boxes(answer) => vectors(boxes::rows(answer)),
                        Answer::Matches(answer) => vectors(matches::rows(answer)),
                        Answer::PointLabels(_) | Answer::Descriptor(_) | Answer::Features(_) => {
                            Vec::new()
                        }
                    };
                    for row in &rows {
                        let cells = std::iter::once(&sample.name).chain(row);
                        let line = csv_line(cells.map(String::as_str));
                        file.write_all(line.as_bytes())
                            .map_err(|error| anyhow::anyhow!("{}: {error}", self.path.display()))
                            .bad_input()?;
                    }
                    self.written += rows.len();
                }
            }
            Form::Rows { values, width } => {
                for answer in answers {
                    if let Answer::Descriptor(answer) = answer {
                        values.extend(&answer.values);
                        *width = answer.values.len();
                        self.written += 1;
                    }
                }
            }
            Form::PerSample { several } => {
                for (sample, answer) in samples.iter().zip(answers) {
                    let path = numbered(&self.path, several.then_some(self.written));
                    match answer {
                        Answer::PointLabels(answer) => labels::save(&path, sample, answer)?,
                        Answer::Matches(answer) => matches::save(&path, sample, answer)?,
                        _ => continue,
                    }
                    self.written += 1;
                }
            }
        }
        Ok(())
    }

    /// Brings the file to its place; says what is in it.
    pub fn finish(self) -> Result<String> {
        if let Form::PerSample { several: true } = self.file {
            return Ok(written(&self.path, self.written));
        }
        let what = match self.file {
            Form::Safetensors(file) => file.finish(&BTreeMap::new()).map(|()| "tensor")?,
            Form::Npz(file) => file.finish().map(|()| "tensor")?,
            Form::Rows { values, width } => {
                let rows = Tensor::from_values([self.written, width], values).bug()?;
                write_npy(&self.path, &rows).map(|()| "row")?
            }
            Form::PerSample { .. } => "file",
            Form::Table(file) => file
                .finish()
                .map(|()| "row")
                .map_err(|error| anyhow::anyhow!("{}: {error}", self.path.display()))
                .bad_input()?,
        };
        let written = counted(self.written, what);
        Ok(format!("{}: {written}", self.path.display()))
    }
}

fn table(path: &Path, columns: &[&str]) -> Result<AtomicFile> {
    let head = csv_line(std::iter::once("input").chain(columns.iter().copied()));
    AtomicFile::create(path)
        .and_then(|mut file| file.write_all(head.as_bytes()).map(|()| file))
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .bad_input()
}

fn vectors<const N: usize>(rows: Vec<[String; N]>) -> Vec<Vec<String>> {
    rows.into_iter().map(Vec::from).collect()
}

/// Cells as a line of CSV.
pub fn csv_line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = cells
        .map(|cell| match cell.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.to_owned(),
        })
        .collect();
    quoted.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::csv_line;

    #[test]
    fn cells_that_would_break_a_line_are_quoted() {
        let cells = ["a.jpg", "sea lion, \"big\"", ""].into_iter();
        assert_eq!(csv_line(cells), "a.jpg,\"sea lion, \"\"big\"\"\",\n");
    }
}
