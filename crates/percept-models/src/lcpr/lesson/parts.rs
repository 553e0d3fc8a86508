//! Which parts of the network a run trains: one in each step, drawn by shares.

use percept_graph::{Choice, Graph};
use serde::{Deserialize, Serialize};

use super::super::LEVELS;

/// How a run teaches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlaceOptions {
    /// Negatives in a group beside the query and its positive; each comes with a positive of its own where it has one.
    pub(super) negatives: usize,
    /// Groups of an epoch; a query each.
    pub(super) groups: usize,
    /// Frames of an epoch that groups are made of, drawn anew for each: the network is asked about these before it begins.
    pub(super) frames: usize,
    /// How often each level of the elastic widths is drawn, the lowest first; only the last: no elasticity.
    pub(super) levels: [f64; LEVELS],
    /// Whether the stages' and the last VertConv's widths and the clusters have the level too, and not the fusion blocks alone.
    pub(super) wide: bool,
    /// Whether the middle and the heads of fusion blocks have a level each, 16 pairs, instead of the same; with `wide`, the
    /// other axes have that of the middle.
    pub(super) pairs: bool,
    /// The share of steps that learn from lower pictures: three quarters and half of the height.
    pub(super) heights: f64,
    /// The share of steps that learn a leading part of the descriptor alone: a quarter, half and three quarters.
    pub(super) prefixes: f64,
}

impl Default for PlaceOptions {
    fn default() -> Self {
        Self {
            negatives: 3,
            groups: 200,
            frames: 1000,
            levels: [0.17, 0.20, 0.22, 0.41],
            wide: true,
            pairs: false,
            heights: 0.1,
            prefixes: 0.1,
        }
    }
}

/// Levels of the pictures' height that are learned; a quarter leaves a row of the last stage.
const HEIGHTS: [usize; 2] = [3, 2];

impl PlaceOptions {
    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        if !self.levels.iter().all(is_share) || self.levels[LEVELS - 1] <= 0.0 {
            return Err("levels are shares, and the last is above 0".to_owned());
        }
        let [heights, prefixes] = [self.heights, self.prefixes];
        if ![heights, prefixes].iter().all(is_share) || heights + prefixes >= 1.0 {
            return Err("heights and prefixes are shares, together below 1".to_owned());
        }
        if self.groups == 0 || self.frames < 2 {
            return Err("groups: at least 1; frames: at least 2".to_owned());
        }
        Ok(())
    }

    /// The parts to draw from with their shares; the whole network comes first.
    pub(super) fn parts(&self, whole: &Graph) -> Vec<(f64, Choice)> {
        let total: f64 = self.levels.iter().sum();
        let share = |level: usize| self.levels[level - 1] / total;
        let rest = 1.0 - self.heights - self.prefixes;
        let mut parts = Vec::new();
        for level in (1..=LEVELS).rev() {
            match self.pairs {
                false => parts.push((rest * share(level), self.widths(whole, level, level))),
                true => parts.extend((1..=LEVELS).rev().map(|heads| {
                    let both = rest * share(level) * share(heads);
                    (both, self.widths(whole, level, heads))
                })),
            }
        }
        let of = |axis: &str, level: usize| Choice::whole().with(axis, level);
        let heights = HEIGHTS.map(|level| of("camera.height", level));
        let each = self.heights / HEIGHTS.len() as f64;
        parts.extend(heights.map(|choice| (each, choice)));
        let each = self.prefixes / (LEVELS - 1) as f64;
        parts.extend((1..LEVELS).map(|level| (each, of("descriptor", level))));
        parts.retain(|(share, _)| *share > 0.0);
        parts
    }

    /// One level for the widths, and one for the heads. The descriptor's is another draw, because an index depends on its size.
    fn widths(&self, whole: &Graph, level: usize, heads: usize) -> Choice {
        let axes = whole.axes().iter().map(|axis| axis.name.as_str());
        axes.fold(Choice::whole(), |choice, axis| match axis {
            "descriptor" | "camera.height" => choice,
            axis if axis.ends_with(".heads") => choice.with(axis, heads),
            axis if self.wide || axis.starts_with("fusion") => choice.with(axis, level),
            _ => choice,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Lcpr;
    use super::*;

    fn parts(options: PlaceOptions) -> Vec<(f64, Choice)> {
        let whole = Lcpr::SMALL.graph(&Choice::whole()).unwrap();
        options.parts(&whole)
    }

    #[test]
    fn the_whole_network_comes_first_and_shares_are_all_of_it() {
        for pairs in [false, true] {
            let drawn = parts(PlaceOptions {
                pairs,
                ..PlaceOptions::default()
            });
            // Every axis at its last level is the whole network.
            assert!(drawn[0].1.axes().all(|(_, level)| level == LEVELS));
            let total: f64 = drawn.iter().map(|(share, _)| share).sum();
            assert!((total - 1.0).abs() < 1e-12);
            assert_eq!(drawn.len(), if pairs { 16 } else { 4 } + 2 + 3);
        }
    }

    #[test]
    fn what_has_no_share_is_not_drawn() {
        let whole_only = PlaceOptions {
            levels: [0.0, 0.0, 0.0, 1.0],
            heights: 0.0,
            prefixes: 0.0,
            ..PlaceOptions::default()
        };
        assert_eq!(parts(whole_only).len(), 1);
        let fusion = PlaceOptions {
            wide: false,
            ..PlaceOptions::default()
        };
        let smallest = parts(fusion).remove(3).1;
        assert_eq!(smallest.level("fusion1.mid"), Some(1));
        assert_eq!(smallest.level("stage1.inner"), None);
    }

    #[test]
    fn shares_must_make_sense() {
        let default = PlaceOptions::default();
        assert!(default.check().is_ok());
        let wrong = [
            PlaceOptions {
                levels: [1.0, 0.0, 0.0, 0.0],
                ..default
            },
            PlaceOptions {
                heights: 0.5,
                prefixes: 0.5,
                ..default
            },
            PlaceOptions {
                groups: 0,
                ..default
            },
        ];
        assert!(wrong.iter().all(|options| options.check().is_err()));
    }
}
