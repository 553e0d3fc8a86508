//! How long pictures take: `cargo run --release -p percept-world --example speed -- street 704x256 10`, or `room 224x224 20`.
//! Wall time per frame; run it under `time` for CPU time.

use std::error::Error;
use std::time::Instant;

use percept_kernels::Cpu;
use percept_world::{
    CameraRig, EgoExo, EgoExoConfig, PictureSize, Weather, World, WorldConfig, WorldKind,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, size, frames] = &arguments[..] else {
        return Err("expected: street|room WIDTHxHEIGHT FRAMES".into());
    };
    let (width, height) = size.split_once('x').ok_or("expected WIDTHxHEIGHT")?;
    let size = PictureSize::new(width.parse()?, height.parse()?)?;
    let frames: usize = frames.parse()?;
    let cpu = Cpu::new(2)?;
    let mut times_ms: Vec<f64> = match what.as_str() {
        "street" => {
            let mut world = World::new(WorldConfig::new(WorldKind::NuScenes, 0));
            let rig = CameraRig::nuscenes(size);
            world.ego_to_world(0);
            (0..frames)
                .map(|frame| timed_ms(|| world.views_under(&cpu, frame, &rig, &Weather::NOON)))
                .collect()
        }
        _ => {
            let rooms = EgoExo::new(EgoExoConfig {
                seed: 0,
                frames_per_take: 8,
                ego: size,
                exo: size,
            });
            (0..frames)
                .map(|frame| timed_ms(|| rooms.pair(&cpu, frame)))
                .collect()
        }
    };
    times_ms.sort_by(f64::total_cmp);
    let median = times_ms.get(times_ms.len() / 2).copied().unwrap_or(0.0);
    println!("{what} {size}: {median:.1} ms per frame on 2 threads, median of {frames}");
    Ok(())
}

fn timed_ms<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let done = work();
    let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
    drop(done);
    elapsed_ms
}
