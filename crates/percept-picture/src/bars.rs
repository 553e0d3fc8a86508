//! Names with bars beside them, in one or several columns: what weighs most.

use crate::colours::ON_LIGHT;
use crate::font::Weight;
use crate::picture::{Anchor, Area, Picture, Stroke, TextStyle};
use crate::theme::{LIGHT, MARGIN, TEXT_SIZE};

const ROW_HEIGHT: f64 = 26.0;
const BAR_HEIGHT: f64 = 16.0;
const COLUMN_WIDTH: f64 = 300.0;
const LONGEST_NAME: f64 = 340.0;
const GAP: f64 = 8.0;

/// One number for each name.
#[derive(Clone, Debug)]
pub struct BarColumn {
    /// What is measured.
    pub heading: String,
    /// What stands behind each number.
    pub unit: String,
    /// A number for each name; what is missing or not finite shows as a dash.
    pub values: Vec<f64>,
}

/// Names and their bars.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What stands above.
    pub title: String,
    /// What is compared, from the top.
    pub names: Vec<String>,
    /// The measures, beside each other.
    pub columns: Vec<BarColumn>,
}

/// A module in the picture of a profile.
#[derive(Clone, Debug)]
pub struct ProfileRow {
    /// Its name.
    pub name: String,
    /// Its share of the time, 0 to 1.
    pub time_share: f64,
    /// The memory that it holds, in bytes.
    pub memory_bytes: u64,
}

/// Draws the heaviest modules of a profile: their shares of the time, and their memory.
///
/// ```
/// use percept_picture::{ProfileRow, draw_profile};
///
/// let rows = [("layer3", 0.41, 52_000_000), ("layer4", 0.22, 9_500_000)].map(|(name, time_share, memory_bytes)| {
///     ProfileRow { name: name.to_owned(), time_share, memory_bytes }
/// });
/// let svg = draw_profile("resnet50, 224x224", &rows).to_svg();
/// assert!(svg.contains("41 %") && svg.contains("9.5 MB"));
/// ```
pub fn draw_profile(title: &str, rows: &[ProfileRow]) -> Picture {
    let column = |heading: &str, unit: &str, value: fn(&ProfileRow) -> f64| BarColumn {
        heading: heading.to_owned(),
        unit: unit.to_owned(),
        values: rows.iter().map(value).collect(),
    };
    Bars {
        title: title.to_owned(),
        names: rows.iter().map(|row| row.name.clone()).collect(),
        columns: vec![
            column("Share of the time", "%", |row| 100.0 * row.time_share),
            column("Memory", "MB", |row| row.memory_bytes as f64 / 1e6),
        ],
    }
    .draw()
}

impl Bars {
    /// Draws the bars, each column on its own scale.
    ///
    /// ```
    /// use percept_picture::{BarColumn, Bars};
    ///
    /// let bars = Bars {
    ///     title: "What int8 costs".to_owned(),
    ///     names: vec!["conv1".to_owned(), "fc".to_owned()],
    ///     columns: vec![BarColumn {
    ///         heading: "Top-1".to_owned(),
    ///         unit: "points".to_owned(),
    ///         values: vec![-1.25, 0.04],
    ///     }],
    /// };
    /// assert!(bars.draw().to_svg().contains("−1.25 points"));
    /// ```
    pub fn draw(&self) -> Picture {
        let name_width = self
            .names
            .iter()
            .map(|name| Weight::Regular.text_width(TEXT_SIZE, name))
            .fold(0.0, f64::max)
            .min(LONGEST_NAME)
            .ceil();
        let headings = self.columns.iter().any(|column| !column.heading.is_empty());
        let heading_height = if headings { 28.0 } else { 0.0 };
        let (mut picture, top) = Picture::titled(
            &LIGHT,
            &self.title,
            name_width + self.columns.len() as f64 * (COLUMN_WIDTH + MARGIN),
            heading_height + self.names.len() as f64 * ROW_HEIGHT,
        );
        let rows_top = top + heading_height;
        for (row, name) in self.names.iter().enumerate() {
            let at = [MARGIN + name_width, baseline(rows_top, row)];
            let style = TextStyle::new(TEXT_SIZE, LIGHT.ink).anchored(Anchor::End);
            picture.text(
                at,
                style,
                Weight::Regular.fit(TEXT_SIZE, name, LONGEST_NAME),
            );
        }
        for (place, column) in self.columns.iter().enumerate() {
            let left = 2.0 * MARGIN + name_width + place as f64 * (COLUMN_WIDTH + MARGIN);
            let style = TextStyle::new(TEXT_SIZE, LIGHT.ink).medium();
            picture.text([left, top + 13.0], style, column.heading.as_str());
            self.draw_column(&mut picture, [left, rows_top], place);
        }
        picture
    }

