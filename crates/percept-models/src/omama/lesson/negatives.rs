//! Which candidates a thing is to be told from: those around it.

use percept_data::masks::{Adjacency, Rle};
use percept_data::random::Draws;

use super::PairOptions;
use crate::omama::BoxXywh;
use crate::omama::intake::box_of;

/// A candidate that overlaps the truth this much is no negative. (The public system leaves the best one in.)
const SAME_IOU: f64 = 0.5;

/// The candidates to learn from, by number; `None` is the true mask, which is in one random place where the thing is in view.
pub(super) fn choose(
    candidates: &[Rle],
    boxes: Option<&[BoxXywh]>,
    truth: &Rle,
    options: &PairOptions,
    draws: &mut Draws,
) -> Vec<Option<usize>> {
    let count = options.masks;
    let is_other = |&number: &usize| candidates[number].iou(truth).unwrap_or(0.0) < SAME_IOU;
    let others: Vec<usize> = (0..candidates.len()).filter(is_other).collect();
    if truth.is_empty() {
        return top_up(Vec::new(), &others, count, draws);
    }
    let box_at = |number: usize| match boxes {
        Some(boxes) => boxes[number],
        None => box_of(&candidates[number]),
    };
    let true_box = box_of(truth);
    let nearest = (0..candidates.len())
        .map(|number| (number, box_iou(box_at(number), true_box)))
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    let around = nearest.map_or_else(Vec::new, |(number, _)| {
        Adjacency::of_masks(candidates).within(number, options.order)
    });
    let mut hard: Vec<usize> = around.into_iter().filter(is_other).collect();
    shuffle(&mut hard, draws);
    hard.truncate(count - 1);
    let mut chosen = top_up(hard, &others, count - 1, draws);
    let place = draws.below(chosen.len() + 1);
    chosen.insert(place, None);
    chosen
}

/// Some candidates, and others at random until there are enough; again the same ones where there are too few.
fn top_up(
    mut chosen: Vec<usize>,
    others: &[usize],
    count: usize,
    draws: &mut Draws,
) -> Vec<Option<usize>> {
    let mut rest: Vec<usize> = others
        .iter()
        .copied()
        .filter(|o| !chosen.contains(o))
        .collect();
    shuffle(&mut rest, draws);
    chosen.extend(rest);
    if chosen.is_empty() {
        return Vec::new();
    }
    let whole = chosen.len();
    (0..count)
        .map(|place| Some(chosen[place % whole]))
        .collect()
}

fn shuffle(numbers: &mut [usize], draws: &mut Draws) {
    numbers.sort_by_cached_key(|&number| (draws.word(), number));
}

/// How much two boxes x, y, width, height overlap.
fn box_iou(a: BoxXywh, b: BoxXywh) -> f32 {
    let along = |axis: usize| {
        let from = a[axis].max(b[axis]);
        let to = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]);
        (to - from).max(0.0)
    };
    let both = along(0) * along(1);
    let either = a[2] * a[3] + b[2] * b[3] - both;
    if either > 0.0 { both / either } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use percept_data::masks::PixelBox;

    use super::*;

    fn at(x: u32, y: u32) -> Rle {
        let area = PixelBox {
            x,
            y,
            width: 8,
            height: 8,
        };
        Rle::filled_box(112, 112, area).unwrap()
    }

    /// A grid of masks, a little askew so that neighbours are unique.
    fn grid() -> Vec<Rle> {
        (0..36)
            .map(|i| at(18 * (i % 6) + i % 3, 18 * (i / 6) + (i / 6) % 2 + i % 2))
            .collect()
    }

    #[test]
    fn the_truth_is_among_its_neighbours_and_never_a_negative() {
        let (masks, truth) = (grid(), at(37, 37));
        let options = PairOptions {
            masks: 12,
            order: 1,
        };
        let near = Adjacency::of_masks(&masks).within(14, 1);
        let mut places = [0; 12];
        for seed in 0..60 {
            let chosen = choose(&masks, None, &truth, &options, &mut Draws::new(seed, 0));
            assert_eq!(chosen.len(), 12);
            let place = chosen.iter().position(Option::is_none).unwrap();
            places[place] += 1;
            assert_eq!(chosen.iter().filter(|c| c.is_none()).count(), 1);
            assert!(
                !chosen.contains(&Some(14)),
                "the candidate that is the thing"
            );
            let kept = near.iter().filter(|n| chosen.contains(&Some(**n))).count();
            assert_eq!(kept, near.len().min(11));
        }
        assert!(places.iter().all(|count| *count > 0), "{places:?}");
    }

    #[test]
    fn too_few_candidates_come_again_and_what_is_not_there_has_no_truth() {
        let (masks, truth) = (grid()[..3].to_vec(), at(90, 90));
        let options = PairOptions { masks: 8, order: 2 };
        let draws = || Draws::new(1, 0);
        assert_eq!(
            choose(&masks, None, &truth, &options, &mut draws()).len(),
            8
        );
        let nothing = Rle::empty(112, 112).unwrap();
        let chosen = choose(&masks, None, &nothing, &options, &mut draws());
        assert!(chosen.len() == 8 && chosen.iter().all(Option::is_some));
        assert!(choose(&[], None, &nothing, &options, &mut draws()).is_empty());
        assert_eq!(choose(&[], None, &truth, &options, &mut draws()), [None]);
    }
}
