//! Elastic widths: many networks in one set of weights.
//!
//! A builder declares an **axis** once ([`Builder::axis`](crate::Builder::axis)) and takes its widths from it. A [`Choice`] of
//! levels then builds the narrow network itself, whose parameters are the leading parts of the whole one's: a [`Slicing`] says
//! which, from the two graphs alone. Nothing else knows of axes: counting, running, exporting and training see a graph.

mod part_weights;
mod rest;
mod search;

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::{Graph, Parameter};
use crate::{Bindings, Dim, GraphError};

pub use part_weights::PartWeights;
pub use search::{Scored, Scoring, Searched, Unit};

/// A width that can be chosen, shared by all layers whose parameters it slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name, such as `fusion1.mid`.
    pub name: String,
    /// How many levels it has; the last is the whole width.
    pub levels: usize,
    /// The level of this graph, 1 to `levels`.
    pub level: usize,
}

/// The level of an axis, which makes widths of widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub(crate) level: usize,
    pub(crate) levels: usize,
}

impl Level {
    /// This share of a width, rounded up.
    pub fn of(self, width: usize) -> usize {
        (width * self.level).div_ceil(self.levels)
    }

    /// This share of a size that inputs decide, rounded down.
    pub fn of_size(self, size: &Dim) -> Dim {
        match self.is_whole() {
            true => size.clone(),
            false => (size.clone() * self.level).floor_div(self.levels as i64),
        }
    }

    /// Whether it is the last: all of it.
    pub fn is_whole(self) -> bool {
        self.level == self.levels
    }
}

/// A level for each axis; an axis that is not named keeps its whole width.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    levels: BTreeMap<String, usize>,
}

impl Choice {
    /// Every axis whole.
    pub fn whole() -> Self {
        Self::default()
    }

    /// The same with another level of one axis.
    pub fn with(mut self, axis: impl Into<String>, level: usize) -> Self {
        self.levels.insert(axis.into(), level);
        self
    }

    /// The level of an axis, where it is chosen.
    pub fn level(&self, axis: &str) -> Option<usize> {
        self.levels.get(axis).copied()
    }

    /// The axes that are named.
    pub fn axes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.levels
            .iter()
            .map(|(name, level)| (name.as_str(), *level))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels.is_empty() {
            return f.write_str("whole");
        }
        let levels: Vec<String> = self.axes().map(|(name, l)| format!("{name}={l}")).collect();
        f.write_str(&levels.join(","))
    }
}

/// Which part of each parameter of a whole network a narrow one has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slicing {
    parts: BTreeMap<String, Part>,
    /// What the narrow network's own statistics are called.
    label: Option<String>,
}

/// What separates a buffer's name from the part whose it is.
pub const PART_SEPARATOR: char = '@';

/// What the running statistics of a part are called beside those of the whole network: `bn1.running_mean@2244`, with the level of
/// each axis.
pub fn statistics_of_part(name: &str, label: &str) -> String {
    format!("{name}{PART_SEPARATOR}{label}")
}

impl Graph {
    /// The levels of all axes, a digit each or with dots between them; none of a whole network. Also an axis that cuts no
    /// parameter, such as a picture's height, changes what is normalised.
    pub(crate) fn level_label(&self) -> Option<String> {
        let is_narrow = self.axes.iter().any(|axis| axis.level != axis.levels);
        let between = if self.axes.iter().all(|axis| axis.levels < 10) {
            ""
        } else {
            "."
        };
        let levels = self.axes.iter().map(|axis| axis.level.to_string());
        is_narrow.then(|| levels.collect::<Vec<_>>().join(between))
    }
}

/// The leading part of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The whole parameter's shape.
    pub whole: Vec<usize>,
    /// The narrow one's.
    pub narrow: Vec<usize>,
    /// Factors of the whole shape, one behind the other, and how many of each are kept: an axis that is a product, such as
    /// features x clusters, is cut within.
    factors: Vec<[usize; 2]>,
}

impl Part {
    fn of(whole: &Parameter, narrow: &Parameter) -> Option<Self> {
        let (outer, inner) = (whole.factors(), narrow.factors());
        let paired = outer.iter().zip(&inner);
        let fits = outer.len() == inner.len() && paired.clone().all(|(a, b)| b <= a);
        fits.then(|| Self {
            whole: whole.shape.clone(),
            narrow: narrow.shape.clone(),
            factors: paired.map(|(&a, &b)| [a, b]).collect(),
        })
    }

