//! Pieces of work that a network brings.

use std::sync::Arc;

use percept_data::seeded::{Family, seeded_values};
use percept_data::{Example, ModelWeights};
use percept_engine::{Options, Recording};
use percept_graph::{Graph, Tensor, WeightSource};
use percept_kernels::Cpu;
use percept_models::study::pipeline::{Figure, Piece, Work};

use super::super::super::Subject;
use super::{Amount, Bench, Measurements, median_ms};
use crate::fail::{Blame, Result};

pub fn measure(bench: &Bench<'_>, pieces: &mut [Piece], measured: &mut Measurements) -> Result<()> {
    for Piece { name, work } in pieces {
        let amount = match work {
            Work::Bytes(bytes) => Amount::Bytes(*bytes as u64),
            Work::Time(work) => {
                work().bad_input()?;
                Amount::Ms(median_ms(bench.repeats, || work().bad_input())?)
            }
            Work::Graph(graph, inputs) => {
                let (ms, held) = inference(bench, graph, inputs)?;
                measured.set(Figure::PieceMemory(name), Amount::Bytes(held as u64));
                Amount::Ms(ms)
            }
        };
        measured.set(Figure::Piece(name), amount);
        bench.bar.inc(1);
    }
    Ok(())
}

/// The time of an inference on noise, and the values that it holds at its peak.
fn inference(
    bench: &Bench<'_>,
    graph: &Graph,
    inputs: &[(&'static str, Vec<usize>)],
) -> Result<(f64, usize)> {
    let weights: Arc<dyn WeightSource> = Arc::new(ModelWeights::seeded(Family::Vision, graph));
    let noise = inputs.iter().map(|(name, shape)| {
        let values = seeded_values(Family::Vision, &format!("input.{name}"), shape);
        Ok((
            *name,
            Tensor::from_values(shape.as_slice(), values).bad_input()?,
        ))
    });
    let noise: Vec<_> = noise.collect::<Result<_>>()?;
    let cpu = Cpu::new(bench.threads).bad_input()?;
    let noise = Example::of_one(noise);
    let mut subject = Subject::of_graph(graph.clone(), &weights, noise, cpu, Options::default());
    let mut recording = Recording::default();
    subject.run(Some(&mut recording))?;
    let held = subject
        .program()
        .memory_at_peak(&recording.runs[0].bindings);
    let ms = median_ms(bench.repeats, || subject.run(None))?;
    Ok((ms, held.live_bytes))
}
