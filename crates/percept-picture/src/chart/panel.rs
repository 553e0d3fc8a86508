//! One panel: frame, ticks, legend, lines and dots.

use super::Panel;
use super::axis::Fitted;
use super::front::pareto_front;
use super::series::{Mark, Series, runs, thinned};
use crate::colours::{Colour, ON_LIGHT, mix};
use crate::font::Weight;
use crate::picture::{Anchor, Area, Fill, Picture, Shape, Stroke, TextStyle};
use crate::theme::{LIGHT, SMALL_TEXT_SIZE, TEXT_SIZE};

const LINE_WIDTH: f64 = 2.0;
const DOT_RADIUS: f64 = 4.0;
const DASH: [f64; 2] = [6.0, 4.0];
/// Pixels between the ticks of each axis, about.
const TICK_DISTANCE: [f64; 2] = [75.0, 45.0];
const LEGEND_ROW: f64 = 18.0;

impl Panel {
    pub(super) fn draw(&self, [width, height]: [f64; 2]) -> Picture {
        let mut picture = Picture::new(width, height, LIGHT.background);
        let title = TextStyle::new(TEXT_SIZE, LIGHT.ink).medium();
        picture.text(
            [0.0, 13.0],
            title,
            Weight::Medium.fit(TEXT_SIZE, &self.title, width),
        );
        let mut top = if self.title.is_empty() { 6.0 } else { 26.0 };
        top += self.draw_legend(&mut picture, top);

        let has_dots = self.series.iter().any(|series| series.mark == Mark::Dots);
        let shown = || {
            let points = self.series.iter().flat_map(|series| &series.points);
            points.filter(|point| self.shows(point)).copied()
        };
        let x = self.x.fit(shown().map(|[x, _]| x), has_dots);
        let y = self.y.fit(shown().map(|[_, y]| y), true);
        let room_below = if self.x.label.is_empty() { 24.0 } else { 44.0 };
        let y_ticks = y.ticks(((height - top - room_below) / TICK_DISTANCE[1]) as usize);
        let widest = y_ticks
            .iter()
            .map(|tick| Weight::Regular.text_width(SMALL_TEXT_SIZE, &tick.name))
            .fold(0.0, f64::max);
        let left = widest.ceil() + 8.0 + if self.y.label.is_empty() { 0.0 } else { 20.0 };
        let plot = Plot {
            area: Area {
                left,
                top,
                // The last tick's name may stand out to the right.
                width: (width - left - 16.0).max(1.0),
                height: (height - top - room_below).max(1.0),
            },
            x,
            y,
        };
        self.draw_axes(&mut picture, &plot, &y_ticks);
        if shown().next().is_none() {
            let style = TextStyle::new(TEXT_SIZE, LIGHT.faint_ink).anchored(Anchor::Middle);
            picture.text(plot.area.centre(), style, "no data");
        }
        let inside = self.draw_data(&plot);
        picture.shapes.push(Shape::Group {
            area: plot.area,
            shapes: inside.shapes,
        });
        picture.outline(
            plot.area.corners(),
            Stroke::new(mix(LIGHT.grid, LIGHT.faint_ink, 0.35), 1.0),
        );
        picture
    }

    fn shows(&self, [x, y]: &[f64; 2]) -> bool {
        self.x.shows(*x) && self.y.shows(*y)
    }

