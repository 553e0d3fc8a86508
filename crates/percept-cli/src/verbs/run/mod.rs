//! `percept run`: from samples to answers, one batch after the other.

mod report;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use percept_data::{Example, Sample, Samples};
use percept_engine::Program;
use percept_graph::{Graph, Tensor};
use percept_models::Model;
use percept_models::answer::{Answer, AnswerKind, ClassFile};

use crate::answers::{Saver, Shown, check_picture, numbered, written};
use crate::fail::{Blame, Exit, Fail, Result};
use crate::inputs::{InputArgs, batch, note_left_out, unit};
use crate::interrupt::stop_on_interrupt;
use crate::model::ModelArgs;
use crate::options::{Common, EngineArgs, parse_picture, parse_top};
use crate::progress;
use crate::verbs::verify::find;
use report::Report;

/// Run a network on files, folders, raw tensors, or on an input that percept makes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept run resnet50 --weights resnet50.pth --input cat.jpg dog.png
  percept run resnet50 --input photos/ --batch 8 --json
  percept run resnet50 --input photos/ --save classes.csv
  percept run dinov2-vitb14 --input cat.jpg --size 518 --save features.safetensors
  percept run resnet50 --input in.safetensors --tap layer1.0.conv2 --save out.safetensors
  percept run centerpoint --input sweep.pcd.bin --picture bev.png
  percept run centerpoint --input nuscenes/ --sweeps 10 --save boxes.csv

Answers are printed and saved as they come, so that a folder of any length fits: classes, boxes, or the shapes of features, \
which --save keeps. What cannot be read is named and skipped; --strict stops there. Ctrl-C stops after the batch that runs, \
and what was computed is kept. Without --input the network runs on a seeded input, or on a sweep of the synthetic world.")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Write every output and tap to this .safetensors or .npz file, or the answers to this file: classes and boxes as .csv, point
    /// labels as .label, .npy or .ply (numbered when there are several inputs), descriptors as .npy
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also save the value of this scope (such as layer1.0.conv2); may be given several times
    #[arg(long, value_name = "SCOPE")]
    tap: Vec<String>,
    /// Classes or boxes to show [default: 5 classes, 20 boxes]
    #[arg(long, value_name = "N", value_parser = parse_top)]
    top: Option<usize>,
    /// Draw the answer over what the network looked at into this .png or .svg file (numbered when there are several inputs)
    #[arg(long, value_name = "FILE", value_parser = parse_picture)]
    picture: Option<PathBuf>,
    /// Names, colours and file ids of your own point classes: {"10": {"name": "car", "color": [100, 150, 245]}, ..}, ids ascending
    /// with the network's classes
    #[arg(long, value_name = "FILE.json")]
    classes: Option<PathBuf>,
    /// Stop at an input that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
}

pub fn run(args: &Args, common: &Common) -> Result<()> {
    let model = args.input.shape.sized(args.model.build()?)?;
    let kind = model.head.kind();
    if args.save.is_none() && !args.tap.is_empty() {
        return Err(Fail::usage("--tap gives tensors, which need a place")
            .hint("add --save FILE.safetensors"));
    }
    if args.picture.is_some() {
        check_picture(kind)?;
    }
    let has_input = !args.input.source.input.is_empty();
    if kind == AnswerKind::Features && args.save.is_none() && has_input {
        return Err(
            Fail::usage(format!("{} gives features, which need a place", model.name))
                .hint("add --save FILE.safetensors"),
        );
    }
    let classes = args.class_file(&model)?;
    let graph = with_taps(args.engine.form(&model), &args.tap)?;
    let cpu = common.cpu()?;
    let samples = args.input.open(&model, &cpu)?;
    let saver = args.save.as_deref();
    let saver = saver.map(|path| Saver::create(path, kind, samples.len() > 1));
    let saver = saver.transpose()?;
    let weights = args.model.load(&model, common)?;
    let program = Program::new(graph, weights, cpu, args.engine.options());
    let report = Report::new(common, args.head(&model, &program, &*samples))?;
    let mut runner = Runner {
        args,
        common,
        model,
        program,
        saver,
        report,
        classes,
        several: false,
        taken: 0,
        answered: 0,
        failed: 0,
    };
    let stop = stop_on_interrupt()?;
    // Whatever ends the run, what was computed is kept.
    let ended = runner.all(&*samples, &stop);
    runner.finish(&*samples, ended)
}

/// The graph with every tapped scope as an output, under its own name.
fn with_taps(graph: &Graph, taps: &[String]) -> Result<Graph> {
    let mut tapped = graph.clone();
    for tap in taps {
        let value = find(graph, tap)?;
        if !tapped.outputs().iter().any(|(name, _)| name == tap) {
            tapped = tapped.with_output(tap, value);
        }
    }
    Ok(tapped)
}

/// A run on its way through the samples.
struct Runner<'a> {
    args: &'a Args,
    common: &'a Common,
    model: Model,
    program: Program,
    saver: Option<Saver>,
    report: Report,
    /// What the user calls classes of points.
    classes: Option<ClassFile>,
    /// Whether pictures are numbered.
    several: bool,
    /// Samples of the source that were looked at.
    taken: usize,
    /// Samples that have an answer.
    answered: usize,
    /// Samples that could not be used.
    failed: usize,
}

