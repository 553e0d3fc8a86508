//! What people see of a run while it goes on.

use indicatif::ProgressBar;
use percept_train::{Event, StepReport};

use crate::options::Common;

/// Tells people what a run does.
pub struct Watch<'a> {
    bar: &'a ProgressBar,
    common: &'a Common,
    epoch: Vec<StepReport>,
}

impl<'a> Watch<'a> {
    pub fn new(bar: &'a ProgressBar, common: &'a Common) -> Self {
        Self {
            bar,
            common,
            epoch: Vec::new(),
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| self.common.note(text));
    }

    pub fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::Resumed { step } => self.note(format_args!("going on behind step {step}")),
            Event::Damaged(damaged) => self.note(format_args!("set aside: {}", damaged.error)),
            Event::Skipped(picture) => self.note(format_args!("skipped: {picture}")),
            Event::Step(report) => self.step(report),
            Event::Evaluated {
                epoch,
                evaluated,
                is_best,
            } => {
                let top1 = 100.0 * evaluated.scores.top1().unwrap_or(f64::NAN);
                let best = if *is_best { ", the best so far" } else { "" };
                self.note(format_args!(
                    "epoch {}: {}test top-1 {top1:.1} %{best}",
                    epoch + 1,
                    self.summary()
                ));
                for picture in &evaluated.skipped {
                    self.note(format_args!("skipped: {picture}"));
                }
                self.epoch.clear();
            }
        }
    }

    fn step(&mut self, report: &StepReport) {
        self.bar.set_length(report.steps);
        self.bar.set_position(report.step);
        self.bar.set_message(format!(
            "epoch {}/{}, loss {:.3}, {:.0} images/s, {:.0} % waiting, {} s to go;",
            report.epoch + 1,
            report.epochs,
            report.loss,
            report.images_per_second,
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
        // Rates average as their inverses: all steps have as many pictures.
        let rate = 1.0 / mean(|step| 1.0 / step.images_per_second);
        format!(
            "loss {:.3}, accuracy {:.1} %, rate {:.2e}, {rate:.0} images/s, {:.0} % waiting; ",
            mean(|step| step.loss),
            100.0 * mean(|step| step.accuracy.unwrap_or(f64::NAN)),
            self.epoch.last().map_or(0.0, |step| step.rate),
            100.0 * mean(|step| step.waiting_share),
        )
    }
}
