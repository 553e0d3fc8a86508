//! `percept place export`: an index for other engines.

use std::path::PathBuf;

use percept_data::arrays::write_npy;
use percept_graph::Tensor;
use percept_places::PlaceIndex;
use percept_report::counted;
use serde_json::json;

use super::IndexFile;
use crate::answers::csv_line;
use crate::fail::{Blame, Fail, Result};
use crate::outcome::{Outcome, write_text};

/// Write an index as an array and a table, which faiss, LanceDB and Qdrant take
#[derive(clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    index: IndexFile,
    /// Descriptors as an array [places, numbers] of f32
    #[arg(long, value_name = "FILE")]
    npy: Option<PathBuf>,
    /// Names and positions, a line for each row of the array
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub fn run(args: &ExportArgs) -> Result<Outcome> {
    if args.npy.is_none() && args.csv.is_none() {
        return Err(Fail::usage("nothing to write").hint("give --npy FILE, --csv FILE or both"));
    }
    let index = PlaceIndex::read(&args.index.path)?;
    let places: Vec<usize> = index.places().collect();
    let width = index.mode().descriptor;
    if let Some(path) = &args.npy {
        let values: Vec<f32> = places
            .iter()
            .flat_map(|place| index.place(*place).descriptor)
            .copied()
            .collect();
        write_npy(
            path,
            &Tensor::from_values([places.len(), width], values).bug()?,
        )?;
    }
    if let Some(path) = &args.csv {
        let mut text = csv_line(["row", "name", "x_m", "y_m"].into_iter());
        for (row, place) in places.iter().enumerate() {
            let place = index.place(*place);
            let number = |axis: usize| place.position.map(|p| p[axis].to_string());
            let [x, y] = [0, 1].map(|axis| number(axis).unwrap_or_default());
            text += &csv_line([row.to_string().as_str(), place.name, &x, &y].into_iter());
        }
        write_text(path, &text)?;
    }
    let text = format!(
        "{} of {width} numbers written\n",
        counted(places.len(), "place")
    );
    let record = json!({
        "index": args.index.path.display().to_string(), "places": places.len(), "descriptor": width,
        "npy": args.npy.as_ref().map(|path| path.display().to_string()),
        "csv": args.csv.as_ref().map(|path| path.display().to_string()),
    });
    Ok(Outcome::new(text, record))
}
