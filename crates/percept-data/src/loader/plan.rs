use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::LoaderConfig;
use crate::random::{key, permutation};

/// A place in the stream of samples: how much of an epoch was passed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Whole passes over the data before this one.
    pub epoch: u64,
    /// Samples (or groups of them) of this epoch's order that were passed, the skipped ones included.
    #[serde(alias = "images")]
    pub samples: u64,
}

/// In which order samples come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// That of the dataset.
    Given,
    /// One of its own in each epoch.
    #[default]
    Shuffled,
    /// As planned, the same in each epoch.
    Planned(Arc<EpochPlan>),
}

/// The samples of an epoch, in order; some may be left out, and some may come several times. Where some belong together, such
/// as a query with its match and its negatives, they are a group, which goes into one batch whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochPlan {
    samples: Vec<usize>,
    /// Where each group ends; none where every sample stands alone.
    group_ends: Option<Vec<usize>>,
}

impl EpochPlan {
    /// Samples that have nothing to do with each other.
    pub fn of_samples(samples: Vec<usize>) -> Self {
        Self {
            samples,
            group_ends: None,
        }
    }

    /// Groups, each of which counts as one in a batch; an empty one is none.
    pub fn of_groups(groups: impl IntoIterator<Item = Vec<usize>>) -> Self {
        let mut plan = Self::default();
        let mut ends = Vec::new();
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            plan.samples.extend(group);
            ends.push(plan.samples.len());
        }
        plan.group_ends = Some(ends);
        plan
    }

    /// The plan with these samples and ends of groups, as [`samples`](Self::samples) and [`group_ends`](Self::group_ends) gave
    /// them; none where they contradict each other.
    pub fn from_parts(samples: Vec<usize>, group_ends: Option<Vec<usize>>) -> Option<Self> {
        let is_whole = group_ends.as_ref().is_none_or(|ends| {
            ends.is_sorted_by(|a, b| a < b) && ends.last().copied().unwrap_or(0) == samples.len()
        });
        is_whole.then_some(Self {
            samples,
            group_ends,
        })
    }

    /// How many samples, or groups of them, there are.
    pub fn len(&self) -> usize {
        self.group_ends
            .as_ref()
            .map_or(self.samples.len(), Vec::len)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All samples in order.
    pub fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// Where each group ends among the samples; none where every sample stands alone.
    pub fn group_ends(&self) -> Option<&[usize]> {
        self.group_ends.as_deref()
    }

    /// The places of the samples before the group (or sample) of this number.
    fn begin(&self, number: usize) -> usize {
        match &self.group_ends {
            Some(ends) => number.checked_sub(1).map_or(0, |before| ends[before]),
            None => number,
        }
    }
}

/// A sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) sample: usize,
    /// How often it came before in this epoch.
    pub(super) turn: u64,
}

/// Which samples make the next batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedBatch {
    pub(super) epoch: u64,
    pub(super) samples: Vec<Planned>,
    /// How many samples each group has; none where every sample stands alone.
    pub(super) groups: Option<Vec<usize>>,
    pub(super) next: Position,
}

/// The batches from a position on.
#[derive(Debug)]
pub(super) struct Plan {
    config: LoaderConfig,
    dataset: usize,
    at: Position,
    /// The order of the epoch at `at`, once it is needed.
    order: Option<EpochOrder>,
}

#[derive(Debug)]
struct EpochOrder {
    plan: Arc<EpochPlan>,
    /// The turn of each sample, where one comes several times.
    turns: Option<Vec<u64>>,
}

/// Keeps the numbers of the order apart from those of the views.
const SHUFFLE: u64 = u64::from_le_bytes(*b"shuffle.");

impl Plan {
    pub(super) fn new(config: &LoaderConfig, dataset: usize, from: Position) -> Self {
        let mut plan = Self {
            config: config.clone(),
            dataset,
            at: from,
            order: None,
        };
        plan.leave_finished_epoch();
        plan
    }

    /// At the end of an epoch, goes to the beginning of the next.
    fn leave_finished_epoch(&mut self) {
        let left = (self.config.epoch_len(self.dataset) as u64).saturating_sub(self.at.samples);
        let least = if self.config.drop_last {
            self.config.batch as u64
        } else {
            1
        };
        if left < least {
            self.at = Position {
                epoch: self.at.epoch.saturating_add(1),
                samples: 0,
            };
            self.order = None;
        }
    }

    fn order_of(&self, epoch: u64) -> EpochOrder {
        let alone = |samples| EpochOrder {
            plan: Arc::new(EpochPlan::of_samples(samples)),
            turns: None,
        };
        match &self.config.order {
            Order::Given => alone((0..self.dataset).collect()),
            Order::Shuffled => alone(permutation(self.dataset, |index| {
                key(&[self.config.seed, SHUFFLE, epoch, index])
            })),
            Order::Planned(plan) => EpochOrder {
                turns: Some(turns(plan.samples())),
                plan: Arc::clone(plan),
            },
        }
    }
}

/// How often each sample came before.
fn turns(samples: &[usize]) -> Vec<u64> {
    let mut seen: HashMap<usize, u64> = HashMap::new();
    let turn = |sample: &usize| {
        let count = seen.entry(*sample).or_insert(0);
        *count += 1;
        *count - 1
    };
    samples.iter().map(turn).collect()
}

impl Iterator for Plan {
    type Item = PlannedBatch;