    /// Names beside samples of their lines, where there is more than one; how high it is.
    fn draw_legend(&self, picture: &mut Picture, top: f64) -> f64 {
        if self
            .series
            .iter()
            .filter(|series| !series.name.is_empty())
            .count()
            < 2
        {
            return 0.0;
        }
        let (mut left, mut row) = (0.0, 0.0);
        for (place, series) in self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !series.name.is_empty())
        {
            let name = Weight::Regular.fit(SMALL_TEXT_SIZE, &series.name, picture.width - 24.0);
            let width = 24.0 + Weight::Regular.text_width(SMALL_TEXT_SIZE, &name);
            if left > 0.0 && left + width > picture.width {
                (left, row) = (0.0, row + 1.0);
            }
            let baseline = top + row * LEGEND_ROW + 11.0;
            let middle = baseline - 4.0;
            match series.mark {
                Mark::Dots => dot(picture, [left + 9.0, middle], colour(place), true),
                Mark::Line | Mark::Dashed => picture.line(
                    vec![[left, middle], [left + 18.0, middle]],
                    stroke(place, series.mark),
                ),
            }
            let style = TextStyle::new(SMALL_TEXT_SIZE, LIGHT.ink);
            picture.text([left + 24.0, baseline], style, name);
            left += width + 16.0;
        }
        (row + 1.0) * LEGEND_ROW + 4.0
    }

    fn draw_axes(&self, picture: &mut Picture, plot: &Plot, y_ticks: &[super::axis::Tick]) {
        let area = plot.area;
        let (grid, name) = (
            Stroke::new(LIGHT.grid, 1.0),
            TextStyle::new(SMALL_TEXT_SIZE, LIGHT.faint_ink),
        );
        for tick in plot.x.ticks((area.width / TICK_DISTANCE[0]) as usize) {
            let x = area.left + tick.share * area.width;
            // Lines of one pixel are sharp in the middle of a pixel.
            let line = x.floor() + 0.5;
            picture.line(vec![[line, area.top], [line, area.bottom()]], grid);
            let at = [x, area.bottom() + 16.0];
            picture.text(at, name.anchored(Anchor::Middle), tick.name);
        }
        for tick in y_ticks {
            let y = area.bottom() - tick.share * area.height;
            let line = y.floor() + 0.5;
            picture.line(vec![[area.left, line], [area.right(), line]], grid);
            let at = [area.left - 7.0, y + 4.0];
            picture.text(at, name.anchored(Anchor::End), tick.name.clone());
        }
        let label = TextStyle::new(SMALL_TEXT_SIZE, LIGHT.ink).anchored(Anchor::Middle);
        let [x, y] = area.centre();
        if !self.x.label.is_empty() {
            let text = Weight::Regular.fit(SMALL_TEXT_SIZE, &self.x.label, area.width);
            picture.text([x, area.bottom() + 36.0], label, text);
        }
        if !self.y.label.is_empty() {
            let upright = TextStyle {
                upright: true,
                ..label
            };
            let text = Weight::Regular.fit(SMALL_TEXT_SIZE, &self.y.label, area.height);
            picture.text([11.0, y], upright, text);
        }
    }

    /// Lines, the front, dots and their names, relative to the corner of the plot.
    fn draw_data(&self, plot: &Plot) -> Picture {
        let mut picture = Picture::new(plot.area.width, plot.area.height, LIGHT.background);
        for (place, series) in self.series.iter().enumerate() {
            if series.mark != Mark::Dots {
                self.draw_line(&mut picture, plot, place, series);
            }
        }
        let (on_front, stairs) = self.draw_front(&mut picture, plot).unzip();
        let mut names = Vec::new();
        let mut number = 0;
        for (place, series) in self
            .series
            .iter()
            .enumerate()
            .filter(|(_, s)| s.mark == Mark::Dots)
        {
            for (index, point) in series.points.iter().enumerate() {
                let best = on_front
                    .as_ref()
                    .is_none_or(|front| front.contains(&number));
                number += 1;
                if !self.shows(point) {
                    continue;
                }
                let at = plot.place(point);
                dot(&mut picture, at, colour(place), best);
                if let Some(name) = series.labels.get(index).filter(|name| !name.is_empty()) {
                    names.push((at, name.as_str(), best));
                }
            }
        }
        place_names(&mut picture, &names, &stairs.unwrap_or_default());
        picture
    }

    fn draw_line(&self, picture: &mut Picture, plot: &Plot, place: usize, series: &Series) {
        let pen = stroke(place, series.mark);
        let mut through = |points: &[[f64; 2]], pen: Stroke| {
            for run in runs(points, |point| self.shows(point)) {
                let line: Vec<[f64; 2]> = run.iter().map(|point| plot.place(point)).collect();
                match line[..] {
                    // No line goes through one point alone.
                    [at] => picture.shapes.push(Shape::Circle {
                        centre: at,
                        radius: 0.75 * DOT_RADIUS,
                        fill: Some(Fill {
                            colour: pen.colour,
                            opacity: pen.opacity,
                        }),
                        stroke: None,
                    }),
                    _ => picture.line(thinned(line), pen),
                }
            }
        };
        if series.smoothing > 0 {
            let faint = Stroke {
                width: 1.0,
                ..pen.faded(0.35)
            };
            through(&series.points, faint);
            through(&series.mean(), pen);
        } else {
            through(&series.points, pen);
        }
    }

    /// Draws the line of the best dots; which they are, counted over all series of dots, and its corners. None without a front.
    fn draw_front(
        &self,
        picture: &mut Picture,
        plot: &Plot,
    ) -> Option<(Vec<usize>, Vec<[f64; 2]>)> {
        let better = self.front?;
        let points: Vec<[f64; 2]> = self
            .series
            .iter()
            .filter(|series| series.mark == Mark::Dots)
            .flat_map(|series| &series.points)
            // What has no place on an axis is on no front either.
            .map(|point| {
                if self.shows(point) {
                    *point
                } else {
                    [f64::NAN; 2]
                }
            })
            .collect();
        let front = pareto_front(&points, better);
        let places: Vec<[f64; 2]> = front
            .iter()
            .map(|place| plot.place(&points[*place]))
            .collect();
        // Between two points the worse value is what can be had.
        let mut stairs: Vec<[f64; 2]> = Vec::new();
        for place in places {
            if let Some(&[x, y]) = stairs.last() {
                let corner = match better[0] {
                    super::Better::Lower => [place[0], y],
                    super::Better::Higher => [x, place[1]],
                };
                stairs.push(corner);
            }
            stairs.push(place);
        }
        if stairs.len() > 1 {
            picture.line(stairs.clone(), Stroke::new(LIGHT.faint_ink, 1.5).faded(0.7));
        }
        Some((front, stairs))
    }
}

