//! Learning rates as functions of the step: nothing is carried from step to step.

use std::f64::consts::PI;

use percept_data::SettingError;
use serde::{Deserialize, Serialize};

/// The learning rate over a run: a linear warm-up, then a decay.
///
/// ```
/// use percept_train::{Decay, RunLength, Schedule};
/// let schedule = Schedule { rate: 0.1, decay: Decay::Cosine { floor: 0.0 }, ..Schedule::default() };
/// let length = RunLength { steps_per_epoch: 50, epochs: 10 };
/// assert_eq!(schedule.rate_at(0, &length), 0.1);
/// assert!((schedule.rate_at(250, &length) - 0.05).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// The rate after the warm-up and before any decay.
    pub rate: f64,
    /// How long the rate rises to that, in epochs.
    pub warmup_epochs: f64,
    /// The share of the rate that the warm-up begins with.
    pub warmup_from: f64,
    /// What follows.
    pub decay: Decay,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            rate: 1e-3,
            warmup_epochs: 0.0,
            warmup_from: 0.01,
            decay: Decay::Constant,
        }
    }
}

/// How a rate falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Decay {
    /// Not at all.
    #[default]
    Constant,
    /// By a factor, again and again.
    Step {
        /// Epochs between, counted from the beginning of the run.
        every_epochs: f64,
        /// What the rate is multiplied with.
        factor: f64,
    },
    /// Along half a wave, from the end of the warm-up to the end of the run.
    Cosine {
        /// The last rate.
        #[serde(default)]
        floor: f64,
    },
    /// Up and down once over the whole run, each along half a wave, with a momentum that goes the other way: the public
    /// CenterPoint's. It rises by itself, so no warm-up precedes it.
    OneCycle {
        /// The share of the run in which the rate rises.
        #[serde(default = "default_rise")]
        rise: f64,
        /// The share of the rate that it begins with.
        #[serde(default = "default_from")]
        from: f64,
        /// Momentum at the lowest rate and at the highest.
        #[serde(default = "default_momenta")]
        momenta: [f64; 2],
    },
}

fn default_rise() -> f64 {
    0.4
}

fn default_from() -> f64 {
    0.1
}

fn default_momenta() -> [f64; 2] {
    [0.95, 0.85]
}

/// How much lower than at its beginning the rate of a cycle ends.
const CYCLE_END: f64 = 1e-4;

