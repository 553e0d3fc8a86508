//! Features: their names and shapes; the numbers are for files.

use percept_models::answer::Features;
use percept_report::Table;
use serde_json::{Value, json};

pub fn text(name: &str, features: &Features) -> String {
    let mut table = Table::new(&["<tensor", "<shape"]);
    for (name, tensor) in &features.tensors {
        table.row([name.clone(), format!("{:?}", tensor.shape())]);
    }
    format!("{name}\n{}\n", table.render())
}

pub fn record(features: &Features) -> Value {
    let tensors = features.tensors.iter();
    tensors
        .map(|(name, tensor)| json!({"name": name, "shape": tensor.shape()}))
        .collect()
}
