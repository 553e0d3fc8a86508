//! Which sweeps an epoch has: those with rare classes more often.

use percept_data::points::ObjectClass;
use percept_data::points::augment::balanced_by_class;
use percept_data::random::Draws;

use crate::lesson::{Asked, Epoch};

/// What the draws of an epoch's order are for.
const ORDER: u64 = 0x6f72_6465;

/// As many sweeps as there are, in an order in which every class is met about equally often. Where nobody knows what occurs in
/// them, each comes once.
pub(super) fn balanced(epoch: Epoch, network: &dyn Asked) -> Vec<usize> {
    let samples = network.samples();
    let known = (0..samples).map(|sample| {
        let mut classes = [false; ObjectClass::ALL.len()];
        for class in network.occurring(sample) {
            if let Some(occurs) = classes.get_mut(class) {
                *occurs = true;
            }
        }
        classes
    });
    let known: Vec<_> = known.collect();
    let mut draws = Draws::of(&[ORDER, epoch.seed, epoch.number]);
    let mut order = Vec::with_capacity(samples);
    // One round is longer than an epoch as soon as sweeps have more than one class.
    while order.len() < samples {
        order.extend(balanced_by_class(&known, &mut draws));
    }
    order.truncate(samples);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lesson::{Judged, LessonError};

    /// Cars everywhere, a bus in every twentieth sweep.
    struct Streets(usize);

    impl Asked for Streets {
        fn samples(&self) -> usize {
            self.0
        }

        fn occurring(&self, sample: usize) -> Vec<usize> {
            let bus = sample.is_multiple_of(20).then_some(ObjectClass::Bus.id());
            [ObjectClass::Car.id()].into_iter().chain(bus).collect()
        }

        fn ask(
            &mut self,
            _: &[usize],
            _: &mut dyn FnMut(&Judged<'_>) -> Result<(), LessonError>,
        ) -> Result<(), LessonError> {
            Ok(())
        }
    }

    #[test]
    fn rare_classes_come_more_often_and_epochs_differ() {
        let epoch = |number| balanced(Epoch { seed: 3, number }, &Streets(200));
        let order = epoch(0);
        assert_eq!(order.len(), 200);
        let buses = order
            .iter()
            .filter(|sample| sample.is_multiple_of(20))
            .count();
        assert!((80..130).contains(&buses), "{buses} of 200 with a bus");
        assert_eq!(order, epoch(0));
        assert_ne!(order, epoch(1));
        assert!(balanced(Epoch { seed: 3, number: 0 }, &Streets(0)).is_empty());
    }
}