/// From one value to another along half a wave.
fn half_wave(from: f64, to: f64, share: f64) -> f64 {
    to + (from - to) * 0.5 * (1.0 + libm::cos(PI * share))
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RunLength {
    pub steps_per_epoch: u64,
    pub epochs: u64,
}

/// Where a step stands in a cycle: the share of its rise, or of its fall.
enum Cycle {
    Rising(f64),
    Falling(f64),
}

fn cycle(step: f64, rise: f64, length: &RunLength) -> Cycle {
    let whole = (length.epochs * length.steps_per_epoch) as f64;
    let top = (rise * whole).floor();
    match step < top {
        true => Cycle::Rising(step / top),
        false => Cycle::Falling(((step - top) / (whole - top).max(1.0)).min(1.0)),
    }
}

impl Schedule {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), SettingError> {
        let positive = |v: f64| v > 0.0 && v.is_finite();
        let not_negative = |v: f64| v >= 0.0 && v.is_finite();
        SettingError::unless(positive(self.rate), "schedule.rate", self.rate, "above 0")?;
        let epochs = self.warmup_epochs;
        SettingError::unless(
            not_negative(epochs),
            "schedule.warmup_epochs",
            epochs,
            "0 or more",
        )?;
        let from = self.warmup_from;
        let is_share = (0.0..=1.0).contains(&from);
        SettingError::unless(is_share, "schedule.warmup_from", from, "0 to 1")?;
        match self.decay {
            Decay::Constant => Ok(()),
            Decay::Step {
                every_epochs,
                factor,
            } => {
                let is_fine = positive(every_epochs);
                SettingError::unless(
                    is_fine,
                    "schedule.decay.every_epochs",
                    every_epochs,
                    "above 0",
                )?;
                let is_fine = positive(factor);
                SettingError::unless(is_fine, "schedule.decay.factor", factor, "above 0")
            }
            Decay::Cosine { floor } => {
                let is_fine = (0.0..=self.rate).contains(&floor);
                SettingError::unless(is_fine, "schedule.decay.floor", floor, "0 to the rate")
            }
            Decay::OneCycle {
                rise,
                from,
                momenta,
            } => {
                let alone = epochs == 0.0;
                let none = "0, because a cycle rises by itself";
                SettingError::unless(alone, "schedule.warmup_epochs", epochs, none)?;
                let is_share = (0.0..=1.0).contains(&rise);
                SettingError::unless(is_share, "schedule.decay.rise", rise, "0 to 1")?;
                let is_share = (0.0..=1.0).contains(&from);
                SettingError::unless(is_share, "schedule.decay.from", from, "0 to 1")?;
                for momentum in momenta {
                    let is_fine = (0.0..1.0).contains(&momentum);
                    let setting = "schedule.decay.momenta";
                    SettingError::unless(is_fine, setting, momentum, "0 to below 1")?;
                }
                Ok(())
            }
        }
    }

    /// The rate of a step, counted from 0; behind the end of the run the last rate stays.
    pub fn rate_at(&self, step: u64, length: &RunLength) -> f64 {
        let steps_per_epoch = length.steps_per_epoch.max(1) as f64;
        let step = step as f64;
        let warmup = (self.warmup_epochs * steps_per_epoch).round();
        if step < warmup {
            let share = self.warmup_from + (1.0 - self.warmup_from) * (step / warmup);
            return self.rate * share;
        }
        match self.decay {
            Decay::Constant => self.rate,
            Decay::Step {
                every_epochs,
                factor,
            } => {
                let every = (every_epochs * steps_per_epoch).round().max(1.0);
                self.rate * libm::pow(factor, (step / every).floor())
            }
            Decay::Cosine { floor } => {
                let whole = length.epochs as f64 * steps_per_epoch - warmup;
                let share = ((step - warmup) / whole.max(1.0)).min(1.0);
                half_wave(self.rate, floor, share)
            }
            Decay::OneCycle { rise, from, .. } => {
                let low = from * self.rate;
                match cycle(step, rise, length) {
                    Cycle::Rising(share) => half_wave(low, self.rate, share),
                    Cycle::Falling(share) => half_wave(self.rate, CYCLE_END * low, share),
                }
            }
        }
    }

    /// The momentum of a step, where the schedule moves it.
    pub fn momentum_at(&self, step: u64, length: &RunLength) -> Option<f64> {
        let Decay::OneCycle { rise, momenta, .. } = self.decay else {
            return None;
        };
        let [slow, fast] = momenta;
        Some(match cycle(step as f64, rise, length) {
            Cycle::Rising(share) => half_wave(slow, fast, share),
            Cycle::Falling(share) => half_wave(fast, slow, share),
        })
    }

    /// Whether each step has a momentum of its own.
    pub fn brings_momentum(&self) -> bool {
        matches!(self.decay, Decay::OneCycle { .. })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: RunLength = RunLength {
        steps_per_epoch: 10,
        epochs: 10,
    };

    fn assert_rates(schedule: &Schedule, rates: &[(u64, f64)]) {
        for &(step, expected) in rates {
            let got = schedule.rate_at(step, &LENGTH);
            assert!(
                (got - expected).abs() < 1e-12,
                "step {step}: {got}, expected {expected}"
            );
        }
    }

    /// PyTorch 2.15: `LinearLR` then `CosineAnnealingLR` in a `SequentialLR`, and `StepLR`.
    #[test]
    fn rates_equal_pytorch() {
        let cosine = Schedule {
            rate: 0.1,
            warmup_epochs: 1.0,
            warmup_from: 0.01,
            decay: Decay::Cosine { floor: 0.001 },
        };
        assert_rates(
            &cosine,
            &[
                (0, 0.001),
                (3, 0.0307),
                (9, 0.0901),
                (10, 0.1),
                (11, 0.09996984593744525),
                (37, 0.07959536998847747),
                (99, 0.00103015406255476),
                (100, 0.001),
                (u64::MAX, 0.001),
            ],
        );
        let step = Schedule {
            rate: 0.1,
            decay: Decay::Step {
                every_epochs: 3.0,
                factor: 0.1,
            },
            ..Schedule::default()
        };
        assert_rates(
            &step,
            &[
                (0, 0.1),
                (29, 0.1),
                (30, 0.01),
                (59, 0.01),
                (60, 0.001),
                (99, 0.0001),
            ],
        );
        assert_rates(&Schedule::default(), &[(0, 1e-3), (1_000_000, 1e-3)]);
    }

    /// fastai's cycle as OpenPCDet has it: from a tenth of the rate over 0.4 of the run, then down to a 100,000th.
    #[test]
    fn a_cycle_rises_and_falls_and_momentum_goes_the_other_way() {
        let schedule: Schedule = toml::from_str("rate = 0.1\ndecay.kind = 'onecycle'").unwrap();
        assert!(schedule.check().is_ok() && schedule.brings_momentum());
        let lowest = 1e-6;
        assert_rates(
            &schedule,
            &[
                (0, 0.01),
                (20, 0.055),
                (40, 0.1),
                (70, 0.5 * (0.1 + lowest)),
                (100, lowest),
                (u64::MAX, lowest),
            ],
        );
        let momentum = |step| schedule.momentum_at(step, &LENGTH).unwrap();
        for (step, expected) in [(0, 0.95), (20, 0.9), (40, 0.85), (70, 0.9), (100, 0.95)] {
            assert!((momentum(step) - expected).abs() < 1e-12, "step {step}");
        }
        assert_eq!(Schedule::default().momentum_at(0, &LENGTH), None);
    }

    #[test]
    fn schedules_are_pleasant_in_toml() {
        let text = "
            rate = 0.05
            warmup_epochs = 0.5
            decay = { kind = 'step', every_epochs = 30, factor = 0.1 }
        ";
        let schedule: Schedule = toml::from_str(text).unwrap();
        assert_eq!((schedule.rate, schedule.warmup_from), (0.05, 0.01));
        let decay = Decay::Step {
            every_epochs: 30.0,
            factor: 0.1,
        };
        assert_eq!(schedule.decay, decay);
        let back: Schedule = toml::from_str(&toml::to_string(&schedule).unwrap()).unwrap();
        assert_eq!(back, schedule);
        let cosine: Schedule = toml::from_str("decay.kind = 'cosine'").unwrap();
        assert_eq!(cosine.decay, Decay::Cosine { floor: 0.0 });
        assert!(toml::from_str::<Schedule>("warmup = 3").is_err());
        assert!(toml::from_str::<Schedule>("decay = { kind = 'cosine', flor = 1 }").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |text: &str| {
            let schedule: Schedule = toml::from_str(text).unwrap();
            schedule.check().unwrap_err().to_string()
        };
        assert_eq!(error("rate = 0"), "schedule.rate is 0.0: expected above 0");
        assert!(error("rate = nan").starts_with("schedule.rate is NaN"));
        assert!(error("warmup_epochs = -1").starts_with("schedule.warmup_epochs"));
        assert!(error("warmup_from = 2").starts_with("schedule.warmup_from"));
        assert!(
            error("decay = { kind = 'cosine', floor = 1 }")
                .contains("floor is 1.0: expected 0 to the rate")
        );
        assert!(
            error("decay = { kind = 'step', every_epochs = 0, factor = 1 }")
                .contains("every_epochs")
        );
        assert!(
            error("decay = { kind = 'step', every_epochs = 1, factor = -1 }").contains("factor")
        );
        assert!(error("warmup_epochs = 1\ndecay.kind = 'onecycle'").contains("rises by itself"));
        assert!(error("decay = { kind = 'onecycle', rise = 2 }").contains("rise is 2"));
        let momenta = "decay = { kind = 'onecycle', momenta = [0.9, 1.0] }";
        assert!(error(momenta).contains("momenta is 1.0"));
        assert!(Schedule::default().check().is_ok());
    }

    proptest! {
        #[test]
        fn rates_stay_between_nothing_and_the_rate(
            step in any::<u64>(),
            steps_per_epoch in 0u64..1000,
            epochs in 0u64..100,
            warmup_epochs in 0.0..20.0,
            floor in 0.0..0.1,
            every_epochs in 0.001..50.0,
        ) {
            let length = RunLength { steps_per_epoch, epochs };
            let decays = [Decay::Constant, Decay::Cosine { floor }, Decay::Step { every_epochs, factor: 0.5 }];
            for decay in decays {
                let schedule = Schedule { rate: 0.1, warmup_epochs, decay, ..Schedule::default() };
                prop_assert!(schedule.check().is_ok());
                for step in [step, step % 10_000] {
                    let rate = schedule.rate_at(step, &length);
                    prop_assert!((0.0..=0.1 + 1e-15).contains(&rate), "{schedule:?} {step}: {rate}");
                }
            }
        }
    }
}
