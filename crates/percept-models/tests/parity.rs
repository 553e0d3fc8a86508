//! Parity with the public implementations: seeded weights in, reference outputs out.
//!
//! The fixtures are parts of larger references. When the folder named by `PERCEPT_SHARED` (default `../shared` beside
//! the repository) exists, the whole references are checked too.

use crate::golden::Case;
use crate::stored::{Golden, shared};
use percept_engine::Mode;

const VISION: f64 = 1e-4;
/// `fast` mode: 1e-3 of the output's standard deviation.
const FAST: f64 = 1e-3;
/// Absolute, on tokens whose standard deviation is about 1.04.
const DINOV2: f64 = 2e-5;
const DINOV2_POSITIONS: f64 = 2e-7;

fn check_classifier(model: &str, file: &str, mode: Mode, tolerance: f64) {
    let golden = Golden::fixture(file);
    for (batch, height, width) in [(1, 64, 64), (1, 224, 224), (2, 97, 131)] {
        let size = format!("{batch}x{height}x{width}");
        let names = ["features", "logits"];
        Case::new(model, &[])
            .mode(mode)
            .input(&format!("input.cnn_{size}"), [batch, 3, height, width])
            .run(&names)
            .check_summaries(&golden, &format!("eval.{size}."), &names, tolerance);
    }
}

#[test]
fn resnet50() {
    check_classifier("resnet50", "resnet50_torchvision", Mode::Exact, VISION);
}

#[test]
fn resnet50_fast() {
    check_classifier("resnet50", "resnet50_torchvision", Mode::Fast, FAST);
}

#[test]
fn efficientnet_b0() {
    check_classifier(
        "efficientnet-b0",
        "efficientnet_b0_torchvision",
        Mode::Exact,
        VISION,
    );
}

#[test]
fn efficientnet_b0_fast() {
    check_classifier(
        "efficientnet-b0",
        "efficientnet_b0_torchvision",
        Mode::Fast,
        FAST,
    );
}

const TINY: [&str; 4] = ["embed=48", "depth=2", "heads=4", "image_size=70"];

fn tiny(tag: &str, registers: &str, size: [usize; 2]) {
    let golden = Golden::fixture("dinov2_tiny");
    let [height, width] = size;
    let settings: Vec<&str> = TINY.into_iter().chain([registers]).collect();
    let has_registers = registers != "registers=0";
    let tokens = ["x_norm_clstoken", "x_norm_patchtokens", "x_norm_regtokens"];
    let tokens = &tokens[..if has_registers { 3 } else { 2 }];
    let names: Vec<&str> = ["pos", "tokens_in"]
        .into_iter()
        .chain(tokens.iter().copied())
        .collect();
    let prefix = format!("{tag}.{height}x{width}.");
    for (mode, tolerance) in [(Mode::Exact, DINOV2), (Mode::Fast, FAST)] {
        let run = Case::new("dinov2-vits14", &settings)
            .mode(mode)
            .input(
                &format!("input.dinov2_{height}x{width}"),
                [1, 3, height, width],
            )
            .run(&names);
        run.check_whole(&golden, &prefix, &["pos"], DINOV2_POSITIONS);
        run.check_whole(&golden, &prefix, &names[1..], tolerance);
    }
}

#[test]
fn dinov2_tiny_at_every_size() {
    for size in [[42, 56], [70, 70], [112, 98]] {
        tiny("tiny", "registers=0", size);
        tiny("tiny_reg", "registers=4", size);
    }
}

#[test]
fn dinov2_vitb14_with_registers() {
    let golden = Golden::fixture("dinov2_vitb14_reg_98x126");
    let tokens = ["x_norm_clstoken", "x_norm_patchtokens", "x_norm_regtokens"];
    let taps = [
        ("blocks.0", "block0"),
        ("blocks.1", "block1"),
        ("blocks.5", "block5"),
        ("blocks.11", "block11"),
        ("blocks.0.norm1", "b0.norm1"),
        ("blocks.0.attn", "b0.attn"),
    ];
    let names: Vec<&str> = tokens
        .into_iter()
        .chain(taps.map(|(scope, _)| scope))
        .collect();
    let run = Case::new("dinov2-vitb14", &["registers=4"])
        .input("input.dinov2_98x126", [1, 3, 98, 126])
        .run(&names);
    run.check_whole(&golden, "", &tokens, DINOV2);
    for (scope, stored) in taps {
        run.check_summary(&golden, stored, scope, DINOV2);
    }
    let fast = Case::new("dinov2-vitb14", &["registers=4"])
        .mode(Mode::Fast)
        .input("input.dinov2_98x126", [1, 3, 98, 126])
        .run(&tokens);
    fast.check_whole(&golden, "", &tokens, FAST);
}

#[test]
fn dinov2_position_embeddings_at_every_size() {
    let golden = Golden::fixture("dinov2_vitb14_reg_98x126");
    for [height, width] in [
        [700, 700],
        [532, 952],
        [518, 518],
        [224, 224],
        [448, 448],
        [294, 602],
    ] {
        // One narrow block is enough: the position embedding depends on the width of a token only.
        Case::new("dinov2-vitb14", &["registers=4", "depth=1"])
            .input(
                &format!("input.dinov2_{height}x{width}"),
                [1, 3, height, width],
            )
            .run(&["pos"])
            .check_summary(
                &golden,
                &format!("pos.{height}x{width}"),
                "pos",
                DINOV2_POSITIONS,
            );
    }
}

#[test]
fn dinov2_vitb14_whole_reference() {
    let Some(folder) = shared("golden/vision") else {
        return;
    };
    let golden = Golden::open(&folder.join("dinov2_vitb14_reg_98x126.safetensors"));
    let run = Case::new("dinov2-vitb14", &["registers=4"])
        .input("input.dinov2_98x126", [1, 3, 98, 126])
        .run(&["pos", "tokens_in"]);
    run.check_whole(&golden, "", &["pos"], DINOV2_POSITIONS);
    run.check_whole(&golden, "", &["tokens_in"], DINOV2);
    let golden = Golden::open(&folder.join("dinov2_vitb14_reg_full.safetensors"));
    for [height, width] in [[518, 518], [700, 700], [532, 952]] {
        let prefix = format!("{height}x{width}.");
        let names = [
            "x_norm_clstoken",
            "x_norm_regtokens",
            "x_norm_patchtokens",
            "x_prenorm",
        ];
        let run = Case::new("dinov2-vitb14", &["registers=4"])
            .input(
                &format!("input.dinov2_{height}x{width}"),
                [1, 3, height, width],
            )
            .run(&names);
        run.check_whole(&golden, &prefix, &names[..2], DINOV2);
        for name in &names[2..] {
            run.check_summary(&golden, &format!("{prefix}{name}"), name, DINOV2);
        }
    }
}
