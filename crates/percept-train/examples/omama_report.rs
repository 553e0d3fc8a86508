//! What each of the six sections of a published text on O-MaMa's bottlenecks is worth on this machine: the way that it describes,
//! and the way that percept goes, measured on a pair of the synthetic world in the public sizes.
//!
//! `cargo run --release -p percept-train --example omama_report`
//!
//! Times are CPU milliseconds of one thread, medians. `percept profile omama --train` has the tree of a training step.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use percept_data::egoexo::{
    DEST_MASKS, Direction, FoundMask, PairId, write_found_masks, write_results_json,
};
use percept_data::images::{decode_image, encode_jpeg};
use percept_data::masks::{Adjacency, Rle};
use percept_data::safetensors::write_safetensors;
use percept_data::seeded::{Family, seeded_values};
use percept_data::{ModelWeights, Sample};
use percept_engine::{Options, Program};
use percept_graph::{Tensor, WeightSource};
use percept_kernels::{Cpu, machine};
use percept_models::omama::Pooling;
use percept_models::{Model, Settings, zoo};
use percept_samples::{OpenOptions, open};
use percept_train::features::{FeatureOptions, FeatureType, Features};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Masks of the text's adjacency, and of a training sample.
const MASKS: usize = 64;
const OFFERED: usize = 32;
/// Numbers in a feature.
const WIDTH: usize = 768;