    /// The values of the part, in its own order.
    pub fn take<T: Copy>(&self, whole: &[T]) -> Vec<T> {
        self.places().map(|place| whole[place]).collect()
    }

    /// Where the part's values stand in the whole.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let kept = self.factors.iter().map(|[_, kept]| kept);
        (0..kept.product()).map(|index: usize| {
            let (mut index, mut place, mut stride) = (index, 0, 1);
            for [whole, kept] in self.factors.iter().rev() {
                place += index % kept * stride;
                index /= kept;
                stride *= whole;
            }
            place
        })
    }

    /// What remains to be cut, as [whole, kept] of each factor.
    pub fn factors(&self) -> &[[usize; 2]] {
        &self.factors
    }
}

impl Slicing {
    /// From a network to a narrower one of the same names.
    pub fn between(whole: &Graph, narrow: &Graph) -> Result<Self, GraphError> {
        let known: BTreeMap<&str, &Parameter> = whole
            .params()
            .iter()
            .map(|param| (param.name.as_str(), param))
            .collect();
        let mut parts = BTreeMap::new();
        for param in narrow.params() {
            let part = known
                .get(param.name.as_str())
                .and_then(|whole| Part::of(whole, param));
            let part = part.ok_or_else(|| GraphError::NotAPart {
                name: param.name.clone(),
            })?;
            if part.whole != part.narrow {
                parts.insert(param.name.clone(), part);
            }
        }
        let label = narrow.level_label();
        Ok(Self { parts, label })
    }

    /// What weights call a tensor of the narrow network's own, such as running statistics.
    pub fn own_name(&self, name: &str) -> Option<String> {
        let label = self.label.as_ref()?;
        Some(statistics_of_part(name, label))
    }

    /// The part of a parameter; none where all of it is kept.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.get(name)
    }

    /// Whether every parameter is kept whole.
    pub fn is_whole(&self) -> bool {
        self.parts.is_empty()
    }
}

/// What a configuration costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Price {
    pub params: u64,
    pub macs: u64,
    /// What it takes on this machine; 0 where nobody measured it ([`PriceList::timed`]).
    pub nanoseconds: u64,
}

impl std::ops::Add for Price {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            params: self.params + other.params,
            macs: self.macs + other.macs,
            nanoseconds: self.nanoseconds + other.nanoseconds,
        }
    }
}

/// The exact parameters and multiply-adds of every configuration, without building each: a node costs what its own axes say,
/// so the nodes are grouped by the axes that they depend on, and each group is priced at all levels of those.
#[derive(Clone, Debug)]
pub struct PriceList {
    axes: Vec<Axis>,
    /// What depends on no axis.
    fixed: Price,
    fixed_nodes: Vec<String>,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    /// Positions among the axes.
    axes: Vec<usize>,
    nodes: Vec<String>,
    /// By level of the first axis, then of the next.
    prices: Vec<Price>,
}

impl Group {
    /// The configuration whose price stands at `index`: other axes are whole.
    fn choice(&self, axes: &[Axis], index: usize) -> Choice {
        let (mut rest, mut choice) = (index, Choice::whole());
        for &axis in self.axes.iter().rev() {
            choice = choice.with(&axes[axis].name, rest % axes[axis].levels + 1);
            rest /= axes[axis].levels;
        }
        choice
    }
}

/// What a node costs, and how many numbers it gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodePrice {
    price: Price,
    elements: usize,
}

