//! The layers that gain most for what they cost, within what may be lost.

use std::collections::BTreeMap;
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

/// Layers that are taken or left together.
struct Unit<'a> {
    layers: Vec<&'a LayerSensitivity>,
    gain: f64,
    /// What they gain for the noise that they bring.
    worth: f64,
}

impl<'a> Unit<'a> {
    fn new(
        layers: Vec<&'a LayerSensitivity>,
        gain: &impl Fn(&LayerSensitivity) -> f64,
    ) -> Unit<'a> {
        let noise = |layer: &&LayerSensitivity| 10f64.powf(-layer.network_db / 10.0).max(1e-12);
        let gain: f64 = layers.iter().map(|layer| gain(layer)).sum();
        let noise: f64 = layers.iter().map(noise).sum();
        Unit {
            layers,
            gain,
            worth: gain / noise,
        }
    }
}

fn layers_of<'a>(units: &[Unit<'a>]) -> impl Iterator<Item = &'a LayerSensitivity> {
    units.iter().flat_map(|unit| unit.layers.iter().copied())
}

/// Layers by what `gain` says they gain for the noise that they bring, as many as `measure` finds within the budget; those of a unit
/// together. The number is found by bisection, so that the same figures give the same plan.
pub fn within_budget(
    layers: &[LayerSensitivity],
    gain: impl Fn(&LayerSensitivity) -> f64,
    budget: Budget,
    mut measure: impl FnMut(&PrecisionPlan) -> Result<f64, TuneError>,
) -> Result<Spent, TuneError> {
    let mut units: BTreeMap<usize, Vec<&LayerSensitivity>> = BTreeMap::new();
    for layer in layers {
        units.entry(layer.unit).or_default().push(layer);
    }
    let units = units.into_values().map(|layers| Unit::new(layers, &gain));
    let (mut paying, idle): (Vec<_>, Vec<_>) = units.partition(|unit| unit.gain > 0.0);
    let name = |unit: &Unit<'_>| unit.layers[0].name.clone();
    paying.sort_by(|a, b| b.worth.total_cmp(&a.worth).then(name(a).cmp(&name(b))));
    let plan_of = |count: usize| {
        layers_of(&paying[..count]).fold(PrecisionPlan::new(), |plan, layer| {
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
    let names = |units: &[Unit<'_>]| -> Vec<String> {
        let layers = layers_of(units);
        layers.map(|layer| layer.name.clone()).collect()
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

    fn layer(unit: usize, name: &str, saved_ms: f64, network_db: f64) -> LayerSensitivity {
        LayerSensitivity {
            unit,
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
            layer(0, "noisy", 5.0, 20.0),
            layer(1, "cheap", 1.0, 50.0),
            layer(2, "slow", -1.0, 60.0),
            layer(3, "big", 6.0, 40.0),
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

    /// What floats compute in one step is not torn apart for a layer of it that gains.
    #[test]
    fn layers_of_a_unit_are_taken_or_left_together() {
        let layers = [
            layer(7, "fused", 4.0, 60.0),
            layer(7, "torn", -5.0, 60.0),
            layer(8, "pair", 3.0, 60.0),
            layer(8, "of two", -1.0, 60.0),
        ];
        let measure = |plan: &PrecisionPlan| Ok(measured(&layers, plan));
        let gain = LayerSensitivity::saved_ms;
        let spent = within_budget(&layers, gain, Budget::Sqnr(30.0), measure).unwrap();
        assert_eq!(spent.taken, ["pair", "of two"]);
        assert_eq!(spent.without_gain, ["fused", "torn"]);
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
