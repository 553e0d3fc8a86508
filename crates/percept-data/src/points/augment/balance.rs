//! Frames with rare classes more often.

use crate::points::frame::ObjectClass;
use crate::random::Draws;

/// An order of frames in which every class that occurs is met about equally often ("Class-balanced Grouping and Sampling", Zhu et
/// al., 2019): of the frames with each class so many are drawn that all classes have the same share. `classes` tells for each frame which
/// occur in it, by class id. Frames without any class are never drawn; without any class at all, every frame comes once.
pub fn balanced_by_class(
    classes: &[[bool; ObjectClass::ALL.len()]],
    draws: &mut Draws,
) -> Vec<usize> {
    let frames_with = |id: usize| (0..classes.len()).filter(move |&frame| classes[frame][id]);
    let by_class: Vec<Vec<usize>> = (0..ObjectClass::ALL.len())
        .map(|id| frames_with(id).collect::<Vec<_>>())
        .filter(|frames| !frames.is_empty())
        .collect();
    if by_class.is_empty() {
        return (0..classes.len()).collect();
    }
    let meetings: usize = by_class.iter().map(Vec::len).sum();
    let share = meetings / by_class.len();
    let mut order = Vec::with_capacity(share * by_class.len());
    for frames in &by_class {
        order.extend((0..share).map(|_| frames[draws.below(frames.len())]));
    }
    let mut keyed: Vec<(u64, usize)> = order.into_iter().map(|f| (draws.word(), f)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, frame)| frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_classes_are_met_as_often_as_common_ones() {
        // A hundred frames with cars, the first two with a bus as well, the last with nothing.
        let mut classes = vec![[false; 10]; 101];
        for frame in &mut classes[..100] {
            frame[ObjectClass::Car.id()] = true;
        }
        classes[0][ObjectClass::Bus.id()] = true;
        classes[1][ObjectClass::Bus.id()] = true;
        let order = balanced_by_class(&classes, &mut Draws::new(4, 4));
        assert_eq!(order.len(), 102);
        let with_bus = order.iter().filter(|frame| **frame < 2).count();
        assert!((51..60).contains(&with_bus), "{with_bus} of 102");
        assert!(!order.contains(&100));
        assert_eq!(order, balanced_by_class(&classes, &mut Draws::new(4, 4)));
        let nothing = balanced_by_class(&[[false; 10]; 3], &mut Draws::new(1, 1));
        assert_eq!(nothing, [0, 1, 2]);
    }
}
