//! `percept train MODEL --study NAME`: what each row of a network's study learns, over several seeds, and whether a
//! difference is shown.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use percept_models::lesson::{Better, Figure, FigureValue, Goal};
use percept_models::study::{Measured, Study};
use percept_report::Table;
use percept_train::{Ending, Phase, read_metrics};
use serde_json::json;

use super::{Args, Trained};
use crate::fail::{Blame, Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::study;

/// Student's t for a 95 % interval from 2, 3, .. differences.
const STUDENT: [f64; 9] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
];

/// What the rows of a study reached.
struct Results {
    study: &'static Study,
    /// The figure that decides, as the network's metric writes it.
    figure: Figure,
    goal: Goal,
    /// Of each row, by seed; shares in percent.
    reached: Vec<Vec<f64>>,
    /// None where some of it was trained before.
    costs: Vec<Option<Costs>>,
    seconds: f64,
}

/// What the runs of a row took.
#[derive(Clone, Copy, Default)]
struct Costs {
    /// Of all its seeds.
    seconds: f64,
    /// That a step held.
    bytes: usize,
}

pub fn run(
    args: &Args,
    name: &str,
    common: &Common,
    folder: &Path,
    set: &[String],
    stop: &AtomicBool,
) -> Result<Outcome> {
    let study = study::find(&args.model, name)?;
    if !matches!(study.measured, Measured::Trainings) {
        let message = format!("the study {name} of {} is one of steps", args.model);
        let hint = format!("`percept bench {} --study {name}` runs it", args.model);
        return Err(Fail::usage(message).hint(hint));
    }
    study::refuse_varied(study, set)?;
    let (rows, seeds) = (study.rows, args.seeds as usize);
    let runs = rows.len() * seeds;
    let mut reached = vec![Vec::new(); rows.len()];
    let mut costs = vec![Some(Costs::default()); rows.len()];
    let mut seconds = 0.0;
    let mut judged = None;
    // Seeds outside: whatever is stopped has compared all rows with the seeds before.
    for seed in 0..seeds {
        for (place, row) in rows.iter().enumerate() {
            let number = seed * rows.len() + place + 1;
            let title = row.title;
            common.note(format_args!(
                "{title}, seed {seed} (run {number} of {runs})"
            ));
            let mut set = study::settings(study, row, set);
            set.extend(row.run.iter().map(|(key, value)| format!("{key}={value}")));
            set.push(format!("seed={seed}"));
            let run = folder.join(format!("{}-seed{seed}", row.folder_name()));
            // What was trained before is not trained again, so nobody knows what it took.
            let is_new = !run.join("metrics.jsonl").exists();
            let trained = args.train(common, &run, set, args.resume, stop)?;
            if trained.finished.ending == Ending::Stopped {
                let text = format!("stopped in run {number} of {runs}; --resume goes on there\n");
                let record = json!({
                    "model": args.model, "study": study.name, "ending": "stopped", "run": number, "runs": runs,
                });
                return Ok(Outcome::new(text, record));
            }
            let took = trained.finished.took.as_secs_f64();
            let bytes = trained.finished.step_bytes;
            costs[place] = costs[place].filter(|_| is_new).map(|costs| Costs {
                seconds: costs.seconds + took,
                bytes,
            });
            seconds += took;
            let (goal, figure) = decisive(&trained)?;
            reached[place].push(scale(&figure) * last_value(&run, goal.figure)?);
            judged = Some((goal, figure));
        }
    }
    let (goal, figure) = judged.ok_or_else(|| Fail::usage("a study without rows"))?;
    let results = Results {
        study,
        figure,
        goal,
        reached,
        costs,
        seconds,
    };
    Ok(report(args, folder, &results))
}

/// The figure that decides, without a value.
fn decisive(trained: &Trained) -> Result<(Goal, Figure)> {
    let metric = trained.lesson.metric(&trained.classes);
    let goal = metric.goal();
    let figure = metric.figures().into_iter().find(|f| f.key == goal.figure);
    let figure =
        figure.ok_or_else(|| anyhow::anyhow!("the metric has no figure `{}`", goal.figure));
    Ok((goal, figure.bug()?))
}

/// Shares are told in percent.
fn scale(figure: &Figure) -> f64 {
    match figure.value {
        FigureValue::Share(_) => 100.0,
        _ => 1.0,
    }
}

