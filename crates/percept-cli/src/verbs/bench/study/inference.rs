//! A study of one inference: its time and memory by component and by operator, what elastic axes reach, and what a published
//! text makes of the same profile.

use std::collections::BTreeMap;

use percept_engine::{MemoryAtPeak, Recording, Run, StepInfo};
use percept_graph::PriceList;
use percept_models::Model;
use percept_models::study::{Component, InferenceStudy, Measure, Study};
use percept_report::{Table, bytes, count, milliseconds};
use serde::Serialize;
use serde_json::json;

use super::super::{Args, Setting};
use crate::fail::{Blame, Fail, Result};
use crate::model;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;
use crate::progress;
use crate::verbs::elastic::narrowed;

const REPEATS: u64 = 5;

/// What some steps took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Taken {
    calls: usize,
    ms: f64,
    macs: u64,
    allocated_bytes: usize,
}

impl Taken {
    fn add(&mut self, info: &StepInfo, ms: f64) {
        self.calls += 1;
        self.ms += ms;
        self.macs += info.macs.unwrap_or(0);
        self.allocated_bytes += info.allocated_bytes;
    }
}

/// Everything that was measured.
struct Inference<'a> {
    study: &'a InferenceStudy,
    all: Taken,
    /// One for each component, and what belongs to none.
    components: Vec<Taken>,
    operators: BTreeMap<&'static str, Taken>,
    /// Calls of each operator that another one's step computes on its way.
    absorbed: BTreeMap<&'static str, usize>,
    memory: MemoryAtPeak,
}

pub fn run(args: &Args, common: &Common, study: &Study, of: &InferenceStudy) -> Result<Outcome> {
    let threads = match common.threads[..] {
        [] => available_threads(),
        [threads] => threads,
        _ => return Err(Fail::usage("--threads takes one number in a study")),
    };
    let one = |given: &[usize]| match given {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        _ => Err(Fail::usage("--batch takes one number in this study")),
    };
    let setting = Setting {
        batch: one(&args.batch)?,
        size: args.size.first().cloned(),
        threads,
    };
    let model = setting.shape().sized(args.model.build()?)?;
    let weights = args.model.load(&model, common)?;
    let mut subject = args.subject(common, &model, &weights, &setting)?;
    let repeats = args.repeats.unwrap_or(REPEATS);
    let bar = progress::bar(common, repeats as usize + 1, "measuring");
    subject.run(None)?;
    let mut recording = Recording::default();
    for _ in 0..repeats {
        bar.inc(1);
        subject.run(Some(&mut recording))?;
    }
    bar.finish_and_clear();
    let program = subject.program();
    let bindings = &recording.runs[0].bindings;
    let measured = Inference::new(
        of,
        &program.step_infos(bindings)?,
        &recording,
        program.memory_at_peak(bindings),
    );
    let reach = reach(&model, &setting)?;
    let findings: Vec<[String; 3]> = of
        .findings
        .iter()
        .map(|finding| {
            let here = measured.says(finding.evidence, &reach);
            [finding.says.to_owned(), finding.here.to_owned(), here]
        })
        .collect();
    let text = format!(
        "{}, {}: {threads} threads, the fastest of {repeats} runs of each step\n\n{}\n{}\n{}\n{}",
        args.model.model,
        study.name,
        measured.component_table(),
        measured.operator_table(),
        measured.memory_text(),
        table_of(["<the text says", "<here", "<figure"], &findings),
    );
    let memory = &measured.memory;
    let record = json!({
        "model": args.model.model, "study": study.name, "threads": threads, "repeats": repeats,
        "all": measured.all,
        "components": of.components.iter().map(|c| c.name).chain(["other"])
            .zip(&measured.components).collect::<BTreeMap<_, _>>(),
        "operators": measured.operators,
        "memory": {
            "peak_at": memory.step, "live_bytes": memory.live_bytes, "arena_bytes": memory.arena_bytes,
            "working_bytes": memory.scratch_bytes, "weight_bytes": memory.weight_bytes,
            "allocated_bytes": measured.all.allocated_bytes,
        },
        "reach": reach, "findings": findings,
    });
    Ok(Outcome::new(text, record))
}

