//! `percept features`: what frozen modules make of samples, kept on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::Subcommand;
use percept_data::{Prepare, SampleKey, Samples};
use percept_report::{Table, bytes, counted};
use percept_store::{Cache, Key};
use percept_train::InitialParameters;
use percept_train::features::Features;
use serde_json::json;

use crate::fail::{Blame, Fail, Result};
use crate::features::{self, FeatureArgs, blame};
use crate::model::{ModelArgs, starting};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::progress;
use crate::training::{Settled, Sources, settle};

/// Make, list, check and remove what is kept of frozen modules' features
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept features extract omama-small  of the rooms it learns and is judged in
  percept features extract omama --data egoexo --weights backbone=dinov2.pth --features-limit 100
  percept features list
  percept features verify               reads every file; damaged ones go
  percept features clear

`percept train` and `percept eval` make what is missing by themselves. Features are known by content: pictures, sizes, weights \
and type (--set features=f32 keeps single precision). Any number of processes may share a folder; a killed extraction goes \
on where it was when it is begun again.")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make the features of all samples that are not kept yet
    Extract(ExtractArgs),
    /// Tell what is kept
    List(FeatureArgs),
    /// Read every file, and remove those that are damaged
    Verify(FeatureArgs),
    /// Remove everything
    Clear(FeatureArgs),
}

#[derive(clap::Args)]
struct ExtractArgs {
    #[command(flatten)]
    network: ModelArgs,
    /// Samples, as `percept train` takes them [default: what is built in]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Tell what it would take, and make nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    features: FeatureArgs,
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    match &args.verb {
        Verb::Extract(args) => extract(args, common),
        Verb::List(args) => list(&open(args)?),
        Verb::Verify(args) => verify(&open(args)?),
        Verb::Clear(args) => clear(&open(args)?),
    }
}

fn open(args: &FeatureArgs) -> Result<Cache> {
    Cache::open(args.existing_folder()?, args.limit_bytes()?).bad_input()
}

/// A sample that needs features, by its dataset and place.
type Place = (usize, usize);

/// What is to be made: for each feature one sample that needs it.
struct Plan {
    features: BTreeMap<Key, (u64, Place)>,
    kept: usize,
    skipped: usize,
}

fn extract(args: &ExtractArgs, common: &Common) -> Result<Outcome> {
    let threads = common.cpu()?.threads();
    let config = &args.network.config;
    let mut settled = settle(Sources {
        model: &args.network.model,
        base: None,
        card: None,
        file: None,
        set: config.set.clone(),
        data: args.data.clone(),
        start: Vec::new(),
        suits_built_in: true,
    })?;
    settled.learner.start = starting(&config.weights, &settled.model, common)?;
    let Settled {
        mut learner,
        data,
        config,
        ..
    } = settled;
    let whole = Arc::clone(&learner.lesson);
    let weights = Arc::new(InitialParameters::of(&learner, config.seed)) as _;
    let made = args
        .features
        .cut(&mut learner, &config, &weights, threads)?;
    let made = made.ok_or_else(|| {
        let model = &args.network.model;
        Fail::usage(format!(
            "{model} freezes nothing that comes again, so it has no features to keep"
        ))
    })?;
    let samples = [data.training, data.testing];
    let preparation = whole.evaluation();
    let plan = plan(&samples, &*preparation, &made, common)?;
    let needed: u64 = plan.features.values().map(|(bytes, _)| bytes).sum();
    let (folder, limit) = (args.features.folder()?, args.features.limit_bytes()?);
    common.note(format_args!(
        "{} features are kept in {}, {} are to be made: {} of disk",
        plan.kept,
        folder.display(),
        plan.features.len(),
        bytes(needed)
    ));
    if needed > limit {
        let message = format!(
            "the features take {}, the limit is {}",
            bytes(needed),
            bytes(limit)
        );
        return Err(Fail::usage(message).hint("--features-limit GB raises it"));
    }
    if !args.dry_run {
        make(&plan, &samples, &*preparation, &made, common)?;
    }
    let text = format!("{}\n", features::text(&made));
    let mut record = features::record(&made);
    record["kept_before"] = json!(plan.kept);
    record["to_make"] = json!(plan.features.len());
    record["bytes_needed"] = json!(needed);
    record["skipped"] = json!(plan.skipped);
    Ok(Outcome::new(text, record))
}

