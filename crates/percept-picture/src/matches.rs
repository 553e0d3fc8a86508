//! A thing in one view, and the candidates for it in another.

use crate::colours::{Colour, ON_DARK, mix};
use crate::mask::{DrawnMask, Mask};
use crate::overlay::{Overlay, fitting};
use crate::picture::{Picture, TextStyle};
use crate::pixels::Pixels;
use crate::ranking::{ROW_HEIGHT, Ranked, draw_ranking};
use crate::theme::{DARK, MARGIN, TEXT_SIZE};

const VIEW_ROOM: [f64; 2] = [560.0, 560.0];
const CAPTION_HEIGHT: f64 = 28.0;
const LIST_WIDTH: f64 = 260.0;
/// The thing and its match: a colour that photographs seldom have.
const FOUND: Colour = [255, 84, 190];
/// Candidates that have a colour and a row.
const SHOWN: usize = 5;

/// What was asked for in one view, and what was found in another.
#[derive(Clone, Copy, Debug)]
pub struct MatchView<'a> {
    /// What stands above the picture.
    pub title: &'a str,
    /// The view with the thing that is asked for.
    pub query: &'a Pixels,
    /// The thing.
    pub asked: &'a Mask,
    /// The view in which it is searched.
    pub view: &'a Pixels,
    /// The candidates in it.
    pub candidates: &'a [Mask],
    /// Candidates and their similarities, the best first.
    pub ranked: &'a [(usize, f32)],
    /// A similarity below this is no match.
    pub threshold: f32,
}

/// Draws both views beside each other: the thing that is asked for, all candidates by their edges, and the best one filled
/// in the colour of the thing, if it is good enough; then the similarities of the best ones.
///
/// ```
/// use percept_picture::{Mask, MatchView, Pixels, draw_matches};
///
/// let view = Pixels::new(4, 4, vec![90; 48])?;
/// let left = Mask::new(2, 1, &[1, 0])?;
/// let right = Mask::new(2, 1, &[0, 1])?;
/// let picture = draw_matches(&MatchView {
///     title: "a cup, ego to exo",
///     query: &view,
///     asked: &left,
///     view: &view,
///     candidates: &[left.clone(), right],
///     ranked: &[(1, 0.82), (0, 0.35)],
///     threshold: 0.5,
/// });
/// assert!(picture.to_svg().contains("candidate 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn draw_matches(matches: &MatchView<'_>) -> Picture {
    let [query, view] = [matches.query, matches.view].map(|image| fitting(image, VIEW_ROOM));
    let list_height = matches.ranked.len().min(SHOWN) as f64 * ROW_HEIGHT;
    let body = query[1].max(view[1]).max(list_height) + CAPTION_HEIGHT;
    let width = query[0] + view[0] + LIST_WIDTH + 2.0 * MARGIN;
    let (mut picture, top) = Picture::titled(&DARK, matches.title, width, body);
    let caption = TextStyle::new(TEXT_SIZE, DARK.faint_ink);

    let asked = DrawnMask {
        mask: matches.asked,
        colour: FOUND,
        filled: true,
    };
    place(&mut picture, [MARGIN, top], matches.query, &[asked]);
    picture.text([MARGIN, top + query[1] + 20.0], caption, "asked for");

    let left = MARGIN + query[0] + MARGIN;
    place(&mut picture, [left, top], matches.view, &matches.drawn());
    let found = match matches.best() {
        Some(_) => "the best match is filled",
        None => "no candidate is similar enough",
    };
    picture.text([left, top + view[1] + 20.0], caption, found);

    let rows: Vec<Ranked> = matches
        .ranked
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(rank, (candidate, similarity))| Ranked {
            name: format!("candidate {candidate}"),
            number: format!("{similarity:.3}"),
            share: f64::from(*similarity),
            colour: matches.colour(rank),
        })
        .collect();
    draw_ranking(
        &mut picture,
        [left + view[0] + MARGIN, top],
        LIST_WIDTH,
        &rows,
    );
    picture
}

impl MatchView<'_> {
    /// The best candidate, if it is good enough.
    fn best(&self) -> Option<usize> {
        let best = self.ranked.first();
        best.filter(|(_, similarity)| *similarity >= self.threshold)
            .map(|(candidate, _)| *candidate)
    }

    /// The colour of a rank: the first has that of the thing, if it is good enough.
    fn colour(&self, rank: usize) -> Colour {
        match rank {
            0 if self.best().is_some() => FOUND,
            rank if rank < SHOWN => mix(ON_DARK[3], DARK.faint_ink, rank as f64 / SHOWN as f64),
            _ => DARK.faint_ink,
        }
    }

    /// The candidates, the best on top.
    fn drawn(&self) -> Vec<DrawnMask<'_>> {
        let rank = |candidate: usize| {
            self.ranked
                .iter()
                .position(|(ranked, _)| *ranked == candidate)
        };
        let mut order: Vec<(usize, &Mask)> = self
            .candidates
            .iter()
            .enumerate()
            .map(|(candidate, mask)| (rank(candidate).unwrap_or(usize::MAX), mask))
            .collect();
        order.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        let drawn = |(rank, mask)| DrawnMask {
            mask,
            colour: self.colour(rank),
            filled: rank == 0 && self.best().is_some(),
        };
        order.into_iter().map(drawn).collect()
    }
}

fn place(picture: &mut Picture, at: [f64; 2], image: &Pixels, masks: &[DrawnMask<'_>]) {
    let overlay = Overlay {
        image,
        masks,
        boxes: &[],
    };
    let [width, height] = VIEW_ROOM.map(|side| side as u32);
    picture.place(at, overlay.draw(width, height));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(
        image: &'a Pixels,
        candidates: &'a [Mask],
        ranked: &'a [(usize, f32)],
        threshold: f32,
    ) -> MatchView<'a> {
        MatchView {
            title: "",
            query: image,
            asked: &candidates[0],
            view: image,
            candidates,
            ranked,
            threshold,
        }
    }

    fn halves() -> [Mask; 2] {
        [[1, 0], [0, 1]].map(|numbers| Mask::new(2, 1, &numbers).expect("a mask"))
    }

    #[test]
    fn the_best_candidate_is_filled_if_it_is_good_enough() {
        let (image, halves) = (Pixels::filled(8, 8, [0; 3]), halves());
        // The middle of the right half of the second view.
        let at = |threshold| {
            let matches = view(&image, &halves, &[(1, 0.8), (0, 0.1)], threshold);
            draw_matches(&matches)
                .to_pixels()
                .at(20 + 560 + 20 + 420, 300)
        };
        let [red, ..] = at(0.5).expect("a pixel");
        assert!(red > 100, "{red}");
        assert_eq!(at(0.9), Some([0; 3]));
    }

    #[test]
    fn ranks_of_no_candidate_and_no_ranks_are_drawn() {
        let (image, halves) = (Pixels::filled(8, 8, [0; 3]), halves());
        for ranked in [&[][..], &[(99, 0.7)], &[(1, f32::NAN)]] {
            let matches = view(&image, &halves, ranked, 0.5);
            let svg = draw_matches(&matches).to_svg();
            assert_eq!(
                svg.contains("no candidate is similar enough"),
                matches.best().is_none()
            );
        }
    }
}
