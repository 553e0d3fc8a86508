//! Descriptors: their first numbers for people, all of them for programs.

use percept_models::answer::Descriptor;
use serde_json::{Value, json};

/// Numbers that people see.
const SHOWN: usize = 6;

pub fn text(name: &str, descriptor: &Descriptor) -> String {
    let values = &descriptor.values;
    let first: Vec<String> = values
        .iter()
        .take(SHOWN)
        .map(|v| format!("{v:+.4}"))
        .collect();
    let more = if values.len() > SHOWN { ", ..." } else { "" };
    format!(
        "{name}: a descriptor of {} numbers\n  {}{more}\n",
        values.len(),
        first.join(", ")
    )
}

pub fn record(descriptor: &Descriptor) -> Value {
    json!({"values": descriptor.values})
}