impl Runner<'_> {
    fn all(&mut self, samples: &dyn Samples, stop: &AtomicBool) -> Result<()> {
        let bar = progress::bar(self.common, samples.len(), "running");
        let step = self.args.step();
        for first in (0..samples.len()).step_by(step) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let indices = first..(first + step).min(samples.len());
            let count = indices.len();
            bar.suspend(|| self.batch(samples, indices))?;
            bar.inc(count as u64);
            self.taken += count;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn batch(&mut self, samples: &dyn Samples, indices: std::ops::Range<usize>) -> Result<()> {
        let (mut read, mut examples): (Vec<Sample>, Vec<Example>) = (Vec::new(), Vec::new());
        for index in indices {
            let example = samples.sample(index).and_then(|sample| {
                let example = self.model.example(self.program.cpu(), &sample)?;
                Ok((sample, example))
            });
            match example {
                Ok((sample, example)) => {
                    note_left_out(&sample, self.common);
                    read.extend(numbered_samples(sample, example.samples));
                    examples.push(example);
                }
                Err(error) if self.args.strict || samples.len() == 1 => return Err(error.into()),
                Err(error) => {
                    self.failed += 1;
                    eprintln!("skipped: {error}");
                    self.report.skipped(&samples.name(index), &error)?;
                }
            }
        }
        if examples.is_empty() {
            return Ok(());
        }
        let inputs = batch(&self.model, examples)?;
        self.answer(&inputs, &read, samples.len())
    }

    /// Runs a batch, and tells, draws and saves what it gave.
    fn answer(&mut self, inputs: &Example, samples: &[Sample], of: usize) -> Result<()> {
        let named = inputs.taken_by(&self.model.graph);
        let common = self.common;
        let outputs = common.watch("runs", || self.program.run(&named))?;
        let outputs: Vec<(&str, Tensor<'_>)> = outputs
            .iter()
            .map(|(name, tensor)| (name, tensor.borrowed()))
            .collect();
        let mut answers: Vec<Answer> = self.model.read(&outputs, inputs, samples).bug()?;
        for answer in &mut answers {
            if let (Answer::PointLabels(labels), Some(classes)) = (answer, &self.classes) {
                classes.apply(labels);
            }
        }
        if let Some(saver) = &mut self.saver {
            let names: Vec<&str> = samples.iter().map(|sample| sample.name.as_str()).collect();
            let prefix = match of > self.args.step() {
                true => format!("{}/", names.join("+")),
                false => String::new(),
            };
            saver.add(&prefix, &outputs, samples, &answers, self.args.top)?;
        }
        for (sample, answer) in samples.iter().zip(&answers) {
            let shown = Shown {
                sample,
                answer,
                top: self.args.top,
            };
            if let Some(path) = &self.args.picture {
                self.several = of.max(samples.len()) > 1;
                shown.write_picture(&numbered(path, self.several.then_some(self.answered)))?;
            }
            self.answered += 1;
            self.report.answer(&shown)?;
        }
        Ok(())
    }

    fn finish(mut self, samples: &dyn Samples, ended: Result<()>) -> Result<()> {
        let saver = self.saver.take().filter(|_| self.answered > 0);
        let saved = saver.map(Saver::finish).transpose()?;
        let stopped = ended.is_ok() && self.taken < samples.len();
        let mut lines: Vec<String> = Vec::new();
        if let Some(path) = self.args.picture.as_ref().filter(|_| self.answered > 0) {
            lines.push(match self.several {
                true => format!("pictures: {}", written(path, self.answered)),
                false => format!("picture: {}", path.display()),
            });
        }
        lines.extend(saved);
        if self.failed > 0 {
            let of = samples.len();
            eprintln!("{} of {of} {} were skipped", self.failed, unit(&self.model));
        }
        if stopped {
            let of = samples.len();
            eprintln!(
                "stopped after {} of {of} {}; what was computed is kept",
                self.taken,
                unit(&self.model)
            );
        }
        if self.model.head.kind() == AnswerKind::Features && self.args.save.is_none() {
            lines.push("add --save FILE.safetensors to keep the numbers".to_owned());
        }
        ended?;
        let tail = serde_json::json!({
            "answered": self.answered, "skipped": self.failed, "stopped": stopped,
            "saved": self.args.save.as_ref().map(|path| path.display().to_string()),
            "pictures": self.args.picture.as_ref().map(|path| path.display().to_string()),
        });
        self.report.finish(&lines, &tail)?;
        if self.answered == 0 && self.failed > 0 {
            let message = format!(
                "none of {} {} could be used",
                self.failed,
                unit(&self.model)
            );
            return Err(Fail::bad_input(message));
        }
        if stopped {
            return Err(Fail {
                exit: Exit::Interrupted,
                ..Fail::usage("interrupted")
            });
        }
        Ok(())
    }
}

impl Args {
    /// What the user calls the classes of points, where that is said.
    fn class_file(&self, model: &Model) -> Result<Option<ClassFile>> {
        let Some(path) = &self.classes else {
            return Ok(None);
        };
        let Some(outputs) = model.head.point_classes() else {
            let kind = model.head.kind();
            let wrong = format!("{} gives {kind}, --classes is for point labels", model.name);
            return Err(Fail::usage(wrong).hint("leave --classes out"));
        };
        ClassFile::read(path, outputs).map(Some).bad_input()
    }

    /// Samples of the source that are taken at once.
    fn step(&self) -> usize {
        self.input.shape.batch.unwrap_or(1)
    }

    /// What a record says before the first answer.
    fn head(&self, model: &Model, program: &Program, samples: &dyn Samples) -> serde_json::Value {
        serde_json::json!({
            "model": model.name, "settings": self.model.config.set, "engine": self.engine.describe(),
            "weights": program.weights_description(), "samples": samples.len(),
            "kind": model.head.kind().to_string(),
        })
    }
}

/// A sample for each answer: what a tensor file holds is told apart by numbers.
fn numbered_samples(sample: Sample, count: usize) -> Vec<Sample> {
    if count == 1 {
        return vec![sample];
    }
    let number = |index: usize| Sample {
        name: format!("{} [{index}]", sample.name),
        parts: Vec::new(),
    };
    (0..count).map(number).collect()
}
