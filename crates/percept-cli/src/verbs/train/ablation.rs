//! `percept train paco --ablation`: what each term of the loss brings, over several seeds, and whether that is shown.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use percept_models::zoo;
use percept_report::Table;
use percept_train::{Ending, Phase, read_metrics};
use serde_json::json;

use super::Args;
use crate::fail::{Blame, Fail, Result};
use crate::options::Common;
use crate::outcome::Outcome;

/// The weights of the terms that can be left out.
const TERMS: [&str; 2] = ["lambda_pac", "eta_soc"];
/// Which of them each variant keeps; the first is the one that the others are held against.
const VARIANTS: [(&str, &str, [bool; 2]); 4] = [
    ("CE", "ce", [false, false]),
    ("CE + PaC", "pac", [true, false]),
    ("CE + SoC", "soc", [false, true]),
    ("CE + PaC + SoC", "pac-soc", [true, true]),
];
/// Student's t for a 95 % interval from 2, 3, .. differences.
const STUDENT: [f64; 9] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262,
];

pub fn run(
    args: &Args,
    common: &Common,
    folder: &Path,
    set: &[String],
    stop: &AtomicBool,
) -> Result<Outcome> {
    let entry = zoo::find(&args.model).map_err(Fail::from)?;
    let has = |term: &&str| entry.settings.iter().any(|setting| setting.name == *term);
    if !TERMS.iter().all(has) {
        let message = format!("{} has no terms of the loss to leave out", args.model);
        return Err(Fail::usage(message).hint("--ablation is for `paco`"));
    }
    let seeds = args.seeds as usize;
    let mut accuracies = vec![Vec::new(); VARIANTS.len()];
    let mut seconds = 0.0;
    // Seeds outside: whatever is stopped has compared all variants with the seeds before.
    for seed in 0..seeds {
        for (place, (name, short, keeps)) in VARIANTS.iter().enumerate() {
            let number = seed * VARIANTS.len() + place + 1;
            let of = VARIANTS.len() * seeds;
            common.note(format_args!("{name}, seed {seed} (run {number} of {of})"));
            let mut set = set.to_vec();
            set.push(format!("seed={seed}"));
            let left_out = TERMS.iter().zip(keeps).filter(|(_, keeps)| !**keeps);
            set.extend(left_out.map(|(term, _)| format!("{term}=0")));
            let run = folder.join(format!("{short}-seed{seed}"));
            let finished = args.train(common, &run, set, args.resume, stop)?;
            if finished.ending == Ending::Stopped {
                let text = format!("stopped in run {number} of {of}; --resume goes on there\n");
                let record =
                    json!({"model": args.model, "ending": "stopped", "run": number, "runs": of});
                return Ok(Outcome::new(text, record));
            }
            seconds += finished.took.as_secs_f64();
            accuracies[place].push(last_accuracy(&run)?);
        }
    }
    Ok(report(args, folder, &accuracies, seconds))
}

/// The test accuracy at the end of a run, in percent: not the best one, which the test pictures would have chosen.
fn last_accuracy(run: &Path) -> Result<f64> {
    let records = read_metrics(&run.join("metrics.jsonl")).bad_input()?;
    let tested = records
        .iter()
        .rev()
        .find(|record| record.phase == Phase::Eval);
    let top1 = tested.and_then(|record| record.values.get("top1").copied().flatten());
    Ok(100.0 * top1.unwrap_or(f64::NAN))
}

fn report(args: &Args, folder: &Path, accuracies: &[Vec<f64>], seconds: f64) -> Outcome {
    let seeds = accuracies[0].len();
    let mut header = vec!["<test top-1, %".to_owned()];
    header.extend((0..seeds).map(|seed| format!("seed {seed}")));
    header.extend(["mean", "against CE", "95 % interval", "<so it"].map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut rows = Vec::new();
    for ((name, _, _), own) in VARIANTS.iter().zip(accuracies) {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(own.iter().map(|accuracy| format!("{accuracy:.1}")));
        cells.push(format!("{:.1}", mean(own)));
        let mut row = json!({"variant": name, "top1": own, "mean": mean(own)});
        if !std::ptr::eq(own, &accuracies[0]) {
            let differences: Vec<f64> =
                own.iter().zip(&accuracies[0]).map(|(a, b)| a - b).collect();
            let (mean, half) = (mean(&differences), half_interval(&differences));
            let finding = finding(mean, half);
            cells.extend([
                format!("{mean:+.1}"),
                format!("{:+.1} .. {:+.1}", mean - half, mean + half),
                finding.to_owned(),
            ]);
            row["against_ce"] = json!({"mean": mean, "half_interval": half, "finding": finding});
        }
        table.row(cells);
        rows.push(row);
    }
    let text = format!(
        "{}: {} runs, {:.0} s of training; the same seed has the same pictures, weights and order in every row\n\n{}\nruns: {}\n",
        args.model,
        accuracies.len() * seeds,
        seconds,
        table.render(),
        folder.display(),
    );
    let record = json!({"model": args.model, "seeds": seeds, "seconds": seconds, "rows": rows});
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

fn finding(mean: f64, half: f64) -> &'static str {
    match (mean - half > 0.0, mean + half < 0.0) {
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
        let judge = |differences: &[f64]| finding(mean(differences), half_interval(differences));
        assert_eq!(judge(&[2.0, 2.1, 1.9]), "helped");
        assert_eq!(judge(&[-2.0, -2.1, -1.9]), "hurt");
        assert_eq!(judge(&[2.0, -1.0, 3.0]), "is not shown to help or hurt");
        // Three differences 1, 2, 3: deviation 1, so 4.303 / sqrt(3).
        assert!((half_interval(&[1.0, 2.0, 3.0]) - 2.4843).abs() < 1e-3);
    }
}