    fn next(&mut self) -> Option<PlannedBatch> {
        let epoch = self.at.epoch;
        // Beyond the end there is nothing, however often the plan could be repeated.
        if epoch >= self.config.epochs || self.config.epoch_len(self.dataset) == 0 {
            return None;
        }
        let order = match self.order.take() {
            Some(order) => order,
            None => self.order_of(epoch),
        };
        let plan = &order.plan;
        let first = self.at.samples as usize;
        let last = (first + self.config.batch).min(plan.len());
        let places = plan.begin(first)..plan.begin(last);
        let planned = |place: usize| Planned {
            sample: plan.samples[place],
            turn: order.turns.as_ref().map_or(0, |turns| turns[place]),
        };
        let samples = places.map(planned).collect();
        let size = |group: usize| plan.begin(group + 1) - plan.begin(group);
        let groups = plan.group_ends().map(|_| (first..last).map(size).collect());
        self.at.samples = last as u64;
        self.order = Some(order);
        self.leave_finished_epoch();
        Some(PlannedBatch {
            epoch,
            samples,
            groups,
            next: self.at,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(config: &LoaderConfig, images: usize, from: Position) -> Vec<PlannedBatch> {
        Plan::new(config, images, from).collect()
    }

    fn numbers(batch: &PlannedBatch) -> Vec<usize> {
        batch.samples.iter().map(|planned| planned.sample).collect()
    }

    #[test]
    fn groups_stay_together_and_repeated_samples_take_turns() {
        let groups = [vec![4, 0], vec![4], vec![], vec![1, 4, 4]];
        let config = LoaderConfig {
            batch: 2,
            order: Order::Planned(Arc::new(EpochPlan::of_groups(groups))),
            ..LoaderConfig::default()
        };
        let batches = plan(&config, 9, Position::default());
        let turns = |batch: &PlannedBatch| batch.samples.iter().map(|p| p.turn).collect::<Vec<_>>();
        assert_eq!(batches.len(), 2);
        assert_eq!(numbers(&batches[0]), [4, 0, 4]);
        assert_eq!(turns(&batches[0]), [0, 0, 1]);
        assert_eq!(batches[0].groups, Some(vec![2, 1]));
        assert_eq!(numbers(&batches[1]), [1, 4, 4]);
        assert_eq!(turns(&batches[1]), [0, 2, 3]);
        assert_eq!(batches[1].groups, Some(vec![3]));
        assert_eq!(plan(&config, 9, batches[0].next), batches[1..]);
        let nothing = LoaderConfig {
            order: Order::Planned(Arc::default()),
            ..config
        };
        assert!(plan(&nothing, 9, Position::default()).is_empty());
    }

    #[test]
    fn a_plan_survives_its_parts() {
        let groups = EpochPlan::of_groups([vec![3, 1], vec![2]]);
        let ends = groups.group_ends().map(<[usize]>::to_vec);
        let again = EpochPlan::from_parts(groups.samples().to_vec(), ends);
        assert_eq!((again.as_ref(), groups.len()), (Some(&groups), 2));
        assert_eq!(EpochPlan::from_parts(vec![1, 2], Some(vec![1])), None);
        assert_eq!(EpochPlan::from_parts(vec![1, 2], Some(vec![2, 1])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_epoch_holds_every_picture_once_and_can_be_begun_anywhere(
            images in 1usize..40,
            batch in 1usize..9,
            seed in any::<u64>(),
            shuffle in any::<bool>(),
            drop_last in any::<bool>(),
        ) {
            prop_assume!(!drop_last || batch <= images);
            let order = if shuffle { Order::Shuffled } else { Order::Given };
            let config = LoaderConfig { batch, seed, order, drop_last, epochs: 3, ..LoaderConfig::default() };
            let batches = plan(&config, images, Position::default());
            for epoch in 0..3 {
                let of_epoch: Vec<_> = batches.iter().filter(|b| b.epoch == epoch).collect();
                let expected = if drop_last { images / batch } else { images.div_ceil(batch) };
                prop_assert_eq!(of_epoch.len(), expected);
                let mut samples: Vec<usize> = of_epoch.iter().flat_map(|b| numbers(b)).collect();
                if !shuffle {
                    prop_assert!(samples.is_sorted());
                }
                samples.sort_unstable();
                samples.dedup();
                prop_assert_eq!(samples.len(), if drop_last { expected * batch } else { images });
                prop_assert_eq!(of_epoch.last().unwrap().next, Position { epoch: epoch + 1, samples: 0 });
            }
            for (i, planned) in batches.iter().enumerate() {
                prop_assert_eq!(&plan(&config, images, planned.next)[..], &batches[i + 1..]);
            }
        }
    }

    #[test]
    fn epochs_and_seeds_have_orders_of_their_own() {
        let order = |seed, epoch| -> Vec<usize> {
            let config = LoaderConfig {
                seed,
                epochs: epoch + 1,
                ..LoaderConfig::default()
            };
            let batches = plan(&config, 50, Position { epoch, samples: 0 });
            batches.iter().flat_map(numbers).collect()
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
    }

    #[test]
    fn positions_beyond_the_end_are_the_next_epoch_or_nothing() {
        let config = LoaderConfig {
            epochs: 2,
            ..LoaderConfig::default()
        };
        let past = plan(
            &config,
            10,
            Position {
                epoch: 0,
                samples: u64::MAX,
            },
        );
        assert_eq!(
            past,
            plan(
                &config,
                10,
                Position {
                    epoch: 1,
                    samples: 0
                }
            )
        );
        assert!(
            plan(
                &config,
                10,
                Position {
                    epoch: 2,
                    samples: 0
                }
            )
            .is_empty()
        );
        let last = u64::MAX;
        assert!(
            plan(
                &config,
                10,
                Position {
                    epoch: last,
                    samples: last
                }
            )
            .is_empty()
        );
    }
}
