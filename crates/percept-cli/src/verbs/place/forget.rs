//! `percept place forget`: places that are gone.

use percept_places::PlaceIndex;
use percept_report::counted;
use serde_json::json;

use super::IndexFile;
use crate::fail::{Fail, Result};
use crate::outcome::Outcome;

/// Delete places from an index by their names
#[derive(clap::Args)]
pub struct ForgetArgs {
    #[command(flatten)]
    index: IndexFile,
    /// Names, as a query prints them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub fn run(args: &ForgetArgs) -> Result<Outcome> {
    let mut index = PlaceIndex::change(&args.index.path)?;
    let gone = index.forget(&args.names)?;
    if gone == 0 {
        return Err(Fail::bad_input(format!(
            "{}: no place is named {}",
            args.index.path.display(),
            args.names.join(" or ")
        )));
    }
    let text = format!(
        "{}: {} deleted, {} left\n",
        args.index.path.display(),
        counted(gone, "place"),
        index.len()
    );
    let record = json!({
        "index": args.index.path.display().to_string(), "deleted": gone, "places": index.len(),
    });
    Ok(Outcome::new(text, record))
}