/// Where the data stands.
struct Plot {
    area: Area,
    x: Fitted,
    y: Fitted,
}

impl Plot {
    /// A point's place, relative to the corner of the area.
    fn place(&self, [x, y]: &[f64; 2]) -> [f64; 2] {
        [
            self.x.share(*x) * self.area.width,
            (1.0 - self.y.share(*y)) * self.area.height,
        ]
    }
}

fn colour(place: usize) -> Colour {
    ON_LIGHT[place % ON_LIGHT.len()]
}

/// Colours come again after eight lines; those are dashed.
fn stroke(place: usize, mark: Mark) -> Stroke {
    let dashed = mark == Mark::Dashed || place >= ON_LIGHT.len();
    Stroke {
        dash: dashed.then_some(DASH),
        ..Stroke::new(colour(place), LINE_WIDTH)
    }
}

/// A dot with a rim that keeps it apart from its neighbours; a beaten one is pale.
fn dot(picture: &mut Picture, centre: [f64; 2], colour: Colour, best: bool) {
    let colour = if best {
        colour
    } else {
        mix(colour, LIGHT.background, 0.6)
    };
    picture.shapes.push(Shape::Circle {
        centre,
        radius: DOT_RADIUS,
        fill: Some(colour.into()),
        stroke: Some(Stroke::new(LIGHT.background, 1.0)),
    });
}

