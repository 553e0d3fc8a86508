//! What is drawn between two axes.

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line from point to point, broken where a number is missing.
    Line,
    /// The same, dashed: for targets, bounds and what others reached.
    Dashed,
    /// A dot for each point.
    Dots,
}

/// Points with a name.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// x and y of each point; a point with a number that is not finite is left out.
    pub points: Vec<[f64; 2]>,
    /// How they are drawn.
    pub mark: Mark,
    /// The names of dots, in the order of the points; may be shorter, and empty ones are not drawn.
    pub labels: Vec<String>,
    /// How many points on each side a running mean takes; the points themselves become faint. 0 is no mean.
    pub smoothing: usize,
}

impl Series {
    /// A line.
    pub fn line(name: &str, points: Vec<[f64; 2]>) -> Self {
        Self {
            name: name.to_owned(),
            points,
            mark: Mark::Line,
            labels: Vec::new(),
            smoothing: 0,
        }
    }

    /// Dots.
    pub fn dots(name: &str, points: Vec<[f64; 2]>) -> Self {
        Self {
            mark: Mark::Dots,
            ..Self::line(name, points)
        }
    }

    /// With dashes.
    pub fn dashed(self) -> Self {
        Self {
            mark: Mark::Dashed,
            ..self
        }
    }

    /// With a running mean over `smoothing` points on each side, before the faint points.
    pub fn smoothed(self, smoothing: usize) -> Self {
        Self { smoothing, ..self }
    }

    /// With a name at each dot.
    pub fn labelled<T: Into<String>>(self, labels: impl IntoIterator<Item = T>) -> Self {
        Self {
            labels: labels.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// The running mean, over the finite values around each point; at the ends over fewer.
    pub(super) fn mean(&self) -> Vec<[f64; 2]> {
        // Prefix sums of the finite values and of how many there are.
        let mut sums = vec![(0.0, 0_u32)];
        for [_, y] in &self.points {
            let (sum, count) = *sums.last().unwrap_or(&(0.0, 0));
            sums.push(match y.is_finite() {
                true => (sum + y, count + 1),
                false => (sum, count),
            });
        }
        let mean = |(place, [x, y]): (usize, &[f64; 2])| {
            let first = place.saturating_sub(self.smoothing);
            let last = place
                .saturating_add(self.smoothing)
                .saturating_add(1)
                .min(self.points.len());
            let (sum, count) = (sums[last].0 - sums[first].0, sums[last].1 - sums[first].1);
            let mean = if y.is_finite() {
                sum / f64::from(count)
            } else {
                *y
            };
            [*x, mean]
        };
        self.points.iter().enumerate().map(mean).collect()
    }
}

/// The runs of points between those that `keep` refuses.
pub(super) fn runs(points: &[[f64; 2]], keep: impl Fn(&[f64; 2]) -> bool) -> Vec<&[[f64; 2]]> {
    points
        .split(|point| !keep(point))
        .filter(|run| !run.is_empty())
        .collect()
}

/// A line in pixels with what cannot be seen left out: of each column its first, lowest, highest and last point.
pub(super) fn thinned(line: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let ascends = line.windows(2).all(|pair| pair[0][0] <= pair[1][0]);
    if line.len() < 1000 || !ascends {
        return line;
    }
    let mut thin = Vec::new();
    for column in line.chunk_by(|a, b| a[0].floor() == b[0].floor()) {
        let by_height = |place: &usize| column[*place][1];
        let places = || 0..column.len();
        let lowest = places().min_by(|a, b| by_height(a).total_cmp(&by_height(b)));
        let highest = places().max_by(|a, b| by_height(a).total_cmp(&by_height(b)));
        let mut kept: Vec<usize> = [Some(0), lowest, highest, Some(column.len() - 1)]
            .into_iter()
            .flatten()
            .collect();
        kept.sort_unstable();
        kept.dedup();
        thin.extend(kept.into_iter().map(|place| column[place]));
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_mean_passes_over_missing_values() {
        let points = vec![[0.0, 1.0], [1.0, f64::NAN], [2.0, 3.0], [3.0, 8.0]];
        let mean = Series::line("", points).smoothed(1).mean();
        let values: Vec<f64> = mean.iter().map(|[_, y]| *y).collect();
        assert_eq!(values[0], 1.0);
        assert!(values[1].is_nan());
        assert_eq!(values[2..], [5.5, 5.5]);
        let all = Series::line("", vec![[0.0, 2.0], [1.0, 4.0]]).smoothed(usize::MAX);
        assert_eq!(all.mean(), [[0.0, 3.0], [1.0, 3.0]]);
    }

    #[test]
    fn a_long_line_keeps_its_peaks() {
        let mut line: Vec<[f64; 2]> = (0..100_000).map(|i| [f64::from(i) / 250.0, 50.0]).collect();
        line[43_210][1] = 3.0;
        line[43_211][1] = 97.0;
        let thin = thinned(line.clone());
        assert!(thin.len() < 1700, "{}", thin.len());
        assert!(thin.contains(&line[43_210]) && thin.contains(&line[43_211]));
        assert_eq!((thin.first(), thin.last()), (line.first(), line.last()));
        // A line that turns back is left as it is.
        line.swap(0, 99_999);
        assert_eq!(thinned(line.clone()), line);
    }

    #[test]
    fn lines_break_where_numbers_are_missing() {
        let nan = [0.0, f64::NAN];
        let points = [nan, [1.0, 1.0], [2.0, 2.0], nan, nan, [3.0, 3.0], nan];
        let runs = runs(&points, |point| point[1].is_finite());
        assert_eq!(runs, [&points[1..3], &points[5..6]]);
    }
}
