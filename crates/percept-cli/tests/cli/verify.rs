//! What a run gave is what it verifies against.

use std::path::Path;

use crate::asking::stdout;
use crate::{TINY, percept};

#[test]
fn run_save_tap_and_verify() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("out.safetensors");
    let text = stdout(
        percept()
            .arg("run")
            .args(TINY)
            .args(["--tap", "blocks.0.attn", "--save"])
            .arg(&saved),
    );
    assert!(
        text.contains("blocks.0.attn") && text.contains("x_norm_patchtokens"),
        "{text}"
    );
    let listed = stdout(percept().arg("inspect").arg(&saved));
    assert!(listed.contains("blocks.0.attn"), "{listed}");

    // What it gave is what it verifies against, under the reference's names.
    let reference = folder.path().join("reference.safetensors");
    rename_tensors(&saved, &reference, 0.0);
    percept()
        .arg("verify")
        .args(TINY)
        .arg("--reference")
        .arg(&reference)
        .assert()
        .success();
    percept()
        .arg("verify")
        .args(TINY)
        .args(["--dtype", "f64", "--reference"])
        .arg(&reference)
        .assert()
        .success();
    // One changed value is found.
    rename_tensors(&saved, &reference, 0.5);
    let check = percept()
        .arg("verify")
        .args(TINY)
        .arg("--reference")
        .arg(&reference)
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&check.get_output().stdout).into_owned();
    assert!(
        text.contains("PAST TOLERANCE") && text.contains("NOT verified"),
        "{text}"
    );
}

/// Stores every tensor as `expect.NAME`, with `error` added to the first value of the first.
pub fn rename_tensors(from: &Path, to: &Path, error: f32) {
    let tensors = percept_data::safetensors::read_safetensors(from).unwrap();
    let mut error = Some(error);
    let renamed: Vec<_> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let mut values = tensor.to_f32().into_owned();
            values[0] += error.take().unwrap_or(0.0);
            let stored = percept_graph::Tensor::from_values(tensor.shape(), values).unwrap();
            (format!("expect.{name}"), stored)
        })
        .collect();
    percept_data::safetensors::write_safetensors(to, &renamed, &Default::default()).unwrap();
}
