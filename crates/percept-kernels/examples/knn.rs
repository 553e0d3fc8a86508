//! Times the search for neighbours: `cargo run --release -p percept-kernels --example knn -- cloud.bin [threads] [repeats]`.
//!
//! The file holds x, y, z as f32, one point after the other. Prints the medians of wall and CPU time in milliseconds: of the
//! tree, of the lists of 16 neighbours, and of all levels of RandLA-Net.

use std::time::Instant;

use percept_kernels::Cpu;
use percept_kernels::machine::process_cpu_seconds;
use percept_kernels::points::{LevelPlan, Numbering, PointTree, levels};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the name of a file of points")?;
    let threads = arguments.next().map_or(Ok(1), |value| value.parse())?;
    let repeats: usize = arguments.next().map_or(Ok(9), |value| value.parse())?;
    let bytes = std::fs::read(&path)?;
    let numbers: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    let points = numbers.as_chunks::<3>().0;
    let cpu = Cpu::new(threads)?;
    let mut times = [const { Vec::new() }; 4];
    let plan = LevelPlan {
        ratios: &[4, 4, 4, 4],
        k: 16,
        up_k: 1,
        priority: None,
    };
    for _ in 0..repeats {
        let mut rows = Vec::new();
        let trees = [Numbering::Rows, Numbering::Places].map(|numbering| {
            let (tree, time) = timed(|| PointTree::build(&cpu, points, numbering));
            rows.push(time);
            tree
        });
        times[0].push(rows[0]);
        for (slot, tree) in trees.into_iter().enumerate() {
            let tree = tree?;
            let mut index = vec![0; tree.lists() * tree.list_len(16)];
            let ((), time) = timed(|| tree.neighbours(&cpu, 16, &mut index, None));
            times[1 + slot].push(time);
        }
        let (made, time) = timed(|| levels(&cpu, points, &plan));
        made?;
        times[3].push(time);
    }
    println!(
        "{} points, {threads} threads, {repeats} repeats",
        points.len()
    );
    let names = [
        "tree",
        "neighbours by row",
        "neighbours by place",
        "all levels",
    ];
    for (name, times) in names.into_iter().zip(times) {
        let (wall, cpu): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
        println!(
            "{name}: {:.2} ms wall, {:.2} ms CPU",
            median(wall),
            median(cpu)
        );
    }
    Ok(())
}

/// What `work` gives, and the milliseconds it took: (wall, CPU of all threads).
fn timed<T>(work: impl FnOnce() -> T) -> (T, (f64, f64)) {
    let cpu_seconds = || process_cpu_seconds().unwrap_or(f64::NAN);
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let value = work();
    let spent = cpu_seconds() - cpu;
    let wall = wall.elapsed().as_secs_f64();
    (value, (wall * 1e3, spent * 1e3))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
