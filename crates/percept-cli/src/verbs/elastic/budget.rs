//! What a part may cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use percept_engine::{Options, Program, Recording, Run};
use percept_graph::{Choice, PartWeights, PriceList, Slicing, Tensor, Unit, WeightSource};
use percept_models::Model;
use percept_models::zoo::Entry;

use super::show::narrowed;
use crate::fail::{Blame, Result};
use crate::options::Common;

/// A cost, of all that the whole network has or as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub unit: Unit,
    cost: Cost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    Share(f64),
    Number(u64),
}

impl Budget {
    /// As a number, where the whole network costs `whole`.
    pub fn of(&self, whole: u64) -> u64 {
        match self.cost {
            Cost::Share(share) => (whole as f64 * share) as u64,
            Cost::Number(number) => number,
        }
    }
}

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no budget: expected params=90%, macs=70%, latency=20ms or a number"
            )
        };
        let (unit, cost) = text.split_once('=').ok_or_else(wrong)?;
        let unit = match unit {
            "params" => Unit::Params,
            "macs" => Unit::Macs,
            "latency" => Unit::Nanoseconds,
            _ => return Err(wrong()),
        };
        let number = |text: &str, most: f64| {
            let number = text.parse::<f64>().ok();
            number.filter(|number| (0.0..=most).contains(number))
        };
        let cost = match (cost.strip_suffix('%'), cost.strip_suffix("ms"), unit) {
            (Some(share), ..) => Cost::Share(number(share, 100.0).ok_or_else(wrong)? / 100.0),
            (None, Some(ms), Unit::Nanoseconds) => {
                Cost::Number((number(ms, 1e9).ok_or_else(wrong)? * 1e6) as u64)
            }
            (None, None, Unit::Params | Unit::Macs) => {
                Cost::Number(cost.parse().map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { unit, cost })
    }
}

/// Runs whose fastest counts.
const REPEATS: usize = 5;

/// The prices with the time of every node on this machine, at each level of its axes.
pub fn measured(
    prices: PriceList,
    entry: &Entry,
    model: &Model,
    weights: &Arc<dyn WeightSource>,
    inputs: &BTreeMap<String, Tensor<'static>>,
    common: &Common,
    options: Options,
) -> Result<PriceList> {
    prices.timed(|choice: &Choice| -> Result<BTreeMap<String, u64>> {
        let graph = narrowed(entry, model, choice).bug()?;
        let slicing = Slicing::between(&model.graph, &graph).bug()?;
        let part = PartWeights::new(Arc::clone(weights), slicing);
        let mut program = Program::new(graph, Arc::new(part), common.cpu()?, options);
        let inputs: Vec<(&str, &Tensor<'_>)> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        program.run(&inputs)?;
        let mut recording = Recording::default();
        for _ in 0..REPEATS {
            program.run_recorded(&inputs, Some(&mut recording))?;
        }
        let infos = program.step_infos(&recording.runs[0].bindings)?;
        let mut times: BTreeMap<usize, u64> = BTreeMap::new();
        for (step, elapsed) in recording.runs.iter().flat_map(Run::step_times) {
            let nanoseconds = elapsed.as_nanos() as u64;
            let least = times.entry(step).or_insert(nanoseconds);
            *least = nanoseconds.min(*least);
        }
        let named = infos
            .into_iter()
            .filter_map(|info| Some((info.name, *times.get(&info.step)?)));
        Ok(named.collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read() {
        let read = |text: &str| text.parse::<Budget>();
        assert_eq!(read("macs=70%").unwrap().of(1000), 700);
        assert_eq!(read("params=12345").unwrap().of(1), 12345);
        let latency = read("latency=2.5ms").unwrap();
        assert_eq!(
            (latency.unit, latency.of(1)),
            (Unit::Nanoseconds, 2_500_000)
        );
        assert_eq!(read("latency=50%").unwrap().of(10), 5);
        for wrong in [
            "macs",
            "macs=x",
            "macs=101%",
            "macs=5ms",
            "latency=5",
            "time=5ms",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
