//! `percept eval`: how well a trained classifier does, class by class.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use percept_data::ModelWeights;
use percept_report::Table;
use percept_train::{Evaluated, EvaluationOptions, evaluate};
use serde_json::json;

use crate::fail::Result;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::training::{BIRDS, Settled, Sources, blame, settings_of_checkpoint, settle};

/// Confusions that are shown.
const MOST_CONFUSED: usize = 10;

/// Test a classifier: top-1, top-5, every class, the most confused pairs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept eval resnet18 --weights runs/resnet18/best.safetensors        on the test pictures of its run
  percept eval resnet18 --weights run/best.safetensors --split training
  percept eval resnet50 --weights resnet50.pth --data imagenet --json

A checkpoint of `percept train` knows its network's settings, its image size and its data; other weights need --set and
--data where the defaults do not fit.")]
pub struct Args {
    /// Network, as `percept models` lists them: any that classifies
    model: String,
    /// A checkpoint, .safetensors, or a PyTorch .pth/.pt file
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
    /// Pictures: a folder a class, train/ and val/ of such, or CUB-200-2011 [default: those of the run, or built-in birds]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Which pictures
    #[arg(long, value_enum, default_value = "testing")]
    split: SplitArg,
    /// Set something about the network or the data (size, data.hold_out, ..); may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Pictures at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// Stop at a picture that cannot be read, instead of skipping it
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitArg {
    /// Those to test with
    Testing,
    /// Those to train with
    Training,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    let settled = settle(Sources {
        model: &args.model,
        base: settings_of_checkpoint(&args.weights)?,
        file: None,
        set: args.set.clone(),
        data: args.data.clone(),
        birds: BIRDS,
    })?;
    let Settled {
        model,
        learner,
        data,
        ..
    } = settled;
    let layouts = model.other_layouts.iter();
    let layouts = layouts.map(|layout| (layout.name, layout.renames.as_slice()));
    let (weights, _) = ModelWeights::open(&args.weights, &model.graph, layouts)?;
    let dataset = match args.split {
        SplitArg::Testing => data.testing,
        SplitArg::Training => data.training,
    };
    let options = EvaluationOptions {
        batch: args.batch,
        threads: common.cpu()?.threads(),
        strict: args.strict,
    };
    let classes = dataset.classes().to_vec();
    let bar = progress::bar(common, dataset.len(), "testing");
    let evaluated = evaluate(&learner, Arc::new(weights), dataset, &options, |done| {
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let evaluated = evaluated.map_err(blame)?;
    for picture in &evaluated.skipped {
        common.note(format_args!("skipped: {picture}"));
    }
    Ok(report(args, &classes, &evaluated))
}

fn report(args: &Args, classes: &[String], evaluated: &Evaluated) -> Outcome {
    let scores = &evaluated.scores;
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
    let mut text = format!(
        "{}: top-1 {}, top-5 {}, {} pictures of {} classes in {:.2} s\n\n",
        args.model,
        percent(scores.top1()),
        percent(scores.top5()),
        scores.images(),
        classes.len(),
        evaluated.took.as_secs_f64(),
    );
    let by_class = scores.by_class();
    let mut table = Table::new(&["<class", "pictures", "right", "share"]);
    for (class, score) in classes.iter().zip(&by_class) {
        let share = score.right as f64 / score.images as f64;
        let share = (score.images > 0).then_some(share);
        let (images, right) = (score.images.to_string(), score.right.to_string());
        table.row([class.clone(), images, right, percent(share)]);
    }
    text += &table.render();
    let confused = scores.most_confused(MOST_CONFUSED);
    if !confused.is_empty() {
        let mut table = Table::new(&["<most confused", "<taken for", "pictures"]);
        for pair in &confused {
            let [class, taken_for] =
                [pair.class, pair.taken_for].map(|class| classes[class].clone());
            table.row([class, taken_for, pair.images.to_string()]);
        }
        text += "\n";
        text += &table.render();
    }
    if !evaluated.skipped.is_empty() {
        let _ = writeln!(text, "\n{} pictures were skipped", evaluated.skipped.len());
    }
    let named = |class: usize| &classes[class];
    let record = json!({
        "model": args.model, "weights": args.weights.display().to_string(),
        "images": scores.images(), "top1": scores.top1(), "top5": scores.top5(),
        "classes": classes.iter().zip(&by_class)
            .map(|(class, score)| json!({"class": class, "images": score.images, "right": score.right}))
            .collect::<Vec<_>>(),
        "most_confused": confused.iter()
            .map(|pair| json!({
                "class": named(pair.class), "taken_for": named(pair.taken_for), "images": pair.images,
            }))
            .collect::<Vec<_>>(),
        "skipped": evaluated.skipped.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "seconds": evaluated.took.as_secs_f64(),
    });
    Outcome::new(text, record)
}
