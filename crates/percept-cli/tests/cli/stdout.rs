//! Standard output that takes nothing, and readers that leave.

use std::io::Read;
use std::process::{Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;

fn percept() -> Command {
    Command::cargo_bin("percept").expect("the command is built")
}

#[test]
#[cfg(target_os = "linux")]
fn what_cannot_be_written_is_a_failure() {
    for verb in [&["inspect", "resnet18"][..], &["run", "relu"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = percept().args(verb).stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{verb:?}: {text}");
        assert!(
            text.contains("error: standard output cannot be written"),
            "{text}"
        );
    }
}

#[test]
fn a_reader_that_leaves_is_none() {
    // Far more than a pipe holds.
    let mut child = percept()
        .args(["inspect", "dinov2-vitl14", "--json", "--depth", "9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 16]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text, "");
}