/// CPU milliseconds of a piece of work: the median of some runs.
fn measure(runs: usize, mut work: impl FnMut() -> Outcome) -> Outcome<f64> {
    let now = || machine::process_cpu_seconds().unwrap_or(f64::NAN);
    let mut times = Vec::new();
    for _ in 0..runs {
        let before = now();
        work()?;
        times.push(1e3 * (now() - before));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Milliseconds of the clock.
fn timed(work: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let begun = Instant::now();
    work()?;
    Ok(1e3 * begun.elapsed().as_secs_f64())
}

fn row(what: &str, before: f64, after: f64) {
    let ratio = before / after.max(1e-6);
    println!("  {what:<68} {before:>10.3} {after:>10.3} {ratio:>8.1}x");
}

fn heading(title: &str) {
    println!(
        "\n{title:<70} {:>10} {:>10} {:>9}",
        "as told", "here", "ratio"
    );
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// A network with seeded weights on one thread, and noise for its inputs.
fn ready(name: &str, set: &[&str]) -> Outcome<(Program, Vec<(String, Tensor<'static>)>)> {
    let model = zoo::build(name, &Settings::parse(set)?)?;
    let weights = Arc::new(ModelWeights::seeded(model.family, &model.graph));
    let program = Program::new(
        model.graph.clone(),
        weights,
        Cpu::new(1)?,
        Options::default(),
    );
    let mut inputs = Vec::new();
    for (name, mut shape) in model.input_shapes(1) {
        if name == "image" {
            shape = vec![1, 3, 700, 700];
        }
        let values = seeded_values(Family::Vision, &format!("input.{name}"), &shape);
        inputs.push((name.to_owned(), Tensor::from_values(shape, values)?));
    }
    Ok((program, inputs))
}

/// CPU milliseconds of an inference.
fn inference(name: &str, set: &[&str], runs: usize) -> Outcome<f64> {
    let (mut program, inputs) = ready(name, set)?;
    let given: Vec<(&str, &Tensor<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    program.run(&given)?;
    measure(runs, || {
        program.run(&given)?;
        Ok(())
    })
}

fn features(model: &Model, sample: &Sample) -> Outcome {
    heading("1. features: CPU ms for a picture of 700x700, ViT-B/14 with registers");
    let cold = inference("dinov2-vitb14", &["registers=4"], 2)?;
    let folder = tempfile::tempdir()?;
    let example = model.example(&Cpu::new(1)?, sample)?;
    let weights: Arc<dyn WeightSource> = Arc::new(ModelWeights::seeded(model.family, &model.graph));
    let pictures = ["source", "dest"];
    let cut = model
        .graph
        .cut_frozen(&pictures, |name| !name.starts_with("backbone"));
    let cut = [cut.ok_or("nothing to cut")?];
    for kind in [FeatureType::F32, FeatureType::F16] {
        let options = FeatureOptions {
            folder: Some(folder.path().to_owned()),
            kind,
            ..FeatureOptions::nowhere()
        };
        let kept = Features::new(&cut, &weights, &options)?;
        kept.complete(&mut example.clone())?;
        let read = measure(9, || Ok(kept.complete(&mut example.clone())?))?;
        let copy = measure(9, || {
            black_box(example.clone());
            Ok(())
        })?;
        let what = format!("computed in each epoch, or found by content and read ({kind:?})");
        row(&what, cold, 0.5 * (read - copy));
    }
    Ok(())
}

fn loading(sample: &Sample, masks: &[Rle]) -> Outcome {
    heading("2. data: CPU ms for a sample");
    let image = sample.image("source")?;
    let file = encode_jpeg(image, 90)?;
    let decoding = measure(9, || {
        black_box(decode_image(&file)?);
        Ok(())
    })?;
    println!(
        "  decoding a JPEG of {}x{}: {decoding:.2}",
        image.width, image.height
    );
    let planes: Vec<Vec<u8>> = masks.iter().map(Rle::decode).collect();
    let [height, width] = [masks[0].height(), masks[0].width()];
    let [low, narrow] = [height / 4, width / 4];
    let by_pixels = measure(5, || {
        for plane in &planes {
            let floats: Vec<f32> = plane.iter().map(|&inside| f32::from(inside)).collect();
            let at = |y: usize, x: usize| floats[y * height / low * width + x * width / narrow];
            let small: Vec<bool> = (0..low * narrow)
                .map(|i| at(i / narrow, i % narrow) > 0.5)
                .collect();
            black_box(small);
        }
        Ok(())
    })?;
    let by_runs = measure(9, || {
        for mask in masks {
            black_box(mask.resized_nearest(low, narrow)?);
        }
        Ok(())
    })?;
    row(
        &format!("{} masks resized: through floats, as runs", masks.len()),
        by_pixels,
        by_runs,
    );
    Ok(())
}

fn memory(masks: &[Rle]) {
    heading("3. memory: MB");
    row(
        "a picture of 704x704: as f32, as bytes (which is what the text counts)",
        megabytes(704 * 704 * 12),
        megabytes(704 * 704 * 3),
    );
    let planes: usize = masks
        .iter()
        .take(OFFERED)
        .map(|m| m.height() * m.width())
        .sum();
    let runs: usize = masks
        .iter()
        .take(OFFERED)
        .map(|m| 4 * m.counts().len())
        .sum();
    row(
        &format!("{OFFERED} masks: as planes of bytes, as runs"),
        megabytes(planes),
        megabytes(runs),
    );
    row(
        "features of a picture: f32, f16",
        megabytes(4 * 2500 * WIDTH),
        megabytes(2 * 2500 * WIDTH),
    );
    row(
        "for descriptors: the enlarged map, weights of patches",
        megabytes(4 * 175 * 175 * WIDTH),
        megabytes(4 * 2 * OFFERED * 2500),
    );
    println!(
        "  the similarity of a sample is 1 x {OFFERED}, not {OFFERED} x {OFFERED}: {} bytes",
        4 * OFFERED
    );
}

fn architecture(masks: &[Rle]) -> Outcome {
    heading("4. descriptors and head: CPU ms for one thing among 32");
    let [rows, columns] = [masks[0].height() / 14, masks[0].width() / 14];
    let features = seeded_values(Family::Vision, "input.features", &[rows * columns, WIDTH]);
    let seen = masks.iter().take(OFFERED);
    let seen = seen.map(|mask| mask.resized_nearest(14 * rows, 14 * columns));
    let seen: Vec<Rle> = seen.collect::<Result<_, _>>()?;
    let pooling = Pooling::new([14 * rows, 14 * columns]);
    let [tall, wide] = [rows * 14 / 4, columns * 14 / 4];
    let enlarged = measure(2, || {
        let patch = |y: usize, x: usize| (y * rows / tall) * columns + x * columns / wide;
        let map: Vec<&[f32]> = (0..tall * wide)
            .map(|i| &features[patch(i / wide, i % wide) * WIDTH..][..WIDTH])
            .collect();
        let map: Vec<f32> = map.concat();
        for mask in &seen {
            let mut mean = vec![0f32; WIDTH];
            let small = mask.resized_nearest(tall, wide)?.decode();
            for (place, _) in small.iter().enumerate().filter(|(_, inside)| **inside == 1) {
                let values = &map[place * WIDTH..][..WIDTH];
                mean.iter_mut()
                    .zip(values)
                    .for_each(|(mean, value)| *mean += value);
            }
            black_box(mean);
        }
        Ok(())
    })?;
    let weighing = measure(9, || {
        for mask in &seen {
            black_box(pooling.mask(mask)?);
            black_box(pooling.surroundings([100.0, 100.0, 80.0, 60.0], 100));
        }
        Ok(())
    })?;
    let product = inference("omama-descriptors", &[], 9)?;
    row(
        "descriptors: of an enlarged map, in the space of patches",
        enlarged,
        weighing + product,
    );
    println!("  of which weights of patches from runs {weighing:.2}, the product {product:.2}");
    let head = inference("omama-head", &[], 5)?;
    println!(
        "  the whole head, whose keys and values are never made: {head:.2} (PyTorch's: bench/peers/omama.py)"
    );
    Ok(())
}

fn files(masks: &[Rle]) -> Outcome {
    heading("5. files: ms of the clock that training waits");
    let folder = tempfile::tempdir()?;
    let parameters = [11_812_994 / 64, 64];
    let values = seeded_values(Family::Vision, "head.weight", &parameters);
    let tensors = [(
        "head.weight".to_owned(),
        Tensor::from_values(parameters, values)?,
    )];
    let path = folder.path().join("head.safetensors");
    let writing = timed(|| Ok(write_safetensors(&path, &tensors, &BTreeMap::new())?))?;
    let handing = timed(|| {
        black_box(tensors.clone());
        Ok(())
    })?;
    row(
        "a checkpoint of the head: written, handed to a writer's thread",
        writing,
        handing,
    );
    let file = std::fs::read(&path)?;
    let mut squeezed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let squeezing = timed(|| Ok(squeezed.write_all(&file)?))?;
    let share = 100.0 * squeezed.finish()?.len() as f64 / file.len() as f64;
    println!(
        "  compressing it takes {squeezing:.0} and leaves {share:.0} % of {:.1} MB: not worth it",
        megabytes(file.len())
    );
    let answer = |frame: u32| FoundMask {
        pair: PairId {
            take: "take".to_owned(),
            object: "cup".to_owned(),
            source_camera: "exo".to_owned(),
            dest_camera: "ego".to_owned(),
            frame,
        },
        mask: masks[frame as usize % masks.len()].clone(),
        confidence: 0.7,
    };
    let found: Vec<FoundMask> = (0..2000).map(answer).collect();
    let [json, compact] = ["r.json", "r.safetensors"].map(|name| folder.path().join(name));
    let text = timed(|| {
        Ok(write_results_json(
            &json,
            Direction::ExoToEgo,
            &found,
            |_| Ok(Vec::new()),
        )?)
    })?;
    let binary = timed(|| Ok(write_found_masks(&compact, &found)?))?;
    row("2000 answers: JSON, safetensors", text, binary);
    let size = |path| std::fs::metadata(path).map_or(0, |about| about.len() as usize);
    println!(
        "  of {:.2} and {:.2} MB",
        megabytes(size(&json)),
        megabytes(size(&compact))
    );
    Ok(())
}

fn adjacency(masks: &[Rle]) -> Outcome {
    heading("6. adjacency: CPU ms for 64 masks");
    let planes: Vec<Vec<u8>> = masks.iter().map(Rle::decode).collect();
    let width = masks[0].width();
    let scanning = measure(5, || {
        for plane in &planes {
            let inside = plane.iter().enumerate().filter(|(_, inside)| **inside == 1);
            let sums = inside.fold([0u64; 3], |[y, x, n], (place, _)| {
                [
                    y + (place / width) as u64,
                    x + (place % width) as u64,
                    n + 1,
                ]
            });
            black_box(sums);
        }
        Ok(())
    })?;
    let from_runs = measure(9, || {
        masks.iter().for_each(|mask| {
            black_box(mask.centroid());
        });
        Ok(())
    })?;
    row("centroids: of all pixels, from runs", scanning, from_runs);
    let whole = measure(9, || {
        black_box(Adjacency::of_masks(masks).matrix(2));
        Ok(())
    })?;
    println!("  centroids, triangulation and second order: {whole:.3}, which no cache need save");
    Ok(())
}

fn main() -> Outcome {
    let model = zoo::build("omama", &Settings::none())?;
    let options = OpenOptions {
        threads: 2,
        ..OpenOptions::default()
    };
    let sample = open(&model, &[], &options)?.sample(0)?;
    let own = sample.masks(DEST_MASKS)?;
    let masks: Vec<Rle> = own.iter().cycle().take(MASKS).cloned().collect();
    println!("{}, {} candidates", sample.name, own.len());
    loading(&sample, &masks)?;
    memory(&masks);
    architecture(&masks)?;
    files(own)?;
    adjacency(&masks)?;
    features(&model, &sample)
}
