//! The command as a user meets it: output, errors, exit codes, files.

#[path = "../asking/mod.rs"]
mod asking;
mod bench;
mod describe;
mod export;
mod mistakes;
mod pairs;
mod profile;
mod quantize;
mod run;
mod stdout;
mod stream;
mod verify;
mod weights;

use std::path::Path;

use assert_cmd::Command;

/// A small network that runs in milliseconds.
const TINY: [&str; 9] = [
    "dinov2-vits14",
    "--set",
    "embed=48",
    "--set",
    "depth=2",
    "--set",
    "heads=4",
    "--set",
    "image_size=70",
];

/// CenterPoint on a square of 12 m: the whole way in a fraction of a second.
const NEAR: [&str; 3] = ["centerpoint", "--set", "range=6"];

fn percept() -> Command {
    let mut command = Command::cargo_bin("percept").expect("the command is built");
    command.args(["--threads", "2"]);
    command
}

/// A small PNG of horizontal stripes.
fn image(path: &Path) {
    let pixels: Vec<u8> = (0..40 * 60 * 3).map(|i| (i / 180 * 6) as u8).collect();
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 60, 40);
    encoder.set_color(png::ColorType::Rgb);
    encoder
        .write_header()
        .unwrap()
        .write_image_data(&pixels)
        .unwrap();
}

/// Some points as a nuScenes file.
fn sweep(path: &Path, points: &[[f32; 5]]) {
    let bytes: Vec<u8> = points
        .iter()
        .flatten()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    std::fs::write(path, bytes).unwrap();
}
