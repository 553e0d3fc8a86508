//! What people see of a run while it goes on.

use std::collections::BTreeMap;

use indicatif::ProgressBar;
use percept_train::{Event, StepReport};

use crate::options::Common;
use crate::saving;

/// Tells people what a run does.
pub struct Watch<'a> {
    bar: &'a ProgressBar,
    common: &'a Common,
    /// What samples are called.
    samples: &'static str,
    epoch: Vec<StepReport>,
    /// Sums over the epoch's steps of what the lesson observed.
    figures: BTreeMap<&'static str, f64>,
}

impl<'a> Watch<'a> {
    pub fn new(bar: &'a ProgressBar, common: &'a Common, samples: &'static str) -> Self {
        Self {
            bar,
            common,
            samples,
            epoch: Vec::new(),
            figures: BTreeMap::new(),
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| self.common.note(text));
    }

    pub fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Resumed { step } => self.note(format_args!("going on behind step {step}")),
            Event::Fitted(fitted) => self.note(saving::describe(fitted)),
            Event::Damaged(damaged) => self.note(format_args!("set aside: {}", damaged.error)),
            Event::Skipped(sample) => self.note(format_args!("skipped: {sample}")),
            Event::Step { report, figures } => {
                self.step(report);
                for (&name, value) in *figures {
                    *self.figures.entry(name).or_insert(0.0) += value;
                }
            }
            Event::Evaluated {
                epoch,
                evaluated,
                is_best,
            } => {
                let best = if *is_best { ", the best so far" } else { "" };
                let figure = evaluated.figure(evaluated.goal.figure);
                let figure = figure.map(|figure| format!("test {} {}", figure.title, figure.value));
                self.note(format_args!(
                    "epoch {}: {}{}{best}",
                    epoch + 1,
                    self.summary(),
                    figure.unwrap_or_default(),
                ));
                for sample in &evaluated.skipped {
                    self.note(format_args!("skipped: {sample}"));
                }
                self.epoch.clear();
                self.figures.clear();
            }
        }
    }

    fn step(&mut self, report: &StepReport) {
        self.bar.set_length(report.steps);
        self.bar.set_position(report.step);
        self.bar.set_message(format!(
            "epoch {}/{}, loss {:.3}, {:.0} {}/s, {:.0} % waiting, {} s to go;",
            report.epoch + 1,
            report.epochs,
            report.loss,
            report.samples_per_second,
            self.samples,
            100.0 * report.waiting_share,
            report.remaining.as_secs(),
        ));
        self.epoch.push(*report);
    }

    /// The steps since the last evaluation.
    fn summary(&self) -> String {
        let count = self.epoch.len() as f64;
        if self.epoch.is_empty() {
            return String::new();
        }
        let mean = |of: fn(&StepReport) -> f64| self.epoch.iter().map(of).sum::<f64>() / count;
        // Rates average as their inverses: all steps have as many samples.
        let pace = 1.0 / mean(|step| 1.0 / step.samples_per_second);
        let figures = self.figures.iter();
        let figures: Vec<String> = figures
            .map(|(name, sum)| format!(" {name} {:.3},", sum / count))
            .collect();
        format!(
            "loss {:.3},{} rate {:.2e}, {pace:.0} {}/s, {:.0} % waiting; ",
            mean(|step| step.loss),
            figures.concat(),
            self.epoch.last().map_or(0.0, |step| step.rate),
            self.samples,
            100.0 * mean(|step| step.waiting_share),
        )
    }
}