impl PriceList {
    /// Prices what `build` makes, for inputs of these shapes.
    pub fn new(
        build: impl Fn(&Choice) -> Result<Graph, GraphError>,
        shapes: &[(&str, Vec<usize>)],
    ) -> Result<Self, GraphError> {
        let whole = build(&Choice::whole())?;
        let axes = whole.axes().to_vec();
        let prices = |choice: &Choice| -> Result<BTreeMap<String, NodePrice>, GraphError> {
            let graph = build(choice)?;
            let sizes = graph.bind(shapes)?;
            node_prices(&graph, &sizes)
        };
        let of_whole = prices(&Choice::whole())?;
        // An axis is a node's own when its smallest level changes what the node costs or how much it gives; a node may be
        // there at some levels only.
        let mut own: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for name in of_whole.keys() {
            own.insert(name.clone(), Vec::new());
        }
        for (position, axis) in axes.iter().enumerate().filter(|(_, a)| a.levels > 1) {
            let narrow = prices(&Choice::whole().with(&axis.name, 1))?;
            for name in of_whole.keys().chain(narrow.keys()) {
                let known = own.entry(name.clone()).or_default();
                if of_whole.get(name) != narrow.get(name) && known.last() != Some(&position) {
                    known.push(position);
                }
            }
        }
        let (mut fixed, mut fixed_nodes) = (Price::default(), Vec::new());
        let mut by_axes: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
        for (node, own) in own {
            match own.is_empty() {
                true => {
                    fixed = fixed + of_whole[&node].price;
                    fixed_nodes.push(node);
                }
                false => by_axes.entry(own).or_default().push(node),
            }
        }
        let mut groups = Vec::new();
        for (own, nodes) in by_axes {
            let count: usize = own.iter().map(|&axis| axes[axis].levels).product();
            let mut group = Group {
                prices: Vec::with_capacity(count),
                axes: own,
                nodes,
            };
            for index in 0..count {
                let prices = prices(&group.choice(&axes, index))?;
                let nodes = group.nodes.iter();
                let sum = nodes.filter_map(|node| Some(prices.get(node)?.price));
                group.prices.push(sum.fold(Price::default(), |a, b| a + b));
            }
            groups.push(group);
        }
        Ok(Self {
            axes,
            fixed,
            fixed_nodes,
            groups,
        })
    }

    /// The same with times, as `measure` tells them: nanoseconds of the nodes of a configuration, by name. A node takes what
    /// its own axes say, whatever the others are at.
    pub fn timed<E>(
        mut self,
        mut measure: impl FnMut(&Choice) -> Result<BTreeMap<String, u64>, E>,
    ) -> Result<Self, E> {
        let sum = |times: &BTreeMap<String, u64>, nodes: &[String]| -> u64 {
            nodes.iter().filter_map(|node| times.get(node)).sum()
        };
        let most = self.axes.iter().map(|axis| axis.levels).max().unwrap_or(1);
        // Groups of one axis share configurations: all axes at one level.
        for level in (1..=most).rev() {
            let axes = self.axes.iter();
            let choice = axes.fold(Choice::whole(), |choice, axis| {
                choice.with(&axis.name, level.min(axis.levels))
            });
            let times = measure(&choice)?;
            if level == most {
                self.fixed.nanoseconds = sum(&times, &self.fixed_nodes);
            }
            for group in &mut self.groups {
                if group.axes.len() == 1 && level <= group.prices.len() {
                    group.prices[level - 1].nanoseconds = sum(&times, &group.nodes);
                }
            }
        }
        for group in self.groups.iter_mut().filter(|g| g.axes.len() > 1) {
            for index in 0..group.prices.len() {
                let times = measure(&group.choice(&self.axes, index))?;
                group.prices[index].nanoseconds = sum(&times, &group.nodes);
            }
        }
        Ok(self)
    }

    /// The axes, in the order of the levels that [`PriceList::price`] takes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The price of a configuration: a level of each axis, in order; one out of range counts as the nearest.
    pub fn price(&self, levels: &[usize]) -> Price {
        let mut price = self.fixed;
        for group in &self.groups {
            let index = group.axes.iter().fold(0, |index, &axis| {
                let most = self.axes[axis].levels;
                let level = levels.get(axis).copied().unwrap_or(most).clamp(1, most);
                index * most + level - 1
            });
            price = price + group.prices[index];
        }
        price
    }
}

/// What each node costs, by its name; parameters that no node reads have none.
fn node_prices(graph: &Graph, sizes: &Bindings) -> Result<BTreeMap<String, NodePrice>, GraphError> {
    let params = |ids: &mut dyn Iterator<Item = &Parameter>| -> u64 {
        let trainable = ids.filter(|param| param.trainable);
        trainable.map(|param| param.elements() as u64).sum()
    };
    let mut prices: BTreeMap<String, NodePrice> = BTreeMap::new();
    let mut read = 0;
    for (node, cost) in graph.nodes().iter().zip(graph.costs(sizes)?) {
        let own = params(&mut node.params.iter().map(|&id| graph.param(id)));
        read += own;
        let known = prices.entry(node.name.clone()).or_default();
        known.price.params += own;
        known.price.macs += cost.macs.unwrap_or(0);
        for &output in &node.outputs {
            known.elements += graph.value_shape(output, sizes)?.iter().product::<usize>();
        }
    }
    let all = params(&mut graph.params().iter());
    let unread = prices.entry(String::new()).or_default();
    unread.price.params += all - read;
    Ok(prices)
}
