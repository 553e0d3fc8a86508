//! The masks that a segmenter would give: the true ones with ragged borders, parts, unions, pieces of the background.

use std::collections::BTreeMap;

use percept_data::masks::Rle;
use percept_data::random::{Draws, key, permutation};

use crate::look::noise::noise2;
use crate::room::furniture::BACKGROUND_CLASS;
use crate::view::View;

/// A mask without a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its pixels.
    pub mask: Rle,
    /// What it is.
    pub kind: CandidateKind,
}

/// What a candidate mask really is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// An object, by its number in the pair.
    Whole(usize),
    /// A part of an object.
    Part(usize),
    /// Two neighbours in one.
    Merged(usize, usize),
    /// Furniture, floor, wall, or the person.
    Background,
}

/// Fewer pixels of a picture of 224 x 224 are overlooked.
const SMALLEST_SHARE: f64 = 14.0 / (224.0 * 224.0);
/// How far a ragged border strays, in pixels of a picture 224 wide.
const RAGGED_PX: f32 = 1.3;
/// Objects of which a part is found too, and neighbours that are found in one.
const SPLIT_SHARE: f64 = 0.25;
const MERGED_SHARE: f64 = 0.2;
/// Background falls into cells of this share of the picture's width.
const CELL_SHARE: f32 = 0.3;
const MOST_BACKGROUND: usize = 12;

/// The pixels of one instance.
pub(super) fn mask_of(view: &View, instance: u16) -> Rle {
    mask(view, |pixel| view.instances[pixel] == instance)
}

fn mask(view: &View, inside: impl Fn(usize) -> bool) -> Rle {
    let (width, height) = (view.image.width, view.image.height);
    let pixels: Vec<u8> = (0..width * height)
        .map(|pixel| u8::from(inside(pixel)))
        .collect();
    Rle::encode(height, width, &pixels).expect("a view has the size of its mask")
}

/// All candidates of a view, in a random order.
pub(super) fn candidates(view: &View, view_key: u64) -> Vec<Candidate> {
    let (width, height) = (view.image.width, view.image.height);
    let smallest = ((width * height) as f64 * SMALLEST_SHARE).max(1.0) as usize;
    let labels = ragged(view, view_key);
    let mut areas: BTreeMap<u16, usize> = BTreeMap::new();
    for label in labels.iter().filter(|label| **label != 0) {
        *areas.entry(*label).or_default() += 1;
    }
    let seen: Vec<u16> = areas
        .into_iter()
        .filter(|(_, area)| *area >= smallest)
        .map(|(label, _)| label)
        .collect();
    let mut draws = Draws::of(&[view_key, 1]);
    let mut found = Vec::new();
    for label in &seen {
        let object = usize::from(*label) - 1;
        found.push(Candidate {
            mask: mask(view, |pixel| labels[pixel] == *label),
            kind: CandidateKind::Whole(object),
        });
        if draws.chance(SPLIT_SHARE) {
            let [sin, cos] = {
                let (sin, cos) = libm::sincos(draws.angle());
                [sin, cos]
            };
            let middle = centre(&labels, width, *label);
            let side = |pixel: usize| {
                let [x, y] = [(pixel % width) as f64, (pixel / width) as f64];
                (x - middle[0]) * cos + (y - middle[1]) * sin > 0.0
            };
            found.push(Candidate {
                mask: mask(view, |pixel| labels[pixel] == *label && side(pixel)),
                kind: CandidateKind::Part(object),
            });
        }
    }
    for (a, b) in neighbours(&labels, width) {
        if seen.contains(&a) && seen.contains(&b) && draws.chance(MERGED_SHARE) {
            found.push(Candidate {
                mask: mask(view, |pixel| labels[pixel] == a || labels[pixel] == b),
                kind: CandidateKind::Merged(usize::from(a) - 1, usize::from(b) - 1),
            });
        }
    }
    found.extend(background(view, &labels, smallest, &mut draws));
    // An object of one pixel has nothing on either side of its middle.
    found.retain(|candidate| !candidate.mask.is_empty());
    let order = permutation(found.len(), |place| key(&[view_key, 2, place]));
    let mut slots: Vec<Option<Candidate>> = found.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|place| slots[place].take())
        .collect()
}

/// The instances with borders that waver: each pixel takes the label of a place a little beside it.
fn ragged(view: &View, view_key: u64) -> Vec<u16> {
    let (width, height) = (view.image.width, view.image.height);
    let reach = RAGGED_PX * width as f32 / 224.0;
    let grain = 0.3 / (width as f32 / 224.0).max(0.25);
    let seed = view_key as u32;
    let waver = |x: usize, y: usize, axis: u32| {
        let at = noise2(grain * x as f32, grain * y as f32, seed ^ (axis + 1));
        2.0 * reach * (2.0 * at - 1.0)
    };
    (0..width * height)
        .map(|pixel| {
            let (x, y) = (pixel % width, pixel / width);
            let beside = |at: usize, by: f32, end: usize| {
                (at as f32 + by + 0.5).floor().clamp(0.0, (end - 1) as f32) as usize
            };
            let (bx, by) = (
                beside(x, waver(x, y, 0), width),
                beside(y, waver(x, y, 1), height),
            );
            view.instances[by * width + bx]
        })
        .collect()
}

