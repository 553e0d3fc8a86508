//! A study over clouds of several sizes: each row in a process of its own, so that no peak is inherited, in both forms, whose
//! outputs are held against each other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use percept_data::safetensors::read_safetensors;
use percept_graph::Tensor;
use percept_kernels::machine;
use percept_models::study::{CloudStudy, Study};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Args;
use super::cloud_row::CloudRow;
use super::cloud_tables::{claims, rows_table};
use crate::fail::{Blame, Fail, Result};
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::progress;

const REPEATS: u64 = 3;
/// The part of the free memory that a row may plan to take.
const USABLE: f64 = 0.9;

/// A size in both forms.
#[derive(Serialize)]
pub struct Pair {
    pub points: usize,
    pub batch: usize,
    pub frugal: CloudRow,
    /// `None` where it does not fit.
    pub keep: Option<CloudRow>,
    /// What `keep` plans to hold.
    pub keep_planned_bytes: u64,
    /// The largest difference of an output, in its deviations.
    pub difference: Option<f64>,
}

pub fn run(args: &Args, common: &Common, study: &Study, measured: &CloudStudy) -> Result<Outcome> {
    let threads = match common.threads[..] {
        [] => available_threads(),
        [threads] => threads,
        _ => return Err(Fail::usage("--threads takes one number in a study")),
    };
    let or = |given: &[usize], usual: &[usize]| match given {
        [] => usual.to_vec(),
        given => given.to_vec(),
    };
    let (points, batches) = (
        or(&args.points, measured.points),
        or(&args.batch, measured.batches),
    );
    let repeats = args.repeats.unwrap_or(REPEATS);
    common.note(format_args!(
        "{}: {}; this takes some minutes",
        study.name, study.about
    ));
    let folder = Outputs::new()?;
    let bar = progress::bar(common, 2 * points.len() * batches.len(), "measuring");
    let mut pairs = Vec::new();
    for &points in &points {
        for &batch in &batches {
            let row = |memory: &str| Child {
                args,
                study,
                points,
                batch,
                threads,
                repeats,
                memory: memory.to_owned(),
                outputs: folder.0.join(format!("{memory}.safetensors")),
            };
            let frugal = row("frugal").run()?;
            bar.inc(1);
            let planned = frugal.keep_planned_bytes;
            let free = machine::machine_memory_bytes().map_or(u64::MAX, |(_, free)| free);
            let fits = (planned as f64) < USABLE * free as f64;
            let keep = fits.then(|| row("keep").run()).transpose()?;
            bar.inc(1);
            let difference = match &keep {
                Some(_) => Some(folder.difference()?),
                None => None,
            };
            pairs.push(Pair {
                points,
                batch,
                frugal,
                keep,
                keep_planned_bytes: planned,
                difference,
            });
        }
    }
    bar.finish_and_clear();
    let equal = pairs
        .iter()
        .filter_map(|pair| pair.difference)
        .all(|difference| difference <= measured.tolerance);
    let text = format!(
        "{}, {}: {}\n{threads} threads, {}; medians of {repeats} runs, each row in a process of its own; \
         peak: above what the process held with its input\n\n{}\n\
         what the published text says, and what is measured here\n\n{}",
        args.model.model,
        study.name,
        study.about,
        args.engine.describe_mode(),
        rows_table(measured, &pairs),
        claims(measured, &pairs),
    );
    let record = json!({
        "model": args.model.model, "study": study.name, "settings": args.model.config.set, "threads": threads, "repeats": repeats,
        "components": measured.components.iter().map(|component| component.name).collect::<Vec<_>>(),
        "tolerance": measured.tolerance, "rows": pairs,
    });
    let mut outcome = Outcome::new(text, record);
    outcome.passed = equal;
    Ok(outcome)
}

/// One row, measured by another process of this command.
struct Child<'a> {
    args: &'a Args,
    study: &'a Study,
    points: usize,
    batch: usize,
    threads: usize,
    repeats: u64,
    memory: String,
    outputs: PathBuf,
}

