//! One row of a study over clouds, measured in the process that was started for it.

use std::collections::BTreeMap;
use std::path::Path;

use percept_data::safetensors::write_safetensors;
use percept_engine::{Memory, Recording, estimate_memory};
use percept_graph::Tensor;
use percept_kernels::machine::watch_memory;
use percept_models::study::{CloudStudy, Study};
use percept_report::Profile;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{Args, Setting, Subject};
use super::modules_of;
use crate::fail::{Blame, Result};
use crate::model;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::study;

/// What was measured.
#[derive(Serialize, Deserialize)]
pub struct CloudRow {
    /// Median of an inference.
    pub wall_ms: f64,
    pub components_ms: Vec<f64>,
    /// The most that was held above what the process held with its input; `None` where the system does not tell.
    pub peak_bytes: Option<u64>,
    /// What memory grew by over the measured runs, after the first one.
    pub growth_bytes: Option<u64>,
    /// Arena, weights and working memory.
    pub planned_bytes: u64,
    /// What the plain form holds when it keeps every value.
    pub keep_planned_bytes: u64,
}

/// Measures, and leaves the outputs in a file.
pub fn run(
    args: &Args,
    common: &Common,
    study: &Study,
    measured: &CloudStudy,
    outputs: &Path,
) -> Result<Outcome> {
    let settings = study::shared_settings(study, &args.model.config.set);
    let model = model::build(&args.model.model, &settings)?;
    let threads = common.threads.first().copied();
    let setting = Setting {
        batch: args.batch.first().copied(),
        size: None,
        threads: threads.unwrap_or_else(available_threads),
    };
    let cpu = common.cpu_with(setting.threads)?;
    let weights = args.model.load(&model, common)?;
    let mut source = args.source.clone();
    source.points = args.points.first().copied();
    let inputs = source.example(&model, &setting.shape(), &cpu, common)?;
    let (measured_row, memory) = watch_memory(|| -> Result<(CloudRow, _)> {
        let mut subject = Subject::inference(&model, &weights, inputs, cpu, args.engine.options());
        let mut recording = Recording::default();
        subject.run(None)?;
        let (ran, steady) = watch_memory(|| -> Result<()> {
            for _ in 0..args.repeats.unwrap_or(1) {
                subject.run(Some(&mut recording))?;
            }
            Ok(())
        });
        ran?;
        let program = subject.program();
        let bindings = recording.runs[0].bindings.clone();
        let plan = program.memory_at_peak(&bindings);
        let planned_bytes = plan.total_bytes() as u64;
        let profile = Profile::new(program.step_infos(&bindings)?, &recording, plan, 0.0);
        let kept = estimate_memory(&model.graph, &bindings, Memory::Keep)?;
        let row = CloudRow {
            wall_ms: profile.wall_ms().median,
            components_ms: components(measured, &profile),
            peak_bytes: None,
            growth_bytes: steady.map(|used| used.growth_bytes()),
            planned_bytes,
            keep_planned_bytes: kept.arena_bytes + kept.input_bytes + kept.parameter_bytes,
        };
        Ok((row, subject))
    });
    let (mut row, mut subject) = measured_row?;
    row.peak_bytes = memory.map(|used| used.growth_bytes());
    let tensors: Vec<(String, Tensor<'static>)> = subject.outputs()?;
    write_safetensors(outputs, &tensors, &BTreeMap::new()).bad_input()?;
    Ok(Outcome::new(String::new(), json!({"row": row})))
}

fn components(measured: &CloudStudy, profile: &Profile) -> Vec<f64> {
    let modules = profile.rows(modules_of(measured.components));
    let components = measured.components.iter().map(|component| {
        let own = modules
            .iter()
            .filter(|row| component.scopes.contains(&row.name.as_str()));
        own.map(|row| row.time_ms.median).sum()
    });
    components.collect()
}
