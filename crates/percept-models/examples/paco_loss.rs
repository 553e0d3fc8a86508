//! Times PaCo-2's loss behind the backbone, node by node, forward and backward: one form after the other.
//!
//! `cargo run --release -p percept-models --example paco_loss [images] [channels] [d] [rounds]`

use std::sync::Arc;

use percept_data::ModelWeights;
use percept_data::seeded::{Family, seeded_values};
use percept_engine::{Options, Program, Recording};
use percept_graph::{Tensor, ValueId, differentiate};
use percept_kernels::Cpu;
use percept_models::paco::{LABELS, LossForm, Paco};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (images, channels, d, rounds) = (number(8)?, number(2048)?, number(64)?, number(30)?);
    for (name, base) in [("published", Paco::PUBLISHED), ("stable", Paco::STABLE)] {
        for form in [LossForm::Exact, LossForm::Gram, LossForm::Naive] {
            let rounds = if form == LossForm::Naive { 1 } else { rounds };
            let paco = Paco {
                loss: form,
                d,
                ..base
            };
            println!(
                "{name}, {form:?}, {images} images, {channels} channels, d {d}: median ms of {rounds}"
            );
            for (node, ms) in medians(&paco, images, channels, rounds)? {
                println!("  {ms:9.3}  {node}");
            }
        }
    }
    Ok(())
}

/// The median time of each step.
fn medians(
    paco: &Paco,
    images: usize,
    channels: usize,
    rounds: usize,
) -> Result<Vec<(String, f64)>, Failure> {
    let network = paco.loss_graph(channels)?;
    let graph = network.clone().with_state();
    let loss = graph.find("loss")?;
    let mut wrt: Vec<ValueId> = graph.states().iter().map(|state| state.value).collect();
    wrt.push(graph.find("features")?);
    let result = differentiate(graph, loss, &wrt)?;
    let mut graph = result.graph;
    for (position, gradient) in result.gradients.values().enumerate() {
        graph = graph.with_output(&format!("gradient_{position}"), *gradient);
    }
    let weights = Arc::new(ModelWeights::seeded(&network));
    let mut program = Program::new(graph, weights, Cpu::new(1)?, Options::default());
    let shape = vec![2 * images, channels, 7, 7];
    let mut data = seeded_values(Family::Vision, "input.paco_loss", &shape);
    data.iter_mut().for_each(|value| *value = value.max(0.0));
    let features = Tensor { shape, data };
    let labels = Tensor {
        shape: vec![images],
        data: (0..images).map(|i| i as f32).collect(),
    };
    let inputs = [("features", &features), (LABELS, &labels)];
    program.run(&inputs)?;
    let mut recording = Recording::default();
    for _ in 0..rounds {
        program.run_recorded(&inputs, Some(&mut recording))?;
    }
    let bindings = &recording.runs[0].bindings;
    let mut rows = Vec::new();
    for info in program.step_infos(bindings)? {
        let times = recording.runs.iter().map(|run| {
            let own = run.steps.iter().filter(|step| step.step == info.step);
            own.map(|step| step.elapsed.as_secs_f64() * 1e3).sum()
        });
        rows.push((info.name, median(times.collect())));
    }
    let totals = recording
        .runs
        .iter()
        .map(|run| run.total.as_secs_f64() * 1e3);
    rows.push(("everything".to_owned(), median(totals.collect())));
    Ok(rows)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