/// Writes names beside dots where they hide neither a dot, another name nor a line with these corners, whose sides are level or
/// upright; those of the best first, and those that find no place not at all.
fn place_names(picture: &mut Picture, names: &[([f64; 2], &str, bool)], line: &[[f64; 2]]) {
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
    use crate::chart::{Axis, Better};

    const SIZE: [f64; 2] = [460.0, 320.0];

    fn drawn(series: Vec<Series>) -> Picture {
        let panel = Panel {
            series,
            ..Panel::default()
        };
        panel.draw(SIZE)
    }

    /// How many pixels are about of a colour.
    fn count(picture: &Picture, colour: Colour) -> usize {
        let near = |pixel: &&[u8; 3]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) < 12);
        picture
            .to_pixels()
            .rgb()
            .as_chunks::<3>()
            .0
            .iter()
            .filter(near)
            .count()
    }

    #[test]
    fn lines_have_the_colours_of_their_places() {
        let line = |height: f64| Series::line("line", vec![[0.0, height], [1.0, height]]);
        let picture = drawn(vec![line(1.0), line(2.0)]);
        for colour in &ON_LIGHT[..2] {
            assert!(count(&picture, *colour) > 300);
        }
        assert_eq!(count(&picture, ON_LIGHT[2]), 0);
    }

    #[test]
    fn a_rising_line_rises() {
        let picture = drawn(vec![Series::line("", vec![[0.0, 0.0], [10.0, 10.0]])]);
        let pixels = picture.to_pixels();
        let rows = |x: u32| {
            (0..320)
                .filter(|y| pixels.at(x, *y) == Some(ON_LIGHT[0]))
                .collect::<Vec<u32>>()
        };
        let (early, late) = (rows(120), rows(400));
        assert!(!early.is_empty() && !late.is_empty());
        assert!(early[0] > late[0] + 100, "{early:?} {late:?}");
    }

    #[test]
    fn panels_without_data_say_so() {
        for series in [
            vec![],
            vec![Series::line("empty", vec![])],
            vec![Series::dots(
                "gone",
                vec![[f64::NAN, 1.0], [1.0, f64::INFINITY]],
            )],
        ] {
            assert!(drawn(series).to_svg().contains("no data"));
        }
        assert!(
            !drawn(vec![Series::line("", vec![[0.0, 0.0]])])
                .to_svg()
                .contains("no data")
        );
    }

    #[test]
    fn single_points_and_islands_between_gaps_show_as_dots() {
        let nan = [1.0, f64::NAN];
        let islands = vec![[0.0, 1.0], nan, [2.0, 2.0], nan, [3.0, 1.0], [4.0, 2.0]];
        let svg = drawn(vec![Series::line("", islands)]).to_svg();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("stroke=\"#0072b2\"").count(), 1);
        let one = drawn(vec![Series::line("", vec![[7.0, -3.0]])]);
        assert!(count(&one, ON_LIGHT[0]) > 10);
    }

    #[test]
    fn huge_ranges_and_logarithms_of_nothing_are_drawn() {
        let points = vec![[1e-300, -1e300], [1.0, 5.0], [1e300, 1e300]];
        let wide = drawn(vec![Series::line("", points.clone())]);
        assert!(count(&wide, ON_LIGHT[0]) > 100);
        let panel = Panel {
            x: Axis::logarithmic(""),
            y: Axis::logarithmic(""),
            series: vec![Series::line("", points)],
            ..Panel::default()
        };
        // The first point has no logarithm.
        assert!(count(&panel.draw(SIZE), ON_LIGHT[0]) > 100);
    }

    #[test]
    fn data_outside_of_fixed_ends_is_cut_at_the_frame() {
        let panel = Panel {
            y: Axis::linear("").from_to(0.0, 1.0),
            series: vec![Series::line("", vec![[0.0, -1e9], [1.0, 0.5], [2.0, 1e9]])],
            ..Panel::default()
        };
        let pixels = panel.draw(SIZE).to_pixels();
        let inked = |y: u32| (0..460).any(|x| pixels.at(x, y) == Some(ON_LIGHT[0]));
        assert!(inked(150));
        assert!(!inked(2) && !inked(310));
    }

    #[test]
    fn the_front_is_drawn_and_beaten_dots_are_pale() {
        let dots = Series::dots("ours", vec![[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [4.0, 4.0]])
            .labelled(["a", "b", "beaten", "d"]);
        let panel = Panel {
            series: vec![dots],
            front: Some([Better::Lower, Better::Higher]),
            ..Panel::default()
        };
        let svg = panel.draw(SIZE).to_svg();
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("fill=\"#0072b2\"").count(), 3);
        assert!(svg.contains(">beaten<") && svg.contains("stroke-opacity=\"0.7\""));
    }

    #[test]
    fn names_of_dots_do_not_cover_each_other() {
        let crowd = vec![[1.0, 1.0]; 30];
        let labels = (0..30).map(|place| format!("name {place}"));
        let svg = drawn(vec![Series::dots("", crowd).labelled(labels)]).to_svg();
        let named = svg.matches(">name ").count();
        assert!((1..=8).contains(&named), "{named}");
    }

    #[test]
    fn texts_are_escaped() {
        let panel = Panel {
            title: "a < b & \"c\"".to_owned(),
            x: Axis::linear("<x>"),
            ..Panel::default()
        };
        let svg = panel.draw(SIZE).to_svg();
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;") && svg.contains("&lt;x&gt;"));
    }
}
