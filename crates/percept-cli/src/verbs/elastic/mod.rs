//! `percept elastic`: many networks in one set of weights.

mod budget;
mod evaluate;
mod extract;
mod front;
mod judge;
mod score;
mod search;
mod show;

use clap::Subcommand;

pub use show::narrowed;

use crate::fail::Result;
use crate::options::Common;
use crate::outcome::Outcome;

/// What the parts of an elastic network cost, and a part as a network of its own
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept elastic show lcpr
  percept elastic show lcpr --granularity 2,2/3,1/4,4/1,2 --set stages=2,2,2,2
  percept elastic extract lcpr --granularity 1,1/2,2/3,3/4,4 --to part.safetensors
  percept elastic extract lcpr-small --granularity 2,2/2,2/2,2/2,2 --recalibrate 64 \\
      --to part.safetensors
  percept elastic search lcpr-small --budget macs=70% --picture front.svg
  percept run lcpr --weights part.safetensors

A part is chosen by levels of elastic settings (`percept models NAME` lists them), with every verb.")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Show(show::ShowArgs),
    Extract(extract::ExtractArgs),
    Search(search::SearchArgs),
}

pub fn run(args: &Args, common: &Common) -> Result<Outcome> {
    match &args.verb {
        Verb::Show(args) => show::run(args),
        Verb::Extract(args) => extract::run(args, common),
        Verb::Search(args) => search::run(args, common),
    }
}

/// Batches of at least `each` samples that are far from each other: neighbours of a drive resemble each other, and a batch of them
/// has less variance than all samples have.
fn spread_batches(samples: usize, each: usize) -> Vec<Vec<usize>> {
    let batches = (samples / each.max(1)).max(1);
    (0..batches)
        .map(|batch| (batch..samples).step_by(batches).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_spread_and_none_holds_one_sample_alone() {
        assert_eq!(
            spread_batches(9, 4),
            [vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7]]
        );
        assert_eq!(spread_batches(3, 2), [[0, 1, 2]]);
        assert_eq!(spread_batches(1, 4), [[0]]);
    }
}
