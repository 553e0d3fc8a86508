//! Charts: lines, dots and Pareto fronts in panels with axes.

mod axis;
mod front;
mod marks;
mod names;
mod panel;
mod series;

use crate::picture::Picture;
use crate::theme::{LIGHT, MARGIN};

pub use axis::{Axis, Scale};
pub use front::{Better, pareto_front};
pub use series::{Mark, Series};

/// Width and height of a panel, with its title and the names of its axes.
const PANEL_SIZE: [f64; 2] = [460.0, 320.0];

/// One or several panels under a title.
///
/// ```
/// use percept_picture::{Axis, Chart, Panel, Series};
///
/// let loss = Panel {
///     title: "Loss".to_owned(),
///     x: Axis::linear("step"),
///     y: Axis::logarithmic(""),
///     series: vec![
///         Series::line("training", (1..=100).map(|step| [step as f64, 3.0 / step as f64]).collect()),
///         Series::line("test", vec![[50.0, 0.2], [100.0, f64::NAN]]),
///     ],
///     ..Panel::default()
/// };
/// let chart = Chart { title: "resnet18 on birds".to_owned(), panels: vec![loss], columns: 1 };
/// assert!(chart.draw().to_svg().contains("resnet18 on birds"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What stands above all panels.
    pub title: String,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// How many panels stand beside each other; 0 is as many as there are, three at most.
    pub columns: usize,
}

/// A pair of axes with what is drawn between them.
///
/// ```
/// use percept_picture::{Axis, Better, Panel, Series};
///
/// let sizes = Panel {
///     x: Axis::logarithmic("latency, ms"),
///     y: Axis::linear("top-1, %"),
///     series: vec![
///         Series::dots("ours", vec![[11.0, 69.8], [25.0, 76.1], [40.0, 75.0]])
///             .labelled(["resnet18", "resnet50", "a slow one"]),
///     ],
///     front: Some([Better::Lower, Better::Higher]),
///     ..Panel::default()
/// };
/// # assert!(percept_picture::Chart { panels: vec![sizes], ..Default::default() }.draw().to_svg().contains("a slow one"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// What stands above the panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn; the first has the first colour in every panel.
    pub series: Vec<Series>,
    /// Which ends of the two axes are better, to draw a line through the dots that no other dot beats.
    pub front: Option<[Better; 2]>,
}

impl Chart {
    /// Draws the chart.
    pub fn draw(&self) -> Picture {
        let count = self.panels.len().max(1);
        let columns = match self.columns {
            0 => count.min(3),
            columns => columns.min(count),
        };
        let rows = count.div_ceil(columns);
        let [panel_width, panel_height] = PANEL_SIZE;
        let (mut picture, top) = Picture::titled(
            &LIGHT,
            &self.title,
            columns as f64 * (panel_width + MARGIN) - MARGIN,
            rows as f64 * (panel_height + MARGIN) - MARGIN,
        );
        for (place, panel) in self.panels.iter().enumerate() {
            let (row, column) = (place / columns, place % columns);
            let corner = [
                MARGIN + column as f64 * (panel_width + MARGIN),
                top + row as f64 * (panel_height + MARGIN),
            ];
            picture.place(corner, panel.draw(PANEL_SIZE));
        }
        picture
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn training() -> Chart {
        let steps = |value: fn(f64) -> f64| -> Vec<[f64; 2]> {
            (0..=20)
                .map(|i| f64::from(i) * 50.0)
                .map(|x| [x, value(x)])
                .collect()
        };
        let panel = |title: &str, y: Axis, series| Panel {
            title: title.to_owned(),
            x: Axis::linear("step"),
            y,
            series,
            front: None,
        };
        Chart {
            title: "resnet18 <birds> & \"more\"".to_owned(),
            panels: vec![
                panel(
                    "Loss",
                    Axis::logarithmic("nats"),
                    vec![
                        Series::line("training", steps(|x| 4.0 / (1.0 + 0.01 * x))),
                        Series::line("test", steps(|x| 4.5 / (1.0 + 0.007 * x))),
                    ],
                ),
                panel(
                    "Rate",
                    Axis::linear(""),
                    vec![Series::line("rate", steps(|x| 1e-3 * (1.0 - x / 1000.0)))],
                ),
            ],
            columns: 0,
        }
    }

    #[test]
    fn a_chart_is_written_as_svg() {
        insta::assert_snapshot!(training().draw().to_svg());
    }

    #[test]
    fn panels_stand_in_rows() {
        let chart = |panels, columns| Chart {
            title: String::new(),
            panels: vec![Panel::default(); panels],
            columns,
        };
        let size = |panels, columns| chart(panels, columns).draw().size();
        assert_eq!(size(1, 0), [500, 360]);
        assert_eq!(size(4, 0), [1460, 700]);
        assert_eq!(size(4, 2), [980, 700]);
        assert_eq!(size(2, 9), [980, 360]);
        assert_eq!(size(0, 0), [500, 360]);
    }

    #[test]
    fn the_same_chart_gives_the_same_bytes_as_png() {
        let (once, again) = (training().draw().to_png(), training().draw().to_png());
        assert_eq!(once, again);
    }
}
