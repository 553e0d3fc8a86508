//! What a verb gives: a text for people, a record for programs, and whether its check passed.

use std::io::Write;
use std::path::Path;

use percept_data::atomic::write_atomically;
use percept_report::SCHEMA_VERSION;
use serde_json::{Value, json};

use crate::fail::{Blame, Exit, Result};

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
            fields.insert("schema_version".to_owned(), json!(SCHEMA_VERSION));
            fields.insert("verb".to_owned(), json!(verb));
            fields.insert(
                "percept_version".to_owned(),
                json!(env!("CARGO_PKG_VERSION")),
            );
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
        print(if json { &record } else { &self.text });
        Ok((!self.passed).then_some(Exit::CheckFailed))
    }
}

/// Writes a whole text file, or nothing.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    let written: std::io::Result<()> =
        write_atomically(path, |file| file.write_all(text.as_bytes()));
    written
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .bad_input()
}

/// Data goes to stdout. A reader that closed the pipe (`percept ... | head`) has all it wants.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}
