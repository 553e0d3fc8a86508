//! Scores a file of detections against a nuScenes folder, real or written by `percept world make`:
//!
//! ```text
//! cargo run --release -p percept-metrics --example nuscenes_eval -- DIR RESULTS.json [RANGE_M]
//! ```
//!
//! prints the figures in the public code's layout as JSON, and on stderr how long reading and scoring took.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use percept_data::points::nuscenes::NuScenes;
use percept_metrics::detection::results::Results;
use percept_metrics::detection::{DetectionSettings, FrameTruth, evaluate};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, results, range) = match arguments.as_slice() {
        [folder, results] => (folder, results, None),
        [folder, results, range] => (folder, results, Some(range.parse()?)),
        _ => return Err("takes DIR RESULTS.json [RANGE_M]".into()),
    };
    let mut settings = DetectionSettings::default();
    if let Some(range) = range {
        settings = settings.within_m(range);
    }
    let start = Instant::now();
    let folder = NuScenes::open(Path::new(folder))?;
    let frames = (0..folder.frames()).map(|frame| FrameTruth::from_nuscenes(&folder, frame));
    let truth = frames.collect::<Result<Vec<_>, _>>()?;
    let results = Results::read(Path::new(results))?;
    let read = start.elapsed();
    let figures = evaluate(&truth, &results.frames, &settings)?;
    let scored = start.elapsed() - read;
    println!("{}", figures.to_json());
    let (read_ms, scored_ms) = (read.as_millis(), scored.as_millis());
    eprintln!("read {read_ms} ms, scored {scored_ms} ms");
    Ok(())
}
