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
