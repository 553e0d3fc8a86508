//! Where the names of dots find room.

use super::marks::DOT_RADIUS;
use crate::font::Weight;
use crate::picture::{Area, Picture, TextStyle};
use crate::theme::{LIGHT, SMALL_TEXT_SIZE};

/// Writes names beside dots where they hide neither a dot, another name nor a line with these corners, whose sides are level or
/// upright; those of the best first, and those that find no place not at all.
pub(super) fn place_names(
    picture: &mut Picture,
    names: &[([f64; 2], &str, bool)],
    line: &[[f64; 2]],
) {
    let gap = DOT_RADIUS + 3.0;
    let mut taken: Vec<Area> = names
        .iter()
        .map(|([x, y], ..)| Area {
            left: x - DOT_RADIUS,
            top: y - DOT_RADIUS,
            width: 2.0 * DOT_RADIUS,
            height: 2.0 * DOT_RADIUS,
        })
        .chain(line.windows(2).map(|side| Area {
            left: side[0][0].min(side[1][0]) - 1.0,
            top: side[0][1].min(side[1][1]) - 1.0,
            width: (side[0][0] - side[1][0]).abs() + 2.0,
            height: (side[0][1] - side[1][1]).abs() + 2.0,
        }))
        .collect();
    let overlap = |a: &Area, b: &Area| {
        a.left < b.right() && b.left < a.right() && a.top < b.bottom() && b.top < a.bottom()
    };
    for wanted in [true, false] {
        for &([x, y], name, _) in names.iter().filter(|(_, _, best)| *best == wanted) {
            let width = Weight::Regular.text_width(SMALL_TEXT_SIZE, name);
            let height = SMALL_TEXT_SIZE;
            let middle = y - 0.5 * height;
            let (above, below) = (y - gap - height, y + gap);
            let corners = [
                [x + gap, middle],
                [x - gap - width, middle],
                [x - 0.5 * width, above],
                [x - 0.5 * width, below],
                [x - DOT_RADIUS, above],
                [x - DOT_RADIUS, below],
                [x + DOT_RADIUS - width, above],
                [x + DOT_RADIUS - width, below],
            ];
            let free = corners
                .into_iter()
                .map(|[left, top]| Area {
                    left,
                    top,
                    width,
                    height,
                })
                .find(|area| {
                    let inside = area.left >= 0.0
                        && area.top >= 0.0
                        && area.right() <= picture.width
                        && area.bottom() <= picture.height;
                    inside && !taken.iter().any(|other| overlap(area, other))
                });
            if let Some(area) = free {
                let ink = if wanted { LIGHT.ink } else { LIGHT.faint_ink };
                let style = TextStyle::new(SMALL_TEXT_SIZE, ink);
                picture.text([area.left, area.bottom() - 2.0], style, name);
                taken.push(area);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that found room in 400 x 300 pixels.
    fn placed(names: &[([f64; 2], &str, bool)], line: &[[f64; 2]]) -> Vec<String> {
        let mut picture = Picture::new(400.0, 300.0, LIGHT.background);
        place_names(&mut picture, names, line);
        let svg = picture.to_svg();
        let texts = svg.lines().filter_map(|row| row.strip_suffix("</text>"));
        texts
            .filter_map(|row| row.rsplit('>').next())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let crowd = vec![([200.0, 150.0], "a name", true); 30];
        let count = placed(&crowd, &[]).len();
        assert!((1..=8).contains(&count), "{count}");
    }

    #[test]
    fn the_best_come_first_and_lines_are_kept_free() {
        let names = [
            ([10.0, 150.0], "beaten", false),
            ([10.0, 150.0], "best", true),
        ];
        assert_eq!(
            placed(&names, &[]).first().map(String::as_str),
            Some("best")
        );
        // A fence all around the dot leaves no room.
        let fence = [[0.0, 140.0], [20.0, 140.0], [20.0, 160.0], [0.0, 160.0]];
        assert_eq!(placed(&names, &fence), Vec::<String>::new());
    }
}
