//! Checkpoints: written while training waits, compressed, or handed to a thread.

use std::fs;
use std::io::Write;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use percept_models::study::pipeline::{Figure, Writing};
use percept_train::checkpoint::{CheckpointError, CheckpointFolder, CheckpointWriter};
use percept_train::{Probe, TrainError};

use super::{Amount, Bench, Measurements};
use crate::fail::{Blame, Result};
use crate::training::blame;

/// How often the bar moves.
pub const STEPS: usize = 1;
const KEPT: usize = 2;

pub fn measure(bench: &Bench<'_>, probe: &mut Probe, measured: &mut Measurements) -> Result<()> {
    let checked = |error: CheckpointError| blame(TrainError::from(error));
    let mut snapshot = || {
        let (learner, config) = (&bench.settled.learner, &bench.settled.config);
        probe.snapshot(learner, config).map_err(blame)
    };
    // It is the clock that a training waits by.
    let folder = CheckpointFolder::open(&bench.scratch.join("waiting"), KEPT).map_err(checked)?;
    let begun = Instant::now();
    let path = folder.save(&snapshot()?).map_err(checked)?;
    let waiting = since(begun);
    let file = fs::read(&path).bad_input()?;

    let begun = Instant::now();
    let mut compressed = ZlibEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&file).bad_input()?;
    let compressed = compressed.finish().bad_input()?;
    let compressing = since(begun);

    let folder = CheckpointFolder::open(&bench.scratch.join("aside"), KEPT).map_err(checked)?;
    let writer = CheckpointWriter::start(folder).map_err(checked)?;
    let begun = Instant::now();
    writer.save(snapshot()?).map_err(checked)?;
    let aside = since(begun);
    writer.finish().map_err(checked)?;

    for (writing, ms, bytes) in [
        (Writing::Waiting, waiting, file.len()),
        (Writing::Compressed, waiting + compressing, compressed.len()),
        (Writing::Aside, aside, file.len()),
    ] {
        measured.set(Figure::Checkpoint(writing), Amount::Ms(ms));
        measured.set(
            Figure::CheckpointBytes(writing),
            Amount::Bytes(bytes as u64),
        );
    }
    bench.bar.inc(1);
    Ok(())
}

fn since(begun: Instant) -> f64 {
    1e3 * begun.elapsed().as_secs_f64()
}