impl Child<'_> {
    fn run(&self) -> Result<CloudRow> {
        let program = std::env::current_exe().bug()?;
        let mut command = Command::new(program);
        command
            .args(["bench", &self.args.model.model, "--study", self.study.name])
            .args(["--points", &self.points.to_string()])
            .args(["--batch", &self.batch.to_string()])
            .args(["--repeats", &self.repeats.to_string()])
            .args(["--threads", &self.threads.to_string()])
            .args(["--memory", &self.memory])
            .args(["--mode", self.args.engine.describe_mode()])
            .args(["--seed", &self.args.source.seed.to_string()])
            .args(["--quiet", "--json", "--row"])
            .arg(&self.outputs);
        for set in &self.args.model.config.set {
            command.args(["--set", set]);
        }
        for given in &self.args.source.input {
            let mut text = OsString::new();
            if let Some(part) = &given.part {
                text.push(format!("{part}="));
            }
            text.push(&given.path);
            command.arg("--input").arg(text);
        }
        // The child's own words reach the user.
        let output = command.stderr(Stdio::inherit()).output().bug()?;
        if !output.status.success() {
            let (points, batch) = (self.points, self.batch);
            let words = format!("the row of {points} points, batch {batch}, did not end well");
            return Err(Fail::bad_input(anyhow::anyhow!(
                "{words}: {}",
                output.status
            )));
        }
        let record: Value = serde_json::from_slice(&output.stdout).bug()?;
        serde_json::from_value(record["row"].clone()).bug()
    }
}

/// A folder for what the two forms gave, gone when the study ends.
struct Outputs(PathBuf);

impl Outputs {
    fn new() -> Result<Self> {
        let name = format!("percept-study-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).bad_input()?;
        Ok(Self(folder))
    }

    /// The largest difference of any output, in deviations of it.
    fn difference(&self) -> Result<f64> {
        let read = |memory: &str| {
            let path = self.0.join(format!("{memory}.safetensors"));
            read_safetensors(&path).bad_input()
        };
        let (frugal, keep) = (read("frugal")?, read("keep")?);
        let mut largest: f64 = 0.0;
        for (name, ours) in &frugal {
            let other = keep.iter().find(|(other, _)| other == name);
            let gap = other.and_then(|(_, theirs)| gap(ours, theirs));
            largest = largest.max(gap.unwrap_or(f64::INFINITY));
        }
        Ok(largest)
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(folder: &Path) {
    // What cannot be removed is left to the system, which empties its folder for such files.
    let _ = std::fs::remove_dir_all(folder);
}

/// `None` where the two cannot be compared, or hold something that is no number.
fn gap(ours: &Tensor<'_>, theirs: &Tensor<'_>) -> Option<f64> {
    let (ours, theirs) = (ours.values::<f32>().ok()?, theirs.values::<f32>().ok()?);
    if ours.len() != theirs.len() || ours.is_empty() {
        return None;
    }
    let count = theirs.len() as f64;
    let mean = theirs.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let square = |value: &f32| (f64::from(*value) - mean).powi(2);
    let deviation = (theirs.iter().map(square).sum::<f64>() / count).sqrt();
    let both = ours.iter().zip(theirs);
    let largest = both
        .map(|(a, b)| f64::from((a - b).abs()))
        .fold(0.0, |largest: f64, gap| match gap.is_nan() {
            true => f64::INFINITY,
            false => largest.max(gap),
        });
    Some(match deviation > 0.0 {
        true => largest / deviation,
        false => largest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_compared_in_their_deviations() {
        let tensor = |values: &[f32]| Tensor::from_values([values.len()], values.to_vec()).unwrap();
        let (a, b) = (
            tensor(&[1.0, -1.0, 1.0, -1.0]),
            tensor(&[1.5, -1.0, 1.0, -1.0]),
        );
        assert_eq!(gap(&b, &a), Some(0.5));
        assert_eq!(gap(&a, &a), Some(0.0));
        assert_eq!(gap(&tensor(&[f32::NAN; 4]), &a), Some(f64::INFINITY));
        assert_eq!(gap(&tensor(&[1.0]), &a), None);
        assert_eq!(gap(&tensor(&[2.0; 4]), &tensor(&[1.0; 4])), Some(1.0));
    }
}