/// The figure at the end of a run: not the best one, which the test samples would have chosen.
fn last_value(run: &Path, key: &str) -> Result<f64> {
    let records = read_metrics(&run.join("metrics.jsonl")).bad_input()?;
    let mut tested = records
        .iter()
        .rev()
        .filter(|record| record.phase == Phase::Eval);
    let value = tested
        .next()
        .and_then(|record| record.values.get(key).copied().flatten());
    Ok(value.unwrap_or(f64::NAN))
}

fn report(args: &Args, folder: &Path, results: &Results) -> Outcome {
    let Results {
        study,
        figure,
        goal,
        reached,
        costs,
        seconds,
    } = results;
    let seeds = reached[0].len();
    let unit = if scale(figure) == 100.0 { ", %" } else { "" };
    let against = format!("against {}", study.rows[0].title);
    let mut header = vec![format!("<test {}{unit}", figure.title)];
    header.extend((0..seeds).map(|seed| format!("seed {seed}")));
    let figures = [
        "mean",
        "s a run",
        "memory",
        &against,
        "95 % interval",
        "<so it",
    ];
    header.extend(figures.map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut rows = Vec::new();
    for (place, (row, own)) in study.rows.iter().zip(reached).enumerate() {
        let mut cells = vec![row.title.to_owned()];
        cells.extend(own.iter().map(|value| format!("{value:.1}")));
        let each = costs[place].map(|costs| costs.seconds / seeds as f64);
        let bytes = costs[place].map(|costs| costs.bytes as u64);
        let known = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        cells.push(format!("{:.1}", mean(own)));
        cells.push(known(each.map(|each| format!("{each:.0}"))));
        cells.push(known(bytes.map(percept_report::bytes)));
        let mut record = json!({
            "row": row.title, goal.figure: own, "mean": mean(own), "seconds": each, "step_bytes": bytes,
        });
        if place > 0 {
            let pairs = own.iter().zip(&reached[0]);
            let differences: Vec<f64> = pairs.map(|(a, b)| a - b).collect();
            let (mean, half) = (mean(&differences), half_interval(&differences));
            let finding = finding(goal.better, mean, half);
            cells.extend([
                format!("{mean:+.1}"),
                format!("{:+.1} .. {:+.1}", mean - half, mean + half),
                finding.to_owned(),
            ]);
            record["against_first"] =
                json!({"mean": mean, "half_interval": half, "finding": finding});
        }
        table.row(cells);
        rows.push(record);
    }
    let text = format!(
        "{}, {}: {}\n{} runs, {seconds:.0} s of training; the same seed has the same samples, weights and order in every row\n\n{}\nruns: {}\n",
        args.model,
        study.name,
        study.about,
        reached.len() * seeds,
        table.render(),
        folder.display(),
    );
    let record = json!({
        "model": args.model, "study": study.name, "figure": goal.figure, "seeds": seeds, "seconds": seconds, "rows": rows,
    });
    Outcome::new(text, record)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the 95 % interval of the mean of paired differences.
fn half_interval(differences: &[f64]) -> f64 {
    let (mean, count) = (mean(differences), differences.len());
    let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    STUDENT[count - 2] * deviation / (count as f64).sqrt()
}

fn finding(better: Better, mean: f64, half: f64) -> &'static str {
    let gain = match better {
        Better::Higher => mean,
        Better::Lower => -mean,
    };
    match (gain - half > 0.0, gain + half < 0.0) {
        (true, _) => "helped",
        (_, true) => "hurt",
        _ => "is not shown to help or hurt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_difference_is_a_finding() {
        let judge = |better, differences: &[f64]| {
            finding(better, mean(differences), half_interval(differences))
        };
        let up = |differences: &[f64]| judge(Better::Higher, differences);
        assert_eq!(up(&[2.0, 2.1, 1.9]), "helped");
        assert_eq!(up(&[-2.0, -2.1, -1.9]), "hurt");
        assert_eq!(up(&[2.0, -1.0, 3.0]), "is not shown to help or hurt");
        assert_eq!(judge(Better::Lower, &[2.0, 2.1, 1.9]), "hurt");
        // Three differences 1, 2, 3: deviation 1, so 4.303 / sqrt(3).
        assert!((half_interval(&[1.0, 2.0, 3.0]) - 2.4843).abs() < 1e-3);
    }
}
