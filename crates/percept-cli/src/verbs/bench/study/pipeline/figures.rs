//! What was measured, and the tree that follows from it.

use std::collections::BTreeMap;

use percept_models::study::pipeline::{
    Cost, Feed, Figure, Form, Kept, PipelineStudy, Stage, Writing,
};
use percept_report::{bytes, milliseconds, percent};
use percept_train::TrainConfig;
use serde_json::{Value, json};

/// A measured amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Ms(f64),
    Bytes(u64),
    Share(f64),
    PerSecond(f64),
    Difference(f64),
}

/// Everything that was measured. What a network does not have is not there.
#[derive(Default)]
pub struct Measurements {
    pub figures: BTreeMap<Figure, Amount>,
    /// Of an inference, for one sample: milliseconds of each component, and of what belongs to none.
    pub inference: Vec<f64>,
    /// The same of the forward pass of a training step.
    pub forward: Vec<f64>,
    pub backward_ms: f64,
    pub update_ms: f64,
}

/// The ways of a sample: inference and training, each with features made and kept.
pub const PASSES: [&str; 4] = [
    "inference, features made",
    "inference, kept",
    "training, features made",
    "training, kept",
];

/// A stage with its milliseconds in each of the passes.
pub struct Branch {
    pub name: &'static str,
    pub ms: [Option<f64>; 4],
}

impl Measurements {
    pub fn set(&mut self, figure: Figure, amount: Amount) {
        self.figures.insert(figure, amount);
    }

    pub fn get(&self, figure: Figure) -> Option<Amount> {
        match figure {
            Figure::Pieces(names) => {
                let pieces = names.iter().map(|name| self.ms(Figure::Piece(name)));
                Some(Amount::Ms(pieces.sum()))
            }
            figure => self.figures.get(&figure).copied(),
        }
    }

    fn ms(&self, figure: Figure) -> f64 {
        match self.get(figure) {
            Some(Amount::Ms(ms)) => ms,
            _ => 0.0,
        }
    }

    /// What each stage takes, and what of the network belongs to none.
    pub fn tree(&self, study: &PipelineStudy, config: &TrainConfig) -> Vec<Branch> {
        let mut tree: Vec<Branch> = study
            .stages
            .iter()
            .map(|stage| Branch {
                name: stage.name,
                ms: self.passes(stage, config),
            })
            .collect();
        let rest = |parts: &[f64]| parts.last().copied();
        let [inference, forward] = [rest(&self.inference), rest(&self.forward)];
        tree.push(Branch {
            name: "other parts of the network",
            ms: [inference, inference, forward, forward],
        });
        tree
    }

    /// What a training waits for its data, by the clock, while other threads do what the tree tells of.
    pub fn waiting(&self) -> Branch {
        let of = |feed| match [Figure::Waiting(feed), Figure::Pace(feed)].map(|f| self.get(f)) {
            [Some(Amount::Share(share)), Some(Amount::PerSecond(pace))] => Some(1e3 * share / pace),
            _ => None,
        };
        Branch {
            name: "waiting for data, by the clock",
            ms: [None, None, of(Feed::Made), of(Feed::AllWorkers)],
        }
    }

    fn passes(&self, stage: &Stage, config: &TrainConfig) -> [Option<f64>; 4] {
        let of = |inference: f64, training: f64| [inference, inference, training, training];
        let mut ms = match stage.cost {
            Cost::Piece(name) => [self.ms(Figure::Piece(name)); 4],
            Cost::Features => {
                let made = self.ms(Figure::FeaturesMade);
                let read = self.ms(Figure::FeaturesRead(Kept::F16));
                [made, read, made, read]
            }
            Cost::Component(at) => of(self.inference[at], self.forward[at]),
            Cost::Backward => of(0.0, self.backward_ms),
            Cost::Update => of(0.0, self.update_ms),
            Cost::Checkpoint => {
                let every_ms = 1e3 * config.checkpoint.every_seconds.unwrap_or(f64::INFINITY);
                let written = self.ms(Figure::Checkpoint(Writing::Aside));
                let of_time = written / every_ms * self.ms(Figure::Step(Form::Whole));
                of(0.0, of_time)
            }
        }
        .map(Some);
        if stage.is_training {
            ms[..2].fill(None);
        }
        ms
    }
}

impl Amount {
    /// As people read it.
    pub fn text(self) -> String {
        match self {
            Amount::Ms(ms) => format!("{} ms", milliseconds(ms)),
            Amount::Bytes(count) => bytes(count),
            Amount::Share(share) => percent(share),
            Amount::PerSecond(rate) => format!("{rate:.2} /s"),
            Amount::Difference(difference) => format!("{difference:.1e}"),
        }
    }

    /// What the second is, held against the first.
    pub fn change_to(self, after: Amount) -> String {
        let (before, after) = match (self, after) {
            (Amount::Ms(before), Amount::Ms(after)) => (before, after),
            (Amount::Bytes(before), Amount::Bytes(after)) => (before as f64, after as f64),
            // More of a pace is less of the time.
            (Amount::PerSecond(before), Amount::PerSecond(after)) => (after, before),
            _ => return String::new(),
        };
        match before / after {
            ratio if !ratio.is_finite() || ratio == 0.0 => String::new(),
            ratio if (0.995..1.005).contains(&ratio) => "the same".to_owned(),
            ratio if ratio >= 1.2 => format!("{ratio:.1}x better"),
            ratio if ratio > 1.0 => format!("{} better", percent(1.0 - 1.0 / ratio)),
            ratio if 1.0 / ratio < 1.2 => format!("{} worse", percent(1.0 / ratio - 1.0)),
            ratio => format!("{:.1}x worse", 1.0 / ratio),
        }
    }

    pub fn record(self) -> Value {
        match self {
            Amount::Ms(ms) => json!({"ms": ms}),
            Amount::Bytes(bytes) => json!({"bytes": bytes}),
            Amount::Share(share) => json!({"share": share}),
            Amount::PerSecond(rate) => json!({"per_s": rate}),
            Amount::Difference(difference) => json!({"difference": difference}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_by_what_they_cost() {
        let ms = Amount::Ms;
        assert_eq!(ms(10.0).change_to(ms(4.0)), "2.5x better");
        assert_eq!(ms(4.0).change_to(ms(10.0)), "2.5x worse");
        assert_eq!(ms(10.0).change_to(ms(10.02)), "the same");
        assert_eq!(ms(10.0).change_to(ms(10.4)), "4.0 % worse");
        assert_eq!(ms(10.0).change_to(ms(9.0)), "10.0 % better");
        let pace = Amount::PerSecond;
        assert_eq!(pace(2.0).change_to(pace(8.0)), "4.0x better");
        assert_eq!(ms(1.0).change_to(Amount::Bytes(1)), "");
        assert_eq!(ms(0.0).change_to(ms(0.0)), "");
    }
}
