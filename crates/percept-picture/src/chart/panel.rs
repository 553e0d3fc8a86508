//! One panel: frame, ticks, legend, lines and dots.

use super::Panel;
use super::axis::Tick;
use super::marks::{Plot, colour, dot, stroke};
use super::series::Mark;
use crate::colours::mix;
use crate::font::Weight;
use crate::picture::{Anchor, Area, Picture, Shape, Stroke, TextStyle};
use crate::theme::{LIGHT, SMALL_TEXT_SIZE, TEXT_SIZE};

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

    pub(super) fn shows(&self, [x, y]: &[f64; 2]) -> bool {
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

    fn draw_axes(&self, picture: &mut Picture, plot: &Plot, y_ticks: &[Tick]) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Series};
    use crate::colours::{Colour, ON_LIGHT};

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
