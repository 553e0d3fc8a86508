//! The layers that gain most for what they cost, within what may be lost.

use std::fmt;
use std::str::FromStr;

use percept_engine::PrecisionPlan;

use crate::{LayerSensitivity, TuneError};

/// What a network may lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Signal to noise at the outputs must stay at least this, in decibels.
    Sqnr(f64),
    /// Points of the network's own metric that may be lost.
    Metric(f64),
}

impl Budget {
    /// Whether what was measured is allowed: decibels of a [`Budget::Sqnr`], points lost of a [`Budget::Metric`].
    pub fn allows(&self, measured: f64) -> bool {
        match *self {
            Budget::Sqnr(least) => measured >= least,
            Budget::Metric(most) => measured <= most,
        }
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected sqnr=30dB or metric=-0.5".to_owned();
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        match text.split_once('=') {
            Some(("sqnr", db)) => {
                let bare = ["dB", "db"].iter().find_map(|unit| db.strip_suffix(unit));
                number(bare.unwrap_or(db)).map(Self::Sqnr).ok_or_else(wrong)
            }
            Some(("metric", points)) => number(points)
                .map(|n| Self::Metric(n.abs()))
                .ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Sqnr(db) => write!(f, "sqnr={db}dB"),
            Budget::Metric(points) => write!(f, "metric=-{points}"),
        }
    }
}

/// How a budget was spent.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Spent {
    pub plan: PrecisionPlan,
    /// Layers in integers, those that gain most for their noise first.
    pub taken: Vec<String>,
    /// Layers that would have gained, and cost too much.
    pub refused: Vec<String>,
    /// Layers that gain nothing in integers.
    pub without_gain: Vec<String>,
    /// What the plan was measured at.
    pub measured: f64,
    /// How many plans were measured.
    pub trials: usize,
}

/// Layers by what `gain` says they gain for the noise that they bring, as many as `measure` finds within the budget. The number is
/// found by bisection, so that the same figures give the same plan.
pub fn within_budget(
    layers: &[LayerSensitivity],
    gain: impl Fn(&LayerSensitivity) -> f64,
    budget: Budget,
    mut measure: impl FnMut(&PrecisionPlan) -> Result<f64, TuneError>,
) -> Result<Spent, TuneError> {
    let (mut paying, idle): (Vec<_>, Vec<_>) = layers.iter().partition(|layer| gain(layer) > 0.0);
    let noise = |layer: &LayerSensitivity| 10f64.powf(-layer.network_db / 10.0).max(1e-12);
    let worth = |layer: &LayerSensitivity| gain(layer) / noise(layer);
    paying.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.name.cmp(&b.name)));
    let plan_of = |count: usize| {
        let taken = paying[..count].iter();
        taken.fold(PrecisionPlan::new(), |plan, layer| {
            plan.with(&layer.name, layer.grids)
        })
    };
    let mut trials = 0;
    let mut try_out = |count: usize| -> Result<f64, TuneError> {
        trials += 1;
        measure(&plan_of(count))
    };
    let all = paying.len();
    let mut best = (0, try_out(0)?);
    let whole = if all > 0 { try_out(all)? } else { best.1 };
    if budget.allows(whole) {
        best = (all, whole);
    } else {
        // Everything up to `best` is allowed, and `beyond` is not.
        let mut beyond = all;
        while beyond - best.0 > 1 {
            let middle = best.0.midpoint(beyond);
            let measured = try_out(middle)?;
            match budget.allows(measured) {
                true => best = (middle, measured),
                false => beyond = middle,
            }
        }
    }
    let (count, measured) = best;
    let names = |layers: &[&LayerSensitivity]| -> Vec<String> {
        layers.iter().map(|layer| layer.name.clone()).collect()
    };
    Ok(Spent {
        plan: plan_of(count),
        taken: names(&paying[..count]),
        refused: names(&paying[count..]),
        without_gain: names(&idle),
        measured,
        trials,
    })
}

#[cfg(test)]
mod tests {
    use percept_engine::Quantization;

    use super::*;

    fn layer(name: &str, saved_ms: f64, network_db: f64) -> LayerSensitivity {
        LayerSensitivity {
            name: name.to_owned(),
            kind: "Conv2d",
            grids: Quantization::dynamic(8),
            own_db: network_db,
            network_db,
            float_ms: 10.0,
            integer_ms: 10.0 - saved_ms,
            float_bytes: 400,
            integer_bytes: 104,
            metric_loss: None,
            remedies: Vec::new(),
        }
    }

    /// The noise of all layers of a plan, as if it added up.
    fn measured(layers: &[LayerSensitivity], plan: &PrecisionPlan) -> f64 {
        let taken = layers
            .iter()
            .filter(|layer| plan.quantization(&layer.name).is_some());
        let noise: f64 = taken
            .map(|layer| 10f64.powf(-layer.network_db / 10.0))
            .sum();
        if noise > 0.0 {
            -10.0 * noise.log10()
        } else {
            f64::INFINITY
        }
    }

    #[test]
    fn layers_that_gain_most_for_their_noise_are_taken_first() {
        let layers = [
            layer("noisy", 5.0, 20.0),
            layer("cheap", 1.0, 50.0),
            layer("slow", -1.0, 60.0),
            layer("big", 6.0, 40.0),
        ];
        let spend = |db: f64| {
            let measure = |plan: &PrecisionPlan| Ok(measured(&layers, plan));
            within_budget(
                &layers,
                LayerSensitivity::saved_ms,
                Budget::Sqnr(db),
                measure,
            )
            .unwrap()
        };
        let spent = spend(30.0);
        assert_eq!(spent.taken, ["cheap", "big"]);
        assert_eq!(spent.refused, ["noisy"]);
        assert_eq!(spent.without_gain, ["slow"]);
        assert!(spent.measured >= 30.0);
        assert_eq!(spend(10.0).taken, ["cheap", "big", "noisy"]);
        let nothing = spend(90.0);
        assert!(nothing.taken.is_empty() && nothing.plan.is_float());
        assert_eq!(spend(30.0).taken, spend(30.0).taken);
    }

    #[test]
    fn budgets_are_read_as_people_write_them() {
        assert_eq!("sqnr=30dB".parse(), Ok(Budget::Sqnr(30.0)));
        assert_eq!("sqnr=28.5".parse(), Ok(Budget::Sqnr(28.5)));
        assert_eq!("metric=-0.5".parse(), Ok(Budget::Metric(0.5)));
        for wrong in [
            "30",
            "sqnr=",
            "metric=x",
            "loss=3",
            "sqnr=nan",
            "sqnr=30dBdB",
        ] {
            assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
        }
        assert!(Budget::Metric(0.5).allows(0.4) && !Budget::Metric(0.5).allows(f64::NAN));
    }
}
