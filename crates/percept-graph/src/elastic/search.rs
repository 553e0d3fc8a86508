//! Mix'n'Match: which configuration of an elastic network is worth its price.
//!
//! Greedy: beginning with the whole network, every axis is tried one level lower; what loses the least score for each unit of
//! cost that it saves is kept, until the budget is met. Scores may be anything of which more is better.

use super::{Choice, Price, PriceList};

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Parameters.
    Params,
    /// Multiply-adds.
    Macs,
}

impl Unit {
    /// The cost in this unit.
    pub fn of(self, price: Price) -> u64 {
        match self {
            Self::Params => price.params,
            Self::Macs => price.macs,
        }
    }
}

/// A configuration that was scored.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Scored {
    /// A level of each axis, in the order of the price list.
    pub levels: Vec<usize>,
    pub price: Price,
    pub score: f64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Searched {
    /// Everything that was scored, in order; the first is the whole network.
    pub scored: Vec<Scored>,
    /// Positions of the configurations that were kept, from the whole network to the one within the budget.
    pub path: Vec<usize>,
    /// Whether the last of them is within the budget.
    pub met: bool,
}

impl PriceList {
    /// The choice of a level for each axis; whole axes are left out.
    pub fn choice(&self, levels: &[usize]) -> Choice {
        let pairs = self.axes.iter().zip(levels);
        let narrow = pairs.filter(|(axis, level)| axis.levels != **level);
        narrow.fold(Choice::whole(), |choice, (axis, &level)| {
            choice.with(&axis.name, level)
        })
    }

    /// Lowers levels of the axes that `may` names until the cost is at most `budget`, the least loss of score for what is saved
    /// first. `score` is asked once for each configuration.
    pub fn greedy<E>(
        &self,
        unit: Unit,
        budget: u64,
        may: impl Fn(&str) -> bool,
        mut score: impl FnMut(&Choice) -> Result<f64, E>,
    ) -> Result<Searched, E> {
        let mut scored: Vec<Scored> = Vec::new();
        let mut ask = |levels: Vec<usize>| -> Result<Scored, E> {
            Ok(Scored {
                score: score(&self.choice(&levels))?,
                price: self.price(&levels),
                levels,
            })
        };
        let whole = self.axes.iter().map(|axis| axis.levels).collect();
        scored.push(ask(whole)?);
        let mut path = vec![0];
        loop {
            let here = scored[path[path.len() - 1]].clone();
            if unit.of(here.price) <= budget {
                return Ok(Searched {
                    scored,
                    path,
                    met: true,
                });
            }
            let mut best: Option<(f64, usize)> = None;
            for axis in 0..self.axes.len() {
                if here.levels[axis] <= 1 || !may(&self.axes[axis].name) {
                    continue;
                }
                let mut levels = here.levels.clone();
                levels[axis] -= 1;
                let saved = unit
                    .of(here.price)
                    .saturating_sub(unit.of(self.price(&levels)));
                if saved == 0 {
                    continue;
                }
                let known = scored.iter().position(|known| known.levels == levels);
                let position = match known {
                    Some(position) => position,
                    None => {
                        scored.push(ask(levels)?);
                        scored.len() - 1
                    }
                };
                let loss = (here.score - scored[position].score) / saved as f64;
                // A score that is no number is the worst of all.
                let loss = if loss.is_nan() { f64::INFINITY } else { loss };
                if best.is_none_or(|(least, _)| loss < least) {
                    best = Some((loss, position));
                }
            }
            let Some((_, position)) = best else {
                return Ok(Searched {
                    scored,
                    path,
                    met: false,
                });
            };
            path.push(position);
        }
    }
}

impl Searched {
    /// The configurations that no other one beats in both score and cost, the cheapest first.
    pub fn front(&self, unit: Unit) -> Vec<&Scored> {
        let mut sorted: Vec<&Scored> = self.scored.iter().collect();
        sorted.sort_by(|a, b| {
            let cost = unit.of(a.price).cmp(&unit.of(b.price));
            cost.then(b.score.total_cmp(&a.score))
        });
        let mut front: Vec<&Scored> = Vec::new();
        for scored in sorted {
            if front.last().is_none_or(|best| scored.score > best.score) {
                front.push(scored);
            }
        }
        front
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::{Builder, Dim, Graph, GraphError, Linear};

    fn build(choice: &Choice) -> Result<Graph, GraphError> {
        let mut b = Builder::new("Two").choosing(choice);
        let x = b.input("x", [Dim::symbol("N"), 8.into()]);
        let [first, second] = ["first", "second"].map(|axis| b.axis(axis, 4).of(8));
        let y = b.leaf("a", Linear::new(8, first), &[x]);
        let y = b.leaf("b", Linear::new(first, second), &[y]);
        let y = b.leaf("c", Linear::new(second, 8), &[y]);
        b.output("y", y);
        b.finish()
    }

    fn prices() -> PriceList {
        PriceList::new(build, &[("x", vec![1, 8])]).unwrap()
    }

    #[test]
    fn the_axis_that_matters_less_shrinks_first() {
        let prices = prices();
        let whole = prices.price(&[4, 4]);
        assert_eq!(whole.macs, 3 * 64);
        // The second axis is worth a hundred times the first.
        let score = |choice: &Choice| -> Result<f64, Infallible> {
            let level = |axis| choice.level(axis).unwrap_or(4) as f64;
            Ok(level("first") + 100.0 * level("second"))
        };
        let found = prices.greedy(Unit::Macs, 110, |_| true, score).unwrap();
        let path: Vec<&[usize]> = found
            .path
            .iter()
            .map(|at| &found.scored[*at].levels[..])
            .collect();
        assert_eq!(path, [&[4, 4][..], &[3, 4], &[2, 4], &[1, 4]]);
        assert!(found.met);
        let last = &found.scored[found.path[3]];
        let graph = build(&prices.choice(&last.levels)).unwrap();
        let sizes = graph.bind(&[("x", vec![1, 8])]).unwrap();
        assert_eq!(last.price.macs, graph.total_macs(&sizes).unwrap());
        let front = found.front(Unit::Macs);
        assert!(front.is_sorted_by(|a, b| a.price.macs < b.price.macs && a.score < b.score));
        let none = prices
            .greedy(Unit::Macs, 0, |axis| axis == "first", score)
            .unwrap();
        assert!(!none.met);
        assert_eq!(none.path.len(), 4);
    }
}
