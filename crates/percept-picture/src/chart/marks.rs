//! Lines, dots and fronts within a panel.

use super::axis::Fitted;
use super::front::pareto_front;
use super::names::place_names;
use super::series::{Mark, Series, runs, thinned};
use super::{Better, Panel};
use crate::colours::{Colour, ON_LIGHT, mix};
use crate::picture::{Area, Fill, Picture, Shape, Stroke};
use crate::theme::LIGHT;

const LINE_WIDTH: f64 = 2.0;
pub(super) const DOT_RADIUS: f64 = 4.0;
const DASH: [f64; 2] = [6.0, 4.0];

impl Panel {
    /// Lines, the front, dots and their names, relative to the corner of the plot.
    pub(super) fn draw_data(&self, plot: &Plot) -> Picture {
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
                    Better::Lower => [place[0], y],
                    Better::Higher => [x, place[1]],
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
pub(super) struct Plot {
    pub(super) area: Area,
    pub(super) x: Fitted,
    pub(super) y: Fitted,
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

pub(super) fn colour(place: usize) -> Colour {
    ON_LIGHT[place % ON_LIGHT.len()]
}

/// Colours come again after eight lines; those are dashed.
pub(super) fn stroke(place: usize, mark: Mark) -> Stroke {
    let dashed = mark == Mark::Dashed || place >= ON_LIGHT.len();
    Stroke {
        dash: dashed.then_some(DASH),
        ..Stroke::new(colour(place), LINE_WIDTH)
    }
}

/// A dot with a rim that keeps it apart from its neighbours; a beaten one is pale.
pub(super) fn dot(picture: &mut Picture, centre: [f64; 2], colour: Colour, best: bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(series: Vec<Series>, front: Option<[Better; 2]>) -> String {
        let panel = Panel {
            series,
            front,
            ..Panel::default()
        };
        panel.draw([460.0, 320.0]).to_svg()
    }

    #[test]
    fn single_points_and_islands_between_gaps_show_as_dots() {
        let nan = [1.0, f64::NAN];
        let islands = vec![[0.0, 1.0], nan, [2.0, 2.0], nan, [3.0, 1.0], [4.0, 2.0]];
        let svg = drawn(vec![Series::line("", islands)], None);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("stroke=\"#0072b2\"").count(), 1);
        let one = drawn(vec![Series::line("", vec![[7.0, -3.0]])], None);
        assert_eq!(one.matches("<circle").count(), 1);
    }

    #[test]
    fn the_front_is_drawn_and_beaten_dots_are_pale() {
        let dots = Series::dots("ours", vec![[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [4.0, 4.0]])
            .labelled(["a", "b", "beaten", "d"]);
        let svg = drawn(vec![dots], Some([Better::Lower, Better::Higher]));
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("fill=\"#0072b2\"").count(), 3);
        assert!(svg.contains(">beaten<") && svg.contains("stroke-opacity=\"0.7\""));
    }
}