fn centre(labels: &[u16], width: usize, label: u16) -> [f64; 2] {
    let (mut sum, mut count) = ([0.0; 2], 0.0);
    for (pixel, _) in labels.iter().enumerate().filter(|(_, l)| **l == label) {
        sum[0] += (pixel % width) as f64;
        sum[1] += (pixel / width) as f64;
        count += 1.0;
    }
    sum.map(|s| s / f64::max(count, 1.0))
}

/// Pairs of objects that touch in the picture.
fn neighbours(labels: &[u16], width: usize) -> Vec<(u16, u16)> {
    let touching = |(here, beside): (&u16, &u16)| {
        (*here != 0 && *beside != 0 && here != beside)
            .then(|| (*here.min(beside), *here.max(beside)))
    };
    let rows = labels
        .chunks(width)
        .flat_map(|row| row.iter().zip(&row[1..]));
    let below = labels.iter().zip(labels.get(width..).unwrap_or_default());
    let mut pairs: Vec<_> = rows.chain(below).filter_map(touching).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Pieces of furniture and walls, cut into cells.
fn background(view: &View, labels: &[u16], smallest: usize, draws: &mut Draws) -> Vec<Candidate> {
    let width = view.image.width;
    let side = (CELL_SHARE * width as f32).max(1.0);
    let shift = [draws.range(0.0, 1.0) as f32, draws.range(0.0, 1.0) as f32];
    let piece = |pixel: usize| {
        let class = view.classes[pixel];
        let cell = |at: usize, shift: f32| (at as f32 / side + shift).floor() as u32;
        let is_background = labels[pixel] == 0 && class >= BACKGROUND_CLASS;
        is_background.then(|| {
            (
                class,
                cell(pixel % width, shift[0]),
                cell(pixel / width, shift[1]),
            )
        })
    };
    let pieces_of: Vec<_> = (0..labels.len()).map(piece).collect();
    let mut areas: BTreeMap<(u16, u32, u32), usize> = BTreeMap::new();
    for piece in pieces_of.iter().flatten() {
        *areas.entry(*piece).or_default() += 1;
    }
    let mut pieces: Vec<_> = areas
        .into_iter()
        .filter(|(_, area)| *area >= 2 * smallest)
        .collect();
    // The largest pieces first; equal ones by their place.
    pieces.sort_by_key(|(place, area)| (std::cmp::Reverse(*area), *place));
    pieces
        .into_iter()
        .take(MOST_BACKGROUND)
        .map(|(wanted, _)| Candidate {
            mask: mask(view, |pixel| pieces_of[pixel] == Some(wanted)),
            kind: CandidateKind::Background,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use percept_data::images::RgbImage;

    /// Two discs that touch, on a wall.
    fn discs() -> View {
        let (width, height) = (112, 84);
        let inside = |pixel: usize, cx: f64| {
            let (x, y) = ((pixel % width) as f64 - cx, (pixel / width) as f64 - 42.0);
            x * x + y * y < 18.0 * 18.0
        };
        let instances: Vec<u16> = (0..width * height)
            .map(|pixel| u16::from(inside(pixel, 36.0)) + 2 * u16::from(inside(pixel, 72.0)))
            .collect();
        View {
            image: RgbImage::filled(width, height, [0; 3]),
            depth_m: vec![1.0; width * height],
            classes: instances
                .iter()
                .map(|i| if *i == 0 { BACKGROUND_CLASS } else { 1 })
                .collect(),
            instances,
        }
    }

    fn iou(a: &Rle, b: &Rle) -> f64 {
        let (a, b) = (a.decode(), b.decode());
        let both = a
            .iter()
            .zip(&b)
            .filter(|(a, b)| **a == 1 && **b == 1)
            .count();
        let any = a
            .iter()
            .zip(&b)
            .filter(|(a, b)| **a == 1 || **b == 1)
            .count();
        both as f64 / any as f64
    }

    #[test]
    fn candidates_are_nearly_the_truth_and_other_things() {
        let view = discs();
        let mut kinds = [0; 4];
        for view_key in 0..20 {
            for candidate in candidates(&view, view_key) {
                match candidate.kind {
                    CandidateKind::Whole(object) => {
                        kinds[0] += 1;
                        let iou = iou(&candidate.mask, &mask_of(&view, object as u16 + 1));
                        assert!((0.7..1.0).contains(&iou), "{iou}");
                    }
                    CandidateKind::Part(object) => {
                        kinds[1] += 1;
                        assert!(iou(&candidate.mask, &mask_of(&view, object as u16 + 1)) < 0.7);
                    }
                    CandidateKind::Merged(..) => kinds[2] += 1,
                    CandidateKind::Background => kinds[3] += 1,
                }
                assert!(!candidate.mask.is_empty());
            }
        }
        assert_eq!(kinds[0], 40);
        assert!(kinds[1..].iter().all(|count| *count > 0), "{kinds:?}");
    }

    #[test]
    fn order_tells_nothing() {
        let view = discs();
        let first: Vec<_> = (0..30)
            .map(|view_key| candidates(&view, view_key)[0].kind)
            .collect();
        assert!(first.contains(&CandidateKind::Background));
        assert!(
            first
                .iter()
                .any(|kind| matches!(kind, CandidateKind::Whole(_)))
        );
    }
}
