//! The `percept` command: thin, one file per verb.

mod answers;
mod caches;
mod fail;
mod features;
mod inputs;
mod interrupt;
mod memory_report;
mod model;
mod options;
mod outcome;
mod progress;
mod quantization;
mod saving;
mod study;
mod surround;
mod training;
mod verbs;

use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use crate::fail::{Exit, Fail};
use crate::options::Common;
use crate::outcome::{Outcome, check_folder};
use crate::verbs::{
    bench, doctor, elastic, eval, export, features as features_verb, inspect, models, place,
    profile, quantize, run, train, verify, world,
};

/// Run, profile, train and verify perception networks on plain CPUs.
#[derive(Parser)]
#[command(
    name = "percept",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  percept models                           what there is
  percept run resnet50 --input cat.jpg     the five likeliest classes
  percept profile resnet50 --by module     where the time and the memory go
  percept bench resnet50 --batch 1,8       how fast it is
  percept place index --index town.places  places to be found again
  percept train resnet18                   a classifier of the built-in birds

Without --weights a network runs on the weights that come with it, or on seeded ones: right for speed and parity, \
meaningless for accuracy.
Exit codes: 0 ok, 1 a check failed, 2 usage, 3 bad or corrupt input, 4 a bug of percept.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
enum Verb {
    Models(models::Args),
    Inspect(inspect::Args),
    Run(run::Args),
    Profile(profile::Args),
    Bench(bench::Args),
    Train(train::Args),
    Eval(eval::Args),
    Features(features_verb::Args),
    Verify(verify::Args),
    Export(export::Args),
    Quantize(quantize::Args),
    Elastic(elastic::Args),
    Place(place::Args),
    World(world::Args),
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    percept_kernels::machine::keep_freed_memory();
    let cli = Cli::try_parse().unwrap_or_else(|error| mistake(&error));
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("error: {panic}");
        eprintln!("hint: this is a bug of percept; please report it with the command that you ran");
    }));
    let finished = std::panic::catch_unwind(|| execute(&cli));
    match finished {
        Ok(Ok(None)) => ExitCode::SUCCESS,
        Ok(Ok(Some(exit))) => ExitCode::from(exit as u8),
        Ok(Err(fail)) => {
            if !matches!(fail.exit, Exit::ReaderLeft | Exit::Interrupted) {
                report(&fail);
            }
            ExitCode::from(fail.exit as u8)
        }
        Err(_) => ExitCode::from(Exit::Bug as u8),
    }
}

/// Ends with what clap says of a command line; where a number cannot be read, with what the option takes.
fn mistake(error: &clap::Error) -> ! {
    let expected = std::error::Error::source(error).and_then(|cause| {
        let whole = cause
            .downcast_ref::<ParseIntError>()
            .map(ParseIntError::kind);
        match whole {
            Some(IntErrorKind::PosOverflow) => Some("that is too large"),
            Some(_) => Some("expected a whole number"),
            None => cause.is::<ParseFloatError>().then_some("expected a number"),
        }
    });
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let [option, value] = [ContextKind::InvalidArg, ContextKind::InvalidValue].map(named);
    if let (Some(expected), Some(option), Some(value)) = (expected, option, value) {
        eprintln!("error: invalid value '{value}' for '{option}': {expected}");
        eprintln!("\nFor more information, try '--help'.");
        std::process::exit(Exit::Usage as i32);
    }
    error.exit()
}

fn execute(cli: &Cli) -> fail::Result<Option<Exit>> {
    let common = &cli.common;
    // `quantize --out F.safetensors` names the file that it writes, not a folder of records.
    let folder = common
        .out
        .as_deref()
        .filter(|path| !quantize::is_weights(path));
    folder.map_or(Ok(()), check_folder)?;
    let Some((name, mut outcome)) = common.watch("the whole command", || answer(cli))? else {
        if common.memory_report {
            eprint!("{}", common.watched.text());
        }
        return Ok(None);
    };
    if common.memory_report {
        outcome.text += &common.watched.text();
        outcome.record["memory_report"] = common.watched.record();
    }
    outcome.deliver(name, common.json, folder)
}

/// What the verb gives; nothing where it has said everything itself.
fn answer(cli: &Cli) -> fail::Result<Option<(&'static str, Outcome)>> {
    let common = &cli.common;
    Ok(Some(match &cli.verb {
        Verb::Models(args) => ("models", models::run(args)?),
        Verb::Inspect(args) => ("inspect", inspect::run(args)?),
        Verb::Run(args) => {
            run::run(args, common)?;
            return Ok(None);
        }
        Verb::Profile(args) => ("profile", profile::run(args, common)?),
        Verb::Bench(args) => match bench::run(args, common)? {
            Some(outcome) => ("bench", outcome),
            None => return Ok(None),
        },
        Verb::Train(args) => ("train", train::run(args, common)?),
        Verb::Eval(args) => ("eval", eval::run(args, common)?),
        Verb::Features(args) => ("features", features_verb::run(args, common)?),
        Verb::Verify(args) => ("verify", verify::run(args, common)?),
        Verb::Export(args) => ("export", export::run(args, common)?),
        Verb::Quantize(args) => ("quantize", quantize::run(args, common)?),
        Verb::Elastic(args) => ("elastic", elastic::run(args, common)?),
        Verb::Place(args) => match place::run(args, common)? {
            Some(outcome) => ("place", outcome),
            None => return Ok(None),
        },
        Verb::World(args) => ("world", world::run(args, common)?),
        Verb::Doctor(args) => ("doctor", doctor::run(args, common)?),
    }))
}

/// One line, its causes behind it, and the hint.
fn report(fail: &Fail) {
    eprintln!("error: {}", fail.message());
    if let Some(hint) = &fail.hint {
        eprintln!("hint: {hint}");
    }
}
