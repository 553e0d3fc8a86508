//! What a quantised network says about its layers, for `inspect` and `quantize`.

use percept_engine::{Precision, Quantization, is_contraction};
use percept_graph::{Graph, Operator as _, Per};
use percept_report::{Table, bytes};
use serde_json::{Value, json};

/// How many layers are in which precision.
pub struct Shares([usize; 3]);

const KINDS: [Precision; 3] = [Precision::I8, Precision::I16, Precision::F32];

/// The layers with weights of a network by precision.
pub fn shares(graph: &Graph) -> Shares {
    let mut counts = [0; 3];
    for node in graph.nodes().iter().filter(|node| is_contraction(node)) {
        let grids = graph.grids(node);
        let precision = grids.map_or(Precision::F32, |(weight, input)| {
            Quantization { weight, input }.precision()
        });
        counts[KINDS
            .iter()
            .position(|kind| *kind == precision)
            .unwrap_or(2)] += 1;
    }
    Shares(counts)
}

impl Shares {
    /// Layers in this precision.
    pub fn count(&self, precision: Precision) -> usize {
        KINDS
            .iter()
            .position(|kind| *kind == precision)
            .map_or(0, |at| self.0[at])
    }

    /// `87 in i8, 21 in f32`.
    pub fn text(&self) -> String {
        let kinds = KINDS.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{count} in {kind}"))
            .collect();
        kinds.join(", ")
    }
}

/// Whether a network has a layer in integers.
pub fn is_quantized(graph: &Graph) -> bool {
    graph.params().iter().any(|param| param.grid.is_some())
}

/// Bits, axis and range of each quantised layer, as the report lists them, and bytes by type.
pub fn table(graph: &Graph) -> String {
    let mut table = Table::new(&[
        "<layer", "<op", "<weights", "<axis", "bytes", "<inputs", "amax",
    ]);
    for node in graph.nodes() {
        let Some((weight, input)) = graph.grids(node) else {
            continue;
        };
        table.row([
            node.name.clone(),
            node.op.kind().to_owned(),
            format!("{} bit", weight.bits),
            match weight.per {
                Per::Channel => "0",
                Per::Tensor => "per tensor",
            }
            .to_owned(),
            bytes(graph.param(node.params[0]).bytes()),
            format!("{} bit", input.bits),
            input.amax.to_string(),
        ]);
    }
    let [integers, steps, floats] = stored_bytes(graph);
    let mut by_type = Table::new(&["<weights on disk", "bytes"]);
    by_type.row(["i8".to_owned(), bytes(integers)]);
    by_type.row(["steps of integers, f32".to_owned(), bytes(steps)]);
    by_type.row(["f32".to_owned(), bytes(floats)]);
    by_type.row(["all".to_owned(), bytes(integers + steps + floats)]);
    format!("{}\n{}", table.render(), by_type.render())
}

/// Bytes of integers, of their steps, and of floats.
fn stored_bytes(graph: &Graph) -> [u64; 3] {
    let mut sums = [0; 3];
    for param in graph.params() {
        match param.grid {
            None => sums[2] += param.bytes(),
            Some(_) => {
                sums[0] += param.elements() as u64;
                sums[1] += param.bytes() - param.elements() as u64;
            }
        }
    }
    sums
}

/// The same for programs.
pub fn plan_record(graph: &Graph) -> Value {
    let layers = graph.nodes().iter();
    let layers = layers.filter_map(|node| {
        let (weight, input) = graph.grids(node)?;
        Some(json!({
            "name": node.name, "weight_bits": weight.bits, "axis": match weight.per {
                Per::Channel => json!(0),
                Per::Tensor => Value::Null,
            },
            "input_bits": input.bits, "amax": match input.amax {
                percept_graph::Amax::Dynamic => json!("dynamic"),
                percept_graph::Amax::Static(amax) => json!(amax),
            },
        }))
    });
    layers.collect()
}
