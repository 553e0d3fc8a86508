//! The curves of a run as a picture beside its log.

use std::collections::BTreeSet;
use std::path::Path;

use percept_data::atomic::write_atomically;
use percept_picture::{Axis, Chart, Panel, Series};

use crate::{MetricsError, Phase, Record};

/// The picture, in the folder of a run.
const FILE: &str = "curves.svg";
/// What a log has beside the terms of the loss and the figures.
const LOSS: &str = "loss";
const RATE: &str = "rate";
const NO_CURVES: [&str; 4] = ["samples_per_second", "waiting_share", "samples", "seconds"];
/// Steps on each side of a running mean, where there are many.
const MOST_SMOOTHING: usize = 20;

/// Writes the curves of a run's records into its folder.
pub fn write_curves(
    folder: &Path,
    title: &str,
    terms: &[&str],
    records: &[Record],
) -> Result<(), MetricsError> {
    let path = folder.join(FILE);
    let svg = chart(title, terms, records).draw().to_svg();
    let written = write_atomically(&path, |file| file.write_all(svg.as_bytes()));
    written.map_err(MetricsError::io(&path))
}

/// The loss and its terms, the figures of evaluations and of training, the learning rate.
fn chart(title: &str, terms: &[&str], records: &[Record]) -> Chart {
    let is_term = |name: &str| name == LOSS || terms.contains(&name);
    let is_figure = |name: &str| !is_term(name) && name != RATE && !NO_CURVES.contains(&name);
    let loss = names(records, Phase::Train)
        .into_iter()
        .filter(|name| is_term(name));
    let observed = names(records, Phase::Train)
        .into_iter()
        .filter(|name| is_figure(name));
    let judged = names(records, Phase::Eval)
        .into_iter()
        .filter(|name| is_figure(name));
    let smoothed = |name: &str, label: &str| {
        let points = points(records, Phase::Train, name);
        let smoothing = (points.len() / 20).min(MOST_SMOOTHING);
        Series::line(label, points).smoothed(smoothing)
    };
    let tested = judged.map(|name| {
        let points = points(records, Phase::Eval, name);
        Series::line(&format!("test {name}"), points)
    });
    let figures = tested.chain(observed.map(|name| smoothed(name, &format!("training {name}"))));
    let panels = [
        ("Loss", loss.map(|name| smoothed(name, name)).collect()),
        ("Figures", figures.collect()),
        (
            "Learning rate",
            vec![Series::line(RATE, points(records, Phase::Train, RATE))],
        ),
    ];
    let panel = |(title, series): (&str, Vec<Series>)| Panel {
        title: title.to_owned(),
        x: Axis::linear("step"),
        y: Axis::linear(""),
        series,
        ..Panel::default()
    };
    Chart {
        title: title.to_owned(),
        panels: panels.into_iter().map(panel).collect(),
        columns: 0,
    }
}

/// The names of everything that records of a phase hold.
fn names(records: &[Record], phase: Phase) -> BTreeSet<&str> {
    let own = records.iter().filter(|record| record.phase == phase);
    own.flat_map(|record| record.values.keys().map(String::as_str))
        .collect()
}

/// A value over the steps; not a number where it was none.
fn points(records: &[Record], phase: Phase, name: &str) -> Vec<[f64; 2]> {
    let own = records.iter().filter(|record| record.phase == phase);
    let point = |record: &Record| {
        let value = record.values.get(name)?;
        Some([record.step as f64, value.unwrap_or(f64::NAN)])
    };
    own.filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_show_the_loss_its_terms_and_the_figures() {
        let train = |step: u64| {
            let values = [
                (LOSS, 3.0 / step as f64),
                ("pac", 0.1),
                ("accuracy", 0.5),
                (RATE, 0.1),
                ("waiting_share", 0.9),
            ];
            Record::new(step, 0, Phase::Train, values)
        };
        let mut records: Vec<Record> = (1..=50).map(train).collect();
        let figures = [("top1", 0.7), ("seconds", 3.0)];
        records.push(Record::new(50, 0, Phase::Eval, figures));
        let chart = chart("resnet18", &["pac"], &records);
        let drawn = |panel: usize| -> Vec<&str> {
            let series = chart.panels[panel].series.iter();
            series.map(|series| series.name.as_str()).collect()
        };
        assert_eq!(drawn(0), [LOSS, "pac"]);
        assert_eq!(drawn(1), ["test top1", "training accuracy"]);
        assert_eq!(drawn(2), [RATE]);
        let folder = tempfile::tempdir().unwrap();
        write_curves(folder.path(), "resnet18", &["pac"], &records).unwrap();
        let svg = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("test top1"),
            "{}",
            &svg[..200]
        );
    }
}
