//! From a sample to an example: what a network's preparation does, once for each sample and epoch.

use percept_kernels::Cpu;

use crate::augment::ViewKey;
use crate::random::Draws;
use crate::{BatchError, Example, Sample, SampleError};

/// The counters behind the random numbers of one sample's preparation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleKey {
    /// The seed of the run.
    pub seed: u64,
    /// The pass over the data.
    pub epoch: u64,
    /// The sample's place in its dataset.
    pub sample: u64,
    /// How often the same sample came before in this epoch: a plan may repeat one, and it is changed in another way then.
    pub turn: u64,
}

impl SampleKey {
    /// The counters of one view, where a network takes several of one sample.
    pub fn view(&self, view: u64) -> ViewKey {
        ViewKey {
            seed: self.seed,
            epoch: self.epoch,
            sample: self.sample,
            view: view | self.turn << 32,
        }
    }

    /// The numbers for one purpose; what draws for one purpose leaves the others alone.
    pub fn draws(&self, purpose: u64) -> Draws {
        self.view(0).draws(purpose)
    }
}

/// How samples become examples: a network's own preprocessing, with or without augmentation. The same key gives the same
/// example on any thread.
pub trait Prepare: Send + Sync {
    /// The example of a sample: a batch of one.
    fn prepare(&self, cpu: &Cpu, sample: &Sample, key: &SampleKey) -> Result<Example, SampleError>;

    /// Several examples at once. Whose tensors hold numbers of rows shifts them here.
    fn batch(&self, examples: Vec<Example>) -> Result<Example, BatchError> {
        Example::batch(examples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_views_never_share_numbers() {
        let key = |turn| SampleKey {
            turn,
            ..SampleKey::default()
        };
        let words: Vec<u64> = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .iter()
            .map(|&(turn, view)| key(turn).view(view).draws(0).word())
            .collect();
        for (place, word) in words.iter().enumerate() {
            assert!(!words[..place].contains(word), "{words:?}");
        }
        assert_eq!(key(0).draws(3).word(), ViewKey::default().draws(3).word());
    }
}
