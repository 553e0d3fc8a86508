//! The `percept` command.
fn main() {}