/// What each axis saves at its first level, of parameters and of multiply-adds; all axes at once stand under no name.
fn reach(model: &Model, setting: &Setting) -> Result<Vec<Reach>> {
    let entry = model::find(model.name)?;
    let shapes = setting.shape().shapes(model)?;
    let prices = PriceList::new(|choice| narrowed(entry, model, choice), &shapes).bad_input()?;
    let whole: Vec<usize> = prices.axes().iter().map(|axis| axis.levels).collect();
    let all = prices.price(&whole);
    let mut prefixes: Vec<&str> = vec![""];
    prefixes.extend(prices.axes().iter().map(|axis| axis.name.as_str()));
    let blocks = prices.axes().iter().map(|axis| {
        let end = axis.name.find(|c: char| c.is_ascii_digit() || c == '.');
        &axis.name[..end.unwrap_or(axis.name.len())]
    });
    prefixes.extend(blocks);
    prefixes.sort_unstable();
    prefixes.dedup();
    let saved = |prefix: &str| {
        let axes = prices.axes().iter();
        let levels: Vec<usize> = axes
            .map(|axis| match axis.name.starts_with(prefix) {
                true => 1,
                false => axis.levels,
            })
            .collect();
        let price = prices.price(&levels);
        let share = |part: u64, whole: u64| 1.0 - part as f64 / whole.max(1) as f64;
        Reach {
            axes: prefix.to_owned(),
            params: share(price.params, all.params),
            macs: share(price.macs, all.macs),
        }
    };
    Ok(prefixes.into_iter().map(saved).collect())
}

/// The share that axes save.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Reach {
    /// How the names of these axes begin.
    axes: String,
    params: f64,
    macs: f64,
}

