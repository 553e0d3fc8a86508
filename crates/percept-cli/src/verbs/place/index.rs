//! `percept place index`: describe frames and keep them.

use percept_places::{Place, PlaceIndex};
use percept_report::counted;
use serde_json::json;

use super::describe::{DescribeArgs, Describer, Drives, note_recovery};
use crate::fail::Result;
use crate::options::Common;
use crate::outcome::Outcome;

/// Describe frames and append them to an index, which is made where it is missing
#[derive(clap::Args)]
pub struct IndexArgs {
    #[command(flatten)]
    describe: DescribeArgs,
}

/// Places that are brought to the disk at once: what a killed process loses at most.
const BATCH: usize = 64;

pub fn run(args: &IndexArgs, common: &Common) -> Result<Outcome> {
    let args = &args.describe;
    args.index.check()?;
    let mut describer = Describer::new(args, common)?;
    let mut index = PlaceIndex::open(&args.index.path, &describer.mode()?)?;
    note_recovery(&index, common);
    let threads = describer.cpu().threads();
    let source = args.source.open(&describer.model, Drives::First, threads)?;
    let mut waiting: Vec<Place> = Vec::new();
    let (mut added, mut unplaced) = (0u64, 0);
    let skipped = describer.each(&source, common, |_, place, _| {
        unplaced += usize::from(place.position.is_none());
        added += 1;
        waiting.push(place);
        if waiting.len() == BATCH {
            index.append(&waiting)?;
            waiting.clear();
        }
        Ok(())
    })?;
    index.append(&waiting)?;
    let mut text = format!(
        "{}: {} added, {} in all, {}\n",
        args.index.path.display(),
        counted(added, "place"),
        index.len(),
        index.mode().words()
    );
    if unplaced > 0 {
        text += &format!("{unplaced} of them at unknown positions (--poses tells them)\n");
    }
    let record = json!({
        "index": args.index.path.display().to_string(), "added": added, "skipped": skipped,
        "places": index.len(), "without_position": unplaced, "mode": index.mode(),
    });
    Ok(Outcome::new(text, record))
}
