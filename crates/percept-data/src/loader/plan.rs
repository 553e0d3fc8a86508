use serde::{Deserialize, Serialize};

use super::LoaderConfig;
use crate::random::{key, permutation};

/// A place in the stream of pictures: how many of an epoch were passed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Whole passes over the data before this one.
    pub epoch: u64,
    /// Pictures of this epoch's order that were passed, the skipped ones included.
    pub images: u64,
}

/// Which pictures make the next batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedBatch {
    pub(super) epoch: u64,
    pub(super) samples: Vec<usize>,
    pub(super) next: Position,
}

/// The batches from a position on.
#[derive(Debug)]
pub(super) struct Plan {
    config: LoaderConfig,
    images: usize,
    at: Position,
    /// The order of the epoch at `at`, once it is needed.
    order: Option<Vec<usize>>,
}

/// Keeps the numbers of the order apart from those of the views.
const SHUFFLE: u64 = u64::from_le_bytes(*b"shuffle.");

impl Plan {
    pub(super) fn new(config: &LoaderConfig, images: usize, from: Position) -> Self {
        let mut plan = Self {
            config: *config,
            images,
            at: from,
            order: None,
        };
        plan.leave_finished_epoch();
        plan
    }

    /// At the end of an epoch, goes to the beginning of the next.
    fn leave_finished_epoch(&mut self) {
        let left = (self.images as u64).saturating_sub(self.at.images);
        let least = if self.config.drop_last {
            self.config.batch as u64
        } else {
            1
        };
        if left < least {
            self.at = Position {
                epoch: self.at.epoch.saturating_add(1),
                images: 0,
            };
            self.order = None;
        }
    }

    fn order_of(&self, epoch: u64) -> Vec<usize> {
        if self.config.shuffle {
            permutation(self.images, |index| {
                key(&[self.config.seed, SHUFFLE, epoch, index])
            })
        } else {
            (0..self.images).collect()
        }
    }
}

impl Iterator for Plan {
    type Item = PlannedBatch;

    fn next(&mut self) -> Option<PlannedBatch> {
        let epoch = self.at.epoch;
        if epoch >= self.config.epochs {
            return None;
        }
        let order = match self.order.take() {
            Some(order) => order,
            None => self.order_of(epoch),
        };
        let rest = &order[self.at.images as usize..];
        let samples = rest[..rest.len().min(self.config.batch)].to_vec();
        self.at.images += samples.len() as u64;
        self.order = Some(order);
        self.leave_finished_epoch();
        Some(PlannedBatch {
            epoch,
            samples,
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
            let config = LoaderConfig { batch, seed, shuffle, drop_last, epochs: 3, ..LoaderConfig::default() };
            let batches = plan(&config, images, Position::default());
            for epoch in 0..3 {
                let of_epoch: Vec<_> = batches.iter().filter(|b| b.epoch == epoch).collect();
                let expected = if drop_last { images / batch } else { images.div_ceil(batch) };
                prop_assert_eq!(of_epoch.len(), expected);
                let mut samples: Vec<usize> = of_epoch.iter().flat_map(|b| b.samples.clone()).collect();
                if !shuffle {
                    prop_assert!(samples.is_sorted());
                }
                samples.sort_unstable();
                samples.dedup();
                prop_assert_eq!(samples.len(), if drop_last { expected * batch } else { images });
                prop_assert_eq!(of_epoch.last().unwrap().next, Position { epoch: epoch + 1, images: 0 });
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
            let batches = plan(&config, 50, Position { epoch, images: 0 });
            batches.into_iter().flat_map(|b| b.samples).collect()
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
                images: u64::MAX,
            },
        );
        assert_eq!(
            past,
            plan(
                &config,
                10,
                Position {
                    epoch: 1,
                    images: 0
                }
            )
        );
        assert!(
            plan(
                &config,
                10,
                Position {
                    epoch: 2,
                    images: 0
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
                    images: last
                }
            )
            .is_empty()
        );
    }
}
