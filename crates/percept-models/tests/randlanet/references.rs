//! Names, answers and neighbours of the public networks.

use percept_engine::{Memory, Mode};
use percept_kernels::Cpu;
use percept_models::randlanet::{KnnCache, RandLaNet};

use super::{BENCH, CFG3, CFG7, EXACT, FAST, compare, logits, networks, options, rows, seed};
use crate::stored::{Golden, shared};

#[test]
fn names_and_shapes_are_those_of_the_public_checkpoints() {
    let manifests = [
        include_str!("../fixtures/randlanet_faithful.txt"),
        include_str!("../fixtures/randlanet_seed_cfg3.txt"),
        include_str!("../fixtures/randlanet_seed_bench.txt"),
    ];
    for ((name, network), manifest) in networks().into_iter().zip(manifests) {
        let graph = network.graph().expect("it builds");
        let mut got: Vec<String> = graph
            .params()
            .iter()
            .map(|param| {
                let sizes: Vec<String> = param.shape.iter().map(usize::to_string).collect();
                format!("{} {}", param.name, sizes.join("x"))
            })
            .collect();
        let mut expected: Vec<&str> = manifest.lines().collect();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "{name}");
    }
    let counts: Vec<usize> = [RandLaNet::faithful(19), seed(CFG3), seed(BENCH), seed(CFG7)]
        .iter()
        .map(|network| network.graph().expect("it builds").parameter_count())
        .collect();
    assert_eq!(counts, [1_242_307, 1_252_010, 326_858, 5_200_938]);
}

/// Every 16th point of the references, which the fixture holds.
#[test]
fn generated_cloud() {
    let golden = Golden::fixture("randlanet_synth");
    let points = golden.values("points");
    for (name, network) in networks() {
        let rows = rows(&points, network.channels_in);
        let expected = golden.values(&format!("{name}.logits"));
        let deviation = f64::from(golden.values(&format!("{name}.stats"))[1]);
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let all = logits(&network, &[&rows], options(mode, Memory::Frugal));
            let some: Vec<f32> = all
                .chunks(network.classes)
                .step_by(16)
                .flatten()
                .copied()
                .collect();
            compare(
                &format!("{name} {mode:?}"),
                &some,
                &expected,
                tolerance * deviation,
            );
        }
    }
}

#[test]
fn whole_references() {
    let Some(folder) = shared("golden/randlanet") else {
        return;
    };
    for (name, network) in networks() {
        let golden = Golden::open(&folder.join(format!("{name}_synth4096.safetensors")));
        let rows = rows(&golden.values("points"), network.channels_in);
        let deviation = f64::from(golden.values("logits.stats")[1]);
        let points = rows.len() / network.channels_in;
        let by_class = golden.values("logits.full");
        let expected: Vec<f32> = (0..points * network.classes)
            .map(|at| by_class[at % network.classes * points + at / network.classes])
            .collect();
        let argmax = golden.indices("argmax");
        for (mode, tolerance) in [(Mode::Exact, EXACT), (Mode::Fast, FAST)] {
            let got = logits(&network, &[&rows], options(mode, Memory::Frugal));
            let tolerance = tolerance * deviation;
            compare(&format!("{name} {mode:?}"), &got, &expected, tolerance);
            for (row, (scores, &best)) in got.chunks(network.classes).zip(&argmax).enumerate() {
                let clear = scores.iter().enumerate().all(|(class, &score)| {
                    class == best || f64::from(scores[best] - score) > 2.0 * tolerance
                });
                let unclear = scores.iter().any(|&score| {
                    f64::from((scores[best] - score).abs()) <= 4.0 * tolerance
                        && score != scores[best]
                });
                assert!(clear || unclear, "{name}: point {row} is not {best}");
            }
        }
    }
}

/// The levels that the network works on, against the public pipeline's, as sets.
#[test]
fn neighbours_are_those_of_the_public_pipeline() {
    let golden = Golden::fixture("randlanet_synth");
    let points: Vec<[f32; 3]> = golden
        .values("points")
        .as_chunks::<4>()
        .0
        .iter()
        .map(|p| [p[0], p[1], p[2]])
        .collect();
    let plan = percept_kernels::points::LevelPlan {
        ratios: &[4; 4],
        k: 16,
        up_k: 1,
        priority: None,
    };
    let cpu = Cpu::new(2).expect("two threads");
    let cloud = KnnCache::new()
        .build(&cpu, &points, &plan)
        .expect("it searches");
    for level in 0..4 {
        let nearest = cloud.query(&cpu, level + 1, level, 1).expect("levels");
        let expected = golden.indices(&format!("faithful.up{level}.idx"));
        assert!(
            nearest.rows.iter().map(|&row| row as usize).eq(expected),
            "up {level}"
        );
    }
    let near = cloud.query(&cpu, 2, 2, 16).expect("level 2");
    let expected = golden.indices("faithful.knn2.idx");
    for (at, expected) in expected.chunks(16).enumerate() {
        let mut got: Vec<usize> = near.list(at).0.iter().map(|&row| row as usize).collect();
        let mut expected = expected.to_vec();
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "point {at}");
    }
}
