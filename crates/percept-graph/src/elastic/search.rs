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
    /// Nanoseconds on this machine.
    Nanoseconds,
}

impl Unit {
    /// The cost in this unit.
    pub fn of(self, price: Price) -> u64 {
        match self {
            Self::Params => price.params,
            Self::Macs => price.macs,
            Self::Nanoseconds => price.nanoseconds,
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

/// What scores configurations for a search.
pub trait Scoring<E> {
    /// The score of a configuration; more is better.
    fn score(&mut self, choice: &Choice) -> Result<f64, E>;

    /// The search goes on from this one, which was scored: the next ones differ little from it.
    fn goes_on_from(&mut self, _: &Choice) -> Result<(), E> {
        Ok(())
    }
}

impl<E, F: FnMut(&Choice) -> Result<f64, E>> Scoring<E> for F {
    fn score(&mut self, choice: &Choice) -> Result<f64, E> {
        self(choice)
    }
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
        mut scoring: impl Scoring<E>,
    ) -> Result<Searched, E> {
        let mut scored: Vec<Scored> = Vec::new();
        let whole = self.axes.iter().map(|axis| axis.levels).collect();
        scored.push(self.scored(whole, &mut scoring)?);
        let mut path = vec![0];
        loop {
            let here = scored[path[path.len() - 1]].clone();
            scoring.goes_on_from(&self.choice(&here.levels))?;
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
                        scored.push(self.scored(levels, &mut scoring)?);
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

    fn scored<E>(&self, levels: Vec<usize>, by: &mut impl Scoring<E>) -> Result<Scored, E> {
        Ok(Scored {
            score: by.score(&self.choice(&levels))?,
            price: self.price(&levels),
            levels,
        })
    }

    /// Scores all these configurations, in order; the answer is the best of those within the budget.
    pub fn among<E>(
        &self,
        unit: Unit,
        budget: u64,
        configurations: Vec<Vec<usize>>,
        mut scoring: impl Scoring<E>,
    ) -> Result<Searched, E> {
        let mut scored: Vec<Scored> = Vec::with_capacity(configurations.len());
        for levels in configurations {
            let choice = self.choice(&levels);
            scored.push(self.scored(levels, &mut scoring)?);
            scoring.goes_on_from(&choice)?;
        }
        let within = (0..scored.len()).filter(|&at| unit.of(scored[at].price) <= budget);
        let best = within.max_by(|&a, &b| {
            let score = scored[a].score.total_cmp(&scored[b].score);
            // Of equally good ones the cheaper, then the first.
            let cost = |at: usize| unit.of(scored[at].price);
            score.then(cost(b).cmp(&cost(a))).then(b.cmp(&a))
        });
        Ok(Searched {
            path: best.into_iter().collect(),
            met: best.is_some(),
            scored,
        })
    }

    /// Every configuration of the axes that `may` names, others whole: the whole network first, the last axis changing fastest,
    /// so that neighbours share as much as they can. None where there are more than `most`.
    pub fn all_of(&self, may: impl Fn(&str) -> bool, most: usize) -> Option<Vec<Vec<usize>>> {
        let mut all = vec![Vec::new()];
        for axis in &self.axes {
            let lowest = if may(&axis.name) { 1 } else { axis.levels };
            let longer = all.iter().flat_map(|levels: &Vec<usize>| {
                (lowest..=axis.levels).rev().map(|level| {
                    let mut longer = levels.clone();
                    longer.push(level);
                    longer
                })
            });
            all = longer.take(most + 1).collect();
        }
        (all.len() <= most).then_some(all)
    }

    /// Those of them that never have a higher level before a lower one: the share of its levels that an axis is at does not
    /// fall with depth. Axes of one block (`fusion1.mid`, `fusion1.heads`) have one level.
    pub fn never_falling(&self, may: impl Fn(&str) -> bool) -> Vec<Vec<usize>> {
        let block = |axis: &str| axis.split('.').next().unwrap_or(axis).to_owned();
        // By the lowest share so far, and the block that it was chosen for.
        let mut all: Vec<(Vec<usize>, f64, String)> = vec![(Vec::new(), 0.0, String::new())];
        for axis in &self.axes {
            let name = block(&axis.name);
            let longer = all.iter().flat_map(|(levels, share, of)| {
                let moves = may(&axis.name);
                (1..=axis.levels).rev().filter_map({
                    let name = name.clone();
                    move |level| {
                        let own = level as f64 / axis.levels as f64;
                        let fits = match (moves, *of == name) {
                            (false, _) => level == axis.levels,
                            (true, true) => own == *share,
                            (true, false) => own >= *share,
                        };
                        let mut longer = levels.clone();
                        longer.push(level);
                        let (share, of) = match moves {
                            true => (own, name.clone()),
                            false => (*share, of.clone()),
                        };
                        fits.then_some((longer, share, of))
                    }
                })
            });
            all = longer.collect();
        }
        all.into_iter().map(|(levels, ..)| levels).collect()
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

    #[test]
    fn all_configurations_are_listed_and_the_best_within_the_budget_is_found() {
        let prices = prices();
        assert_eq!(prices.all_of(|_| true, 15), None);
        let all = prices.all_of(|_| true, 16).unwrap();
        assert_eq!(all.len(), 16);
        assert_eq!(all[..5], [[4, 4], [4, 3], [4, 2], [4, 1], [3, 4]]);
        let one = prices.all_of(|axis| axis == "second", 16).unwrap();
        assert_eq!(one, [[4, 4], [4, 3], [4, 2], [4, 1]]);
        let score = |choice: &Choice| -> Result<f64, Infallible> {
            let level = |axis| choice.level(axis).unwrap_or(4) as f64;
            Ok(level("first") + 100.0 * level("second"))
        };
        let found = prices.among(Unit::Macs, 110, all, score).unwrap();
        assert!(found.met && found.scored.len() == 16);
        assert_eq!(found.scored[found.path[0]].levels, [1, 4]);
    }

    #[test]
    fn levels_that_never_fall_with_depth() {
        let prices = prices();
        let all = prices.never_falling(|_| true);
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|levels| levels[0] <= levels[1]));
        let one = prices.never_falling(|axis| axis == "first");
        assert_eq!(one, [[4, 4], [3, 4], [2, 4], [1, 4]]);
    }

    #[test]
    fn times_add_up_by_the_axes_of_each_node() {
        // A node takes a nanosecond for each multiply-add.
        let measure = |choice: &Choice| -> Result<_, GraphError> {
            let graph = build(choice)?;
            let sizes = graph.bind(&[("x", vec![1, 8])])?;
            let costs = graph.costs(&sizes)?;
            let times = graph.nodes().iter().zip(costs);
            let times = times.map(|(node, cost)| (node.name.clone(), cost.macs.unwrap_or(0)));
            Ok(times.collect())
        };
        let timed = prices().timed(measure).unwrap();
        for levels in [[4, 4], [1, 4], [3, 2], [1, 1]] {
            let price = timed.price(&levels);
            assert_eq!(price.nanoseconds, price.macs, "{levels:?}");
        }
        // A search meets a latency, and no earlier step of it does.
        let score = |choice: &Choice| -> Result<f64, Infallible> {
            Ok(choice.level("second").unwrap_or(4) as f64)
        };
        let found = timed.greedy(Unit::Nanoseconds, 110, |_| true, score);
        let found = found.unwrap();
        let times = found
            .path
            .iter()
            .map(|at| found.scored[*at].price.nanoseconds);
        let times: Vec<u64> = times.collect();
        assert!(found.met);
        assert_eq!(times, [192, 160, 128, 96]);
        assert!(
            !timed
                .greedy(Unit::Nanoseconds, 1, |_| true, score)
                .unwrap()
                .met
        );
    }
}