fn plan(
    samples: &[Arc<dyn Samples>; 2],
    preparation: &dyn Prepare,
    features: &Features,
    common: &Common,
) -> Result<Plan> {
    let all: usize = samples.iter().map(|part| part.len()).sum();
    let bar = progress::bar(common, all, "looking at samples");
    let cpu = common.cpu()?;
    let mut plan = Plan {
        features: BTreeMap::new(),
        kept: 0,
        skipped: 0,
    };
    let mut kept = std::collections::BTreeSet::new();
    for (part, dataset) in samples.iter().enumerate() {
        for index in 0..dataset.len() {
            bar.inc(1);
            let sample = dataset.sample(index);
            let example =
                sample.and_then(|sample| preparation.prepare(&cpu, &sample, &SampleKey::default()));
            let example = match example {
                Ok(example) => example,
                Err(error) => {
                    common.note(format_args!("skipped: {error}"));
                    plan.skipped += 1;
                    continue;
                }
            };
            for need in features.needs(&example).map_err(blame)? {
                if need.is_kept {
                    kept.insert(need.key);
                } else {
                    plan.features
                        .entry(need.key)
                        .or_insert((need.bytes, (part, index)));
                }
            }
        }
    }
    bar.finish_and_clear();
    plan.kept = kept.len();
    Ok(plan)
}

fn make(
    plan: &Plan,
    samples: &[Arc<dyn Samples>; 2],
    preparation: &dyn Prepare,
    features: &Features,
    common: &Common,
) -> Result<()> {
    let places: std::collections::BTreeSet<Place> =
        plan.features.values().map(|(_, place)| *place).collect();
    let bar = progress::bar(common, places.len(), "making features");
    let cpu = common.cpu()?;
    for (part, index) in places {
        let sample = samples[part].sample(index)?;
        let example = preparation.prepare(&cpu, &sample, &SampleKey::default())?;
        features.extract(&example).map_err(blame)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn list(cache: &Cache) -> Result<Outcome> {
    let entries = cache.list().bad_input()?;
    let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let hours = |used: SystemTime| {
        let age = SystemTime::now().duration_since(used).unwrap_or_default();
        age.as_secs_f64() / 3600.0
    };
    let mut kinds: BTreeMap<&str, (usize, u64, f64, f64)> = BTreeMap::new();
    for entry in &entries {
        let age = hours(entry.used);
        let kind = kinds.entry(&entry.kind).or_insert((0, 0, age, age));
        *kind = (
            kind.0 + 1,
            kind.1 + entry.bytes,
            kind.2.min(age),
            kind.3.max(age),
        );
    }
    let mut table = Table::new(&[
        "<kind",
        "files",
        "bytes",
        "last used, h ago",
        "oldest, h ago",
    ]);
    for (kind, (files, size, newest, oldest)) in &kinds {
        table.row([
            (*kind).to_owned(),
            files.to_string(),
            bytes(*size),
            format!("{newest:.1}"),
            format!("{oldest:.1}"),
        ]);
    }
    let folder = cache.folder().display().to_string();
    let text = format!(
        "{folder}: {}, {} of at most {}\n{}",
        counted(entries.len(), "file"),
        bytes(total),
        bytes(cache.limit_bytes()),
        table.render()
    );
    let files = entries.iter().map(
        |entry| json!({"kind": entry.kind, "key": entry.key.to_string(), "bytes": entry.bytes}),
    );
    let record = json!({
        "folder": folder, "bytes": total, "limit_bytes": cache.limit_bytes(),
        "files": files.collect::<Vec<_>>(),
    });
    Ok(Outcome::new(text, record))
}

fn verify(cache: &Cache) -> Result<Outcome> {
    let verified = cache.verify().bad_input()?;
    let removed = verified.removed.len();
    let mut text = format!(
        "{} whole, {}; {removed} damaged\n",
        counted(verified.whole, "file"),
        bytes(verified.bytes)
    );
    for (path, reason) in &verified.removed {
        text += &format!("removed {}: {reason}\n", path.display());
    }
    let record = json!({"whole": verified.whole, "bytes": verified.bytes, "removed": removed});
    Ok(Outcome::new(text, record))
}

fn clear(cache: &Cache) -> Result<Outcome> {
    let (files, size) = cache.clear().bad_input()?;
    let text = format!("{} removed, {}\n", counted(files, "file"), bytes(size));
    Ok(Outcome::new(text, json!({"files": files, "bytes": size})))
}
