//! Axes: ranges, round ticks and their names.

/// No chart needs more, and spans stay finite.
const LARGEST: f64 = 1e300;
/// Below it there is nothing but rounding.
const SMALLEST: f64 = 1e-290;

/// How numbers are spread along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equally long.
    #[default]
    Linear,
    /// Equal ratios are equally long; numbers of 0 and below are left out.
    Logarithmic,
}

/// An axis of a panel.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What is measured, and its unit.
    pub label: String,
    /// How numbers are spread.
    pub scale: Scale,
    /// Where it begins and ends; around the data when none.
    pub range: Option<[f64; 2]>,
}

impl Axis {
    /// A linear axis around the data.
    pub fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..Self::default()
        }
    }

    /// A logarithmic axis around the data.
    pub fn logarithmic(label: &str) -> Self {
        Self {
            scale: Scale::Logarithmic,
            ..Self::linear(label)
        }
    }

    /// With fixed ends.
    pub fn from_to(self, low: f64, high: f64) -> Self {
        Self {
            range: Some([low, high]),
            ..self
        }
    }

    /// Whether a number has a place on it.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > SMALLEST)
    }

    /// The axis over `values`; `padded` leaves room between the data and the ends.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>, padded: bool) -> Fitted {
        let to_scale = |value: f64| match self.scale {
            Scale::Linear => value.clamp(-LARGEST, LARGEST),
            Scale::Logarithmic => libm::log10(value),
        };
        let fixed = self
            .range
            .filter(|[low, high]| low < high && self.shows(*low) && self.shows(*high));
        if let Some(range) = fixed {
            return Fitted {
                scale: self.scale,
                ends: range.map(to_scale),
            };
        }
        let (low, high) = values
            .filter(|value| self.shows(*value))
            .map(to_scale)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let ends = match self.scale {
            _ if low > high => [0.0, 1.0],
            // One value, or several that differ by rounding only.
            _ if high - low <= (1e-9 * low.abs().max(high.abs())).max(SMALLEST) => {
                widened(low, self.scale)
            }
            Scale::Linear if padded => padded_ends(low, high),
            Scale::Logarithmic if padded => {
                let room = 0.05 * (high - low);
                [low - room, high + room]
            }
            _ => [low, high],
        };
        Fitted {
            scale: self.scale,
            ends,
        }
    }
}

fn widened(value: f64, scale: Scale) -> [f64; 2] {
    let room = match scale {
        Scale::Linear if value.abs() <= SMALLEST => 1.0,
        Scale::Linear => 0.1 * value.abs(),
        Scale::Logarithmic => 0.5,
    };
    [value - room, value + room]
}

/// Room on both sides, but 0 stays the end of what never goes below it and comes near it.
fn padded_ends(low: f64, high: f64) -> [f64; 2] {
    let room = 0.05 * (high - low);
    if low >= 0.0 && low < 0.3 * high {
        return [0.0, high + room];
    }
    if high <= 0.0 && high > 0.3 * low {
        return [low - room, 0.0];
    }
    [low - room, high + room]
}

/// A tick: where it is, as a share of the axis, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) share: f64,
    pub(super) name: String,
}

/// An axis with known ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitted {
    scale: Scale,
    /// In decades where the scale is logarithmic.
    ends: [f64; 2],
}

impl Fitted {
    /// Where a number is, as a share of the axis; outside of 0..=1 where it lies outside.
    pub(super) fn share(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => value.clamp(-LARGEST, LARGEST),
            Scale::Logarithmic => libm::log10(value),
        };
        let [low, high] = self.ends;
        (place - low) / (high - low)
    }

    /// Round numbers along the axis, about `wanted` of them.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let values = match self.scale {
            Scale::Linear => steps(self.ends, wanted),
            Scale::Logarithmic => decades(self.ends, wanted),
        };
        let values: Vec<f64> = values
            .into_iter()
            .filter(|value| (-1e-9..=1.0 + 1e-9).contains(&self.share(*value)))
            .collect();
        let names = match self.scale {
            Scale::Linear => names(&values),
            Scale::Logarithmic => values
                .iter()
                .map(|value| names(&[*value]).concat())
                .collect(),
        };
        values
            .iter()
            .zip(names)
            .map(|(value, name)| Tick {
                share: self.share(*value),
                name,
            })
            .collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn steps([low, high]: [f64; 2], wanted: usize) -> Vec<f64> {
    let rough = (high - low) / wanted.max(1) as f64;
    let exponent = libm::floor(libm::log10(rough));
    let power = libm::exp10(exponent);
    let digit = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|digit| digit * power >= 0.7 * rough)
        .unwrap_or(10.0);
    let first = (low / (digit * power) - 1e-9).ceil();
    (0..=2 * wanted)
        .map(|place| {
            let count = (first + place as f64) * digit;
            // Dividing by a power that is exact gives the nearest number to the decimal.
            if exponent < 0.0 && exponent > -300.0 {
                count / libm::exp10(-exponent)
            } else {
                count * power
            }
        })
        .collect()
}