    fn draw_column(&self, picture: &mut Picture, [left, top]: [f64; 2], place: usize) {
        let column = &self.columns[place];
        let value = |row: usize| {
            column
                .values
                .get(row)
                .copied()
                .filter(|value| value.is_finite())
        };
        let rows = 0..self.names.len();
        let (low, high) = rows
            .clone()
            .filter_map(value)
            .fold((0.0_f64, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let text = |row: usize| match value(row) {
            Some(value) => format!("{} {}", short(value), column.unit)
                .trim_end()
                .to_owned(),
            None => "–".to_owned(),
        };
        let width_of = |text: &str| Weight::Regular.text_width(TEXT_SIZE, text) + GAP;
        let widest = |negative: bool| {
            rows.clone()
                .filter(|row| value(*row).is_some_and(|value| value < 0.0) == negative)
                .map(|row| width_of(&text(row)))
                .fold(0.0, f64::max)
        };
        // Numbers stand beyond the ends of their bars, on both sides of zero.
        let room = (COLUMN_WIDTH - widest(true) - widest(false)).max(1.0);
        // Halves, because the span of two huge numbers may be none.
        let span = 0.5 * high - 0.5 * low;
        let length = |value: f64| {
            if span > 0.0 {
                0.5 * value / span * room
            } else {
                0.0
            }
        };
        let zero = left + widest(true) - length(low);
        for row in rows {
            let number = value(row).unwrap_or(0.0);
            let end = zero + length(number);
            let bar = Area {
                left: zero.min(end),
                top: top + row as f64 * ROW_HEIGHT + 0.5 * (ROW_HEIGHT - BAR_HEIGHT),
                width: (end - zero).abs(),
                height: BAR_HEIGHT,
            };
            picture.rectangle(bar, ON_LIGHT[place % ON_LIGHT.len()]);
            let style = TextStyle::new(TEXT_SIZE, LIGHT.faint_ink);
            let (at, anchor) = match number < 0.0 {
                true => (end - GAP, Anchor::End),
                false => (end + GAP, Anchor::Start),
            };
            picture.text([at, baseline(top, row)], style.anchored(anchor), text(row));
        }
        let bottom = top + self.names.len() as f64 * ROW_HEIGHT;
        let line = zero.floor() + 0.5;
        picture.line(
            vec![[line, top], [line, bottom]],
            Stroke::new(LIGHT.faint_ink, 1.0),
        );
    }
}

fn baseline(top: f64, row: usize) -> f64 {
    top + row as f64 * ROW_HEIGHT + 0.5 * (ROW_HEIGHT + 0.71 * TEXT_SIZE)
}

/// Three digits that matter, and all of those before the point.
fn short(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if !(1e-4..1e9).contains(&size) => format!("{value:.1e}"),
        _ => {
            let before = libm::floor(libm::log10(size)) as i32;
            let decimals = (2 - before).max(0) as usize;
            let text = format!("{value:.decimals$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
    };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: Vec<f64>) -> Bars {
        Bars {
            title: "title".to_owned(),
            names: (0..values.len()).map(|row| format!("row {row}")).collect(),
            columns: vec![BarColumn {
                heading: "Time".to_owned(),
                unit: "ms".to_owned(),
                values,
            }],
        }
    }

    /// Length in pixels of the bar of each row.
    fn lengths(bars: &Bars) -> Vec<usize> {
        let pixels = bars.draw().to_pixels();
        let row = |row: usize| (56.0 + 28.0 + (row as f64 + 0.5) * ROW_HEIGHT) as u32;
        (0..bars.names.len())
            .map(|place| {
                let y = row(place);
                (0..pixels.width())
                    .filter(|x| pixels.at(*x, y) == Some(ON_LIGHT[0]))
                    .count()
            })
            .collect()
    }

    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let lengths = lengths(&bars(vec![10.0, 5.0, 0.0, -5.0]));
        assert!(lengths[0] > 100);
        assert!(lengths[0].abs_diff(2 * lengths[1]) < 6, "{lengths:?}");
        assert!(lengths[1].abs_diff(lengths[3]) < 4, "{lengths:?}");
        assert_eq!(lengths[2], 0);
    }

    #[test]
    fn missing_and_huge_numbers_are_drawn() {
        let mut some = bars(vec![f64::NAN, f64::INFINITY, 3.0, 0.0]);
        some.columns[0].values.truncate(3);
        assert_eq!(some.draw().to_svg().matches(">–<").count(), 3);
        let huge = lengths(&bars(vec![f64::MAX, f64::MIN]));
        assert!(huge[0] > 50 && huge[0].abs_diff(huge[1]) < 4, "{huge:?}");
        for empty in [bars(vec![]), bars(vec![0.0]), Bars::default()] {
            assert!(empty.draw().size()[1] >= 40);
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (41.0, "41"),
            (41.26, "41.3"),
            (1234.5, "1234"),
            (0.04, "0.04"),
            (-1.25, "−1.25"),
            (99.96, "100"),
            (3e-7, "3.0e−7"),
            (2.5e12, "2.5e12"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_profile_is_written_as_svg() {
        let row = |name: &str, time_share, memory_bytes| ProfileRow {
            name: name.to_owned(),
            time_share,
            memory_bytes,
        };
        let rows = [row("layer1 <&>", 0.5, 12_845_056), row("fc", 0.025, 0)];
        insta::assert_snapshot!(draw_profile("resnet18", &rows).to_svg());
    }
}
