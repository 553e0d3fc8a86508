//! The tables of a study over clouds: the rows, and what a published text says.

use percept_models::study::{CloudStudy, Evidence};
use percept_report::{Table, bytes, milliseconds, percent};

use super::cloud_row::CloudRow;
use super::clouds::Pair;

/// From here on clouds are so large that what does not grow with them no longer shows.
const LARGE: usize = 65_536;

/// Every size in both forms.
pub fn rows_table(measured: &CloudStudy, pairs: &[Pair]) -> String {
    let mut header = vec!["points", "batch", "ms"];
    header.extend(measured.components.iter().map(|component| component.name));
    header.extend([
        "peak",
        "keep ms",
        "keep peak",
        "time",
        "memory",
        "difference",
    ]);
    let mut table = Table::new(&header);
    let peak = |row: &CloudRow| row.peak_bytes.map_or_else(|| "-".to_owned(), bytes);
    for pair in pairs {
        let row = &pair.frugal;
        let mut cells = vec![
            pair.points.to_string(),
            pair.batch.to_string(),
            milliseconds(row.wall_ms),
        ];
        let shares = row.components_ms.iter();
        cells.extend(shares.map(|ms| percent(ms / row.wall_ms)));
        cells.push(peak(row));
        match &pair.keep {
            Some(keep) => cells.extend([
                milliseconds(keep.wall_ms),
                peak(keep),
                format!("{:.2}x", row.wall_ms / keep.wall_ms),
                pair.memory_ratio()
                    .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
            ]),
            None => cells.extend([
                "does not fit".to_owned(),
                format!("{} planned", bytes(pair.keep_planned_bytes)),
                "-".to_owned(),
                "-".to_owned(),
            ]),
        }
        let difference = pair.difference;
        cells.push(difference.map_or_else(|| "-".to_owned(), |gap| format!("{gap:.1e}")));
        table.row(cells);
    }
    let foot = "time, memory: frugal / keep; difference: the largest between their outputs, in deviations of the output";
    format!(
        "{}\n{foot}; expected at most {:e}\n",
        table.render(),
        measured.tolerance
    )
}

/// What the text says, row by row.
pub fn claims(measured: &CloudStudy, pairs: &[Pair]) -> String {
    let mut table = Table::new(&["<the text says", "<here", "<measured"]);
    for claim in measured.claims {
        table.row([
            claim.says.to_owned(),
            claim.here.to_owned(),
            evidence(claim.evidence, measured, pairs),
        ]);
    }
    table.render()
}

impl Pair {
    fn memory_ratio(&self) -> Option<f64> {
        let keep = self.keep.as_ref()?.peak_bytes?;
        Some(self.frugal.peak_bytes? as f64 / keep.max(1) as f64)
    }

    fn time_ratio(&self) -> Option<f64> {
        Some(self.frugal.wall_ms / self.keep.as_ref()?.wall_ms)
    }

    fn ms_per_point(&self) -> f64 {
        self.frugal.wall_ms / (self.points * self.batch).max(1) as f64
    }
}

fn evidence(evidence: Evidence, measured: &CloudStudy, pairs: &[Pair]) -> String {
    let range = |values: Vec<f64>, show: &dyn Fn(f64) -> String| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match values.len() {
            0 => "not measured".to_owned(),
            1 => show(low),
            _ => format!("{} to {}", show(low), show(high)),
        }
    };
    let less = |ratio: f64| percent(1.0 - ratio);
    let frugal = || pairs.iter().map(|pair| &pair.frugal);
    match evidence {
        Evidence::LessPeak => {
            let ratios = pairs.iter().filter_map(Pair::memory_ratio).collect();
            format!("{} less than keep", range(ratios, &less))
        }
        Evidence::LessTime => {
            let ratios = pairs.iter().filter_map(Pair::time_ratio).collect();
            format!("{} less than keep", range(ratios, &less))
        }
        Evidence::Steady => {
            let growth = frugal().filter_map(|row| row.growth_bytes);
            let growth = growth.map(|bytes| bytes as f64).collect();
            range(growth, &|value| bytes(value as u64))
        }
        Evidence::Answers => {
            let gaps: Vec<f64> = pairs.iter().filter_map(|pair| pair.difference).collect();
            let largest = gaps.iter().copied().fold(0.0, f64::max);
            match gaps.len() {
                0 => "not measured".to_owned(),
                rows => format!(
                    "outputs within {largest:.1e} in {rows} rows (expected {:e})",
                    measured.tolerance
                ),
            }
        }
        Evidence::Share(component) => {
            let shares = frugal().filter_map(|row| {
                let ms = row.components_ms.get(component)?;
                Some(ms / row.wall_ms)
            });
            format!("{} of the time", range(shares.collect(), &percent))
        }
        Evidence::Growth => growth(pairs),
    }
}

/// The time of a point in the largest cloud against the one of the first that is large.
fn growth(pairs: &[Pair]) -> String {
    let single = || pairs.iter().filter(|pair| pair.batch == 1);
    let first = single()
        .filter(|pair| pair.points >= LARGE)
        .min_by_key(|pair| pair.points);
    let last = single().max_by_key(|pair| pair.points);
    match (first, last) {
        (Some(first), Some(last)) if first.points < last.points => format!(
            "a point of {} takes {:.2}x the time of one of {}",
            last.points,
            last.ms_per_point() / first.ms_per_point(),
            first.points
        ),
        _ => "not measured".to_owned(),
    }
}
