//! What `run` tells, as it goes: text, or a JSON record whose list of answers grows.

use std::io::Write;

use percept_data::SampleError;
use percept_data::atomic::AtomicFile;
use serde_json::{Value, json};

use crate::answers::Shown;
use crate::fail::{Blame, Result};
use crate::options::Common;
use crate::outcome::{origin, print};

/// Standard output, and the record in a folder where one is asked for.
pub struct Report {
    json: bool,
    head: Value,
    file: Option<AtomicFile>,
    begun: bool,
    answers: usize,
}

impl Report {
    /// Begins with what is known before the first answer; nothing is written yet.
    pub fn new(common: &Common, mut head: Value) -> Result<Self> {
        if let Value::Object(fields) = &mut head {
            fields.extend(origin("run"));
        }
        let file = match &common.out {
            None => None,
            Some(folder) => {
                let path = folder.join("run.json");
                let made = std::fs::create_dir_all(folder).and_then(|()| AtomicFile::create(&path));
                let named = |error| anyhow::anyhow!("{}: {error}", path.display());
                Some(made.map_err(named).bad_input()?)
            }
        };
        Ok(Self {
            json: common.json,
            head,
            file,
            begun: false,
            answers: 0,
        })
    }

    /// Tells an answer.
    pub fn answer(&mut self, shown: &Shown<'_>) -> Result<()> {
        if !self.json {
            print(&shown.text())?;
        }
        if self.json || self.file.is_some() {
            self.item(&shown.record())?;
        }
        Ok(())
    }

    /// Tells that there is none.
    pub fn skipped(&mut self, input: &str, error: &SampleError) -> Result<()> {
        self.item(&json!({"input": input, "error": error.to_string()}))
    }

    fn item(&mut self, item: &Value) -> Result<()> {
        self.begin()?;
        let comma = if self.answers > 0 { "," } else { "" };
        self.answers += 1;
        self.write(&format!("{comma}\n    {item}"))
    }

    /// The record up to its answers.
    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let head = self.head.take();
        self.write(&format!("{{\n{}  \"answers\": [", fields(&head, ",\n")))
    }

    /// Ends with what is known only now.
    pub fn finish(mut self, lines: &[String], tail: &Value) -> Result<()> {
        if !self.json {
            for line in lines {
                print(&format!("{line}\n"))?;
            }
        }
        self.begin()?;
        let tail = fields(tail, ",\n");
        let tail = tail.trim_end_matches(",\n");
        self.write(&format!("\n  ],\n{tail}\n}}\n"))?;
        match self.file.take() {
            Some(file) => file.finish().bad_input(),
            None => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(text.as_bytes()).bad_input()?;
        }
        match self.json {
            true => print(text),
            false => Ok(()),
        }
    }
}

/// The fields of an object, one per line.
fn fields(object: &Value, end: &str) -> String {
    let fields = object.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| format!("  {}: {value}{end}", json!(key)))
        .collect()
}
