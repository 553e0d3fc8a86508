//! Asking the command for text, a record, or an error.

use assert_cmd::Command;
use serde_json::Value;

pub fn stdout(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).expect("text")
}

pub fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).expect("a JSON record")
}

/// One line that names what is wrong, the right exit code, nothing on stdout.
pub fn assert_fails(command: &mut Command, code: i32, words: &[&str]) {
    let output = command.assert().code(code).stdout("").get_output().clone();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in ["error: "].iter().chain(words) {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
}
