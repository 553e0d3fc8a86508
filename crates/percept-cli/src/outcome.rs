//! What a verb gives: a text for people, a record for programs, and whether its check passed.

use std::io::Write;
use std::path::Path;

use percept_data::atomic::{without_temporary_name, write_atomically};
use percept_picture::Picture;
use percept_report::SCHEMA_VERSION;
use serde_json::{Value, json};

use crate::fail::{Blame, Exit, Fail, Result};

/// The result of a verb.
pub struct Outcome {
    /// For people.
    pub text: String,
    /// For programs.
    pub record: Value,
    /// False when the verb is a check that failed.
    pub passed: bool,
}

impl Outcome {
    /// A result that is no check.
    pub fn new(text: String, record: Value) -> Self {
        Self {
            text,
            record,
            passed: true,
        }
    }

    /// Prints the text, or the record with `--json`; writes the record into `out` when given.
    pub fn deliver(mut self, verb: &str, json: bool, out: Option<&Path>) -> Result<Option<Exit>> {
        if let Value::Object(fields) = &mut self.record {
            fields.extend(origin(verb));
        }
        let mut record = serde_json::to_string_pretty(&self.record).bug()?;
        record.push('\n');
        if let Some(folder) = out {
            std::fs::create_dir_all(folder)
                .map_err(|error| anyhow::anyhow!("{}: {error}", folder.display()))
                .bad_input()?;
            let path = folder.join(format!("{verb}.json"));
            write_text(&path, &record)?;
        }
        print(if json { &record } else { &self.text })?;
        Ok((!self.passed).then_some(Exit::CheckFailed))
    }
}

/// Refuses a folder of --out that cannot be made or written, before the work whose record it is to hold. Makes nothing.
pub fn check_folder(folder: &Path) -> Result<()> {
    // The nearest folder that is there tells whether another can be made in it.
    let there = folder.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(Fail::bad_input(format!(
            "--out {}: {} is no folder",
            folder.display(),
            there.display()
        )));
    }
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fail::bad_input(format!(
            "--out {}: nothing can be written there: {}",
            folder.display(),
            without_temporary_name(error)
        ))),
    }
}

/// Writes a picture as .svg, or else as .png.
pub fn write_picture(path: &Path, picture: &Picture) -> Result<()> {
    match path.extension().is_some_and(|ending| ending == "svg") {
        true => write_text(path, &picture.to_svg()),
        false => write_file(path, &picture.to_png()),
    }
}

/// Writes a whole text file, or nothing.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    write_file(path, text.as_bytes())
}

/// Writes a whole file, or nothing.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let written: std::io::Result<()> = write_atomically(path, |file| file.write_all(bytes));
    written
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .bad_input()
}

/// What every record says of where it comes from.
pub fn origin(verb: &str) -> [(String, Value); 3] {
    [
        ("schema_version", json!(SCHEMA_VERSION)),
        ("verb", json!(verb)),
        ("percept_version", json!(env!("CARGO_PKG_VERSION"))),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Data goes to standard output. What cannot be written is a failure; a reader that left is none.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Fail {
            exit: Exit::ReaderLeft,
            ..Fail::bad_input(error)
        },
        _ => Fail::bad_input(format_args!("standard output cannot be written: {error}")),
    })
}