/// Powers of ten; with their halves and fifths where there are few of them, and not all where there are many.
fn decades([low, high]: [f64; 2], wanted: usize) -> Vec<f64> {
    let (first, last) = (low.floor(), high.ceil());
    let digits: &[f64] = match high - low {
        span if span < 0.3 => return steps([low, high].map(libm::exp10), wanted),
        span if span < 1.0 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        span if span < 2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let stride = ((last - first) / wanted.max(1) as f64).ceil().max(1.0);
    (0..)
        .map(|place| first + f64::from(place) * stride)
        .take_while(|exponent| *exponent <= last)
        .flat_map(|exponent| {
            digits.iter().map(move |digit| match exponent < 0.0 {
                true => digit / libm::exp10(-exponent),
                false => digit * libm::exp10(exponent),
            })
        })
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect()
}

/// Names for numbers of one axis: the same unit and as many decimals as tell them apart.
fn names(values: &[f64]) -> Vec<String> {
    let largest = values
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, suffix) = match largest {
        _ if largest == 0.0 => (1.0, ""),
        _ if (1e-4..1e4).contains(&largest) => (1.0, ""),
        _ if (1e4..1e15).contains(&largest) => units
            .into_iter()
            .find(|(unit, _)| largest >= *unit)
            .unwrap_or((1.0, "")),
        _ => {
            return values
                .iter()
                .map(|value| signed(&format!("{value:.2e}"), ""))
                .collect();
        }
    };
    let distinct = |decimals: usize| {
        values.iter().all(|value| {
            let scaled = value / unit;
            let shown: f64 = format!("{scaled:.decimals$}").parse().unwrap_or(f64::NAN);
            (shown - scaled).abs() <= 1e-6 * scaled.abs()
        })
    };
    let decimals = (0..9).find(|decimals| distinct(*decimals)).unwrap_or(9);
    values
        .iter()
        .map(|value| signed(&format!("{:.decimals$}", value / unit), suffix))
        .collect()
}

/// A number with a real minus sign, without an empty fraction before its exponent, and 0 without a unit.
fn signed(number: &str, suffix: &str) -> String {
    let number = match number.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{exponent}")
        }
        _ => number.to_owned(),
    };
    if number.trim_start_matches(['-', '0', '.']).is_empty() || number == "0e0" {
        return "0".to_owned();
    }
    format!("{}{suffix}", number.replace('-', "−"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(axis: &Axis, values: &[f64], padded: bool) -> Vec<String> {
        let fitted = axis.fit(values.iter().copied(), padded);
        fitted.ticks(5).into_iter().map(|tick| tick.name).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let linear = Axis::linear("");
        for (values, expected) in [
            (vec![0.0, 100.0], vec!["0", "20", "40", "60", "80", "100"]),
            (
                vec![0.1, 0.6],
                vec!["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"],
            ),
            (
                vec![-3e4, 2e4],
                vec!["−30k", "−20k", "−10k", "0", "10k", "20k"],
            ),
            (
                vec![0.0, 2.5e6],
                vec!["0", "0.5M", "1.0M", "1.5M", "2.0M", "2.5M"],
            ),
            (
                vec![0.0, 5e-7],
                vec!["0", "1e−7", "2e−7", "3e−7", "4e−7", "5e−7"],
            ),
            (vec![0.0, 4e20], vec!["0", "1e20", "2e20", "3e20", "4e20"]),
        ] {
            assert_eq!(names_of(&linear, &values, false), expected);
        }
        let log = Axis::logarithmic("");
        assert_eq!(
            names_of(&log, &[0.001, 10.0], false),
            ["0.001", "0.01", "0.1", "1", "10"]
        );
        assert_eq!(
            names_of(&log, &[1.0, 100.0], false),
            ["1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(
            names_of(&log, &[1.0, 1e10], false),
            ["1", "100", "10k", "1M", "100M", "10G"]
        );
    }

    #[test]
    fn any_data_has_a_range_and_a_few_ticks() {
        let wild = [
            vec![],
            vec![f64::NAN, f64::INFINITY],
            vec![0.0],
            vec![42.0, 42.0],
            vec![-7.0],
            vec![f64::MAX, f64::MIN],
            vec![1e300, 1e-300],
            vec![f64::MIN_POSITIVE, 1.0],
            vec![1e9, 1e9 + 1e-6],
            vec![5e-324, 1e-323],
            vec![-1.0, 0.0],
        ];
        for values in &wild {
            for axis in [Axis::linear(""), Axis::logarithmic("")] {
                for padded in [false, true] {
                    let fitted = axis.fit(values.iter().copied(), padded);
                    let [low, high] = fitted.ends;
                    assert!(
                        low < high && (high - low).is_finite(),
                        "{values:?} {fitted:?}"
                    );
                    let ticks = fitted.ticks(5);
                    assert!(
                        (1..=12).contains(&ticks.len()),
                        "{values:?} {fitted:?} {ticks:?}"
                    );
                    for value in values.iter().filter(|value| axis.shows(**value)) {
                        let share = fitted.share(*value);
                        assert!((-0.001..=1.001).contains(&share), "{values:?} {share}");
                    }
                }
            }
        }
    }

    #[test]
    fn fixed_ends_hold_and_senseless_ones_do_not() {
        let unit = Axis::linear("").from_to(0.0, 1.0);
        assert_eq!(unit.fit([5.0].into_iter(), true).share(0.25), 0.25);
        for (low, high) in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0)] {
            let axis = Axis::linear("").from_to(low, high);
            assert_eq!(axis.fit([0.0, 10.0].into_iter(), false).share(5.0), 0.5);
        }
        let log = Axis::logarithmic("").from_to(0.0, 10.0);
        assert_eq!(log.fit([1.0, 100.0].into_iter(), false).share(10.0), 0.5);
    }

    #[test]
    fn what_comes_near_zero_begins_there() {
        let fit = |low: f64, high: f64| Axis::linear("").fit([low, high].into_iter(), true).ends;
        assert_eq!(fit(0.1, 2.0)[0], 0.0);
        assert!(fit(70.0, 80.0)[0] > 69.0);
        assert_eq!(fit(-2.0, -0.1)[1], 0.0);
    }
}