fn is_inside(name: &str, component: &Component) -> bool {
    component.scopes.iter().any(|scope| {
        let rest = name.strip_prefix(scope);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

impl<'a> Inference<'a> {
    fn new(
        study: &'a InferenceStudy,
        infos: &[StepInfo],
        recording: &Recording,
        memory: MemoryAtPeak,
    ) -> Self {
        let mut fastest: BTreeMap<usize, f64> = BTreeMap::new();
        for (step, elapsed) in recording.runs.iter().flat_map(Run::step_times) {
            let ms = elapsed.as_secs_f64() * 1e3;
            let known = fastest.entry(step).or_insert(ms);
            *known = known.min(ms);
        }
        let mut measured = Self {
            study,
            all: Taken::default(),
            components: vec![Taken::default(); study.components.len() + 1],
            operators: BTreeMap::new(),
            absorbed: BTreeMap::new(),
            memory,
        };
        for info in infos.iter().filter(|info| !info.is_constant) {
            let ms = fastest.get(&info.step).copied().unwrap_or(0.0);
            let components = study.components.iter();
            let mut components = components.map(|component| is_inside(&info.name, component));
            let own = components.position(|inside| inside);
            let own = own.unwrap_or(study.components.len());
            measured.all.add(info, ms);
            measured.components[own].add(info, ms);
            measured
                .operators
                .entry(info.kind)
                .or_default()
                .add(info, ms);
            for (_, kind) in &info.absorbed {
                *measured.absorbed.entry(kind).or_default() += 1;
            }
        }
        measured
    }

    fn share(&self, ms: f64) -> String {
        format!("{:.1} %", 100.0 * ms / self.all.ms.max(f64::MIN_POSITIVE))
    }

    fn component_table(&self) -> String {
        let mut table = Table::new(&["<module", "steps", "ms", "share", "MACs", "allocated"]);
        let names = self.study.components.iter().map(|component| component.name);
        let rows = names.chain(["other"]).zip(&self.components);
        for (name, taken) in rows.chain([("all", &self.all)]) {
            table.row([
                name.to_owned(),
                taken.calls.to_string(),
                milliseconds(taken.ms),
                self.share(taken.ms),
                count(taken.macs),
                bytes(taken.allocated_bytes as u64),
            ]);
        }
        table.render()
    }

    /// Ours by time, and what the published profile has for the same.
    fn operator_table(&self) -> String {
        let mut table = Table::new(&[
            "<operator",
            "calls",
            "inside others",
            "ms",
            "share",
            "allocated",
            "<published",
            "calls",
            "allocated",
        ]);
        let published = |kind: &str| {
            let mut lines = self.study.published.iter();
            let found = lines.find(|line| line.kinds.contains(&kind));
            found.map_or([const { String::new() }; 3], |line| {
                [
                    line.name.to_owned(),
                    line.calls.to_string(),
                    format!("{:.2} MiB", line.mebibytes),
                ]
            })
        };
        let none = Taken::default();
        let mut kinds: Vec<(&str, &Taken)> = self.operators.iter().map(|(k, t)| (*k, t)).collect();
        let only_absorbed = self
            .absorbed
            .keys()
            .filter(|k| !self.operators.contains_key(*k));
        kinds.extend(only_absorbed.map(|kind| (*kind, &none)));
        kinds.sort_by(|a, b| b.1.ms.total_cmp(&a.1.ms).then(a.0.cmp(b.0)));
        for (kind, taken) in kinds {
            let absorbed = self.absorbed.get(kind).copied().unwrap_or(0);
            let own = [
                kind.to_owned(),
                taken.calls.to_string(),
                absorbed.to_string(),
                milliseconds(taken.ms),
                self.share(taken.ms),
                bytes(taken.allocated_bytes as u64),
            ];
            table.row(own.into_iter().chain(published(kind)));
        }
        let nothing = self.study.published.iter().filter(|l| l.kinds.is_empty());
        let nothing: Vec<String> = nothing
            .map(|l| format!("{} ({} calls, {:.2} MiB)", l.name, l.calls, l.mebibytes))
            .collect();
        format!(
            "{}nothing here does what {} did\n",
            table.render(),
            nothing.join(", ")
        )
    }

    fn memory_text(&self) -> String {
        let memory = &self.memory;
        let owner = memory.values.first();
        let owner = owner.map(|v| format!("{} of it is the {}", bytes(v.bytes as u64), v.name));
        format!(
            "held at the peak, in {}: {} ({})\narena and working memory {}, packed weights {}; all allocations of a run add up to {}\n",
            memory.step,
            bytes(memory.live_bytes as u64),
            owner.unwrap_or_default(),
            bytes((memory.arena_bytes + memory.scratch_bytes) as u64),
            bytes(memory.weight_bytes as u64),
            bytes(self.all.allocated_bytes as u64),
        )
    }

    /// The figure that a finding is about.
    fn says(&self, evidence: Measure, reach: &[Reach]) -> String {
        match evidence {
            Measure::Peak => format!(
                "{} of {} that are allocated",
                bytes(self.memory.live_bytes as u64),
                bytes(self.all.allocated_bytes as u64)
            ),
            Measure::Share(of) => {
                let parts = of.iter().filter_map(|&at| self.components.get(at));
                format!(
                    "{} of the time",
                    self.share(parts.map(|part| part.ms).sum())
                )
            }
            Measure::Reach(prefixes) => {
                let found = reach.iter().filter(|r| prefixes.contains(&r.axes.as_str()));
                let found: Vec<String> = found
                    .map(|r| {
                        let percent = [r.params, r.macs].map(|share| 100.0 * share);
                        let [params, macs] = percent;
                        format!("{params:.1} % of parameters, {macs:.1} % of MACs")
                    })
                    .collect();
                found.join("; ")
            }
        }
    }
}

fn table_of(heads: [&str; 3], rows: &[[String; 3]]) -> String {
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(row.iter().cloned());
    }
    table.render()
}
