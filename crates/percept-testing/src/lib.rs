//! What the tests of all crates share: a test that cannot run says so, and is counted.
//!
//! A test that needs a folder or a tool that is not there passes, because the suite must pass anywhere; but it is no proof
//! of anything then. It prints that it was skipped, and `scripts/test.sh`, which names a file in `PERCEPT_SKIPPED`, lists
//! all that were.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that takes a line for each test that was skipped.
pub const SKIPPED_VARIABLE: &str = "PERCEPT_SKIPPED";
/// The folder of references and data that are too large for the repository; `../shared` beside it where unset.
pub const SHARED_VARIABLE: &str = "PERCEPT_SHARED";

/// Says that the running test is skipped, and why.
///
/// # Panics
/// When the line cannot be written: a test that is skipped in silence counts as one that ran.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test without a name");
    eprintln!("skipped: {reason}");
    if let Some(list) = std::env::var_os(SKIPPED_VARIABLE) {
        append(Path::new(&list), &format!("{test}: {reason}\n"));
    }
}

/// One write, so that lines of tests that run at the same time stay whole.
fn append(list: &Path, line: &str) {
    let opened = OpenOptions::new().create(true).append(true).open(list);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write to {}: {error}", list.display()));
}

/// A file or folder of the shared folder; where it is missing, the test is skipped.
pub fn shared(part: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os(SHARED_VARIABLE).map_or(default, PathBuf::from);
    let path = root.join(part);
    if !path.exists() {
        skipped(format_args!(
            "{} does not exist (set {SHARED_VARIABLE})",
            path.display()
        ));
        return None;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added() {
        let name = format!("percept-testing-{}", std::process::id());
        let list = std::env::temp_dir().join(name);
        append(&list, "one: no folder\n");
        append(&list, "two: no tool\n");
        let lines = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        assert_eq!(lines, "one: no folder\ntwo: no tool\n");
    }
}
