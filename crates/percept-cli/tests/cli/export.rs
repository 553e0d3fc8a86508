//! A file or nothing.

use crate::asking::assert_fails;
use crate::{TINY, percept};

#[test]
fn export_writes_a_file_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let onnx = folder.path().join("tiny.onnx");
    percept()
        .arg("export")
        .args(TINY)
        .arg("--onnx")
        .arg(&onnx)
        .assert()
        .success();
    assert!(std::fs::metadata(&onnx).unwrap().len() > 10_000);
    let nowhere = folder.path().join("missing/tiny.onnx");
    assert_fails(
        percept()
            .arg("export")
            .args(TINY)
            .arg("--onnx")
            .arg(&nowhere),
        3,
        &["tiny.onnx"],
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing half-written is left"
    );
}

#[test]
fn weights_are_written_in_half_precision_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let size = |half: bool| {
        let path = folder.path().join(format!("{half}.safetensors"));
        let mut export = percept();
        export
            .arg("export")
            .args(TINY)
            .arg("--safetensors")
            .arg(&path);
        if half {
            export.arg("--half");
        }
        export.assert().success();
        let weights = path.to_str().unwrap();
        let run = percept()
            .args(["run", TINY[0], "--weights", weights])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success() && told.contains("tensors"), "{told}");
        std::fs::metadata(&path).unwrap().len()
    };
    let (whole, half) = (size(false), size(true));
    assert!(half < whole * 3 / 4, "{half} of {whole} bytes");
    let both = [
        "export",
        TINY[0],
        "--onnx",
        "a.onnx",
        "--safetensors",
        "a.safetensors",
    ];
    assert_fails(percept().args(both), 2, &["--safetensors"]);
    assert_fails(percept().args(["export", TINY[0]]), 2, &["--onnx"]);
}
