//! Each op of a graph as standard ONNX operators, one file per family.

mod contraction;
mod elementwise;
mod layout;
mod map;
mod norm;
mod quantize;
mod unsupported;

use percept_graph::{Node, with_op};

use crate::ExportError;
use crate::lowering::{Lowering, unsupported};
use crate::schema::Attribute;

/// The ONNX names of a node's inputs.
type Names = Vec<String>;

/// What an op's form comes to.
type Done = Result<(), ExportError>;

/// The ONNX form of an op. Every op of inference has one, or says why not.
trait ToOnnx {
    /// Adds the ONNX nodes of a node whose inputs have these names.
    fn lower(&self, l: &mut Lowering<'_>, node: &Node, inputs: Names) -> Done;
}

/// Adds the ONNX nodes of one node.
pub(crate) fn lower_node(l: &mut Lowering<'_>, node: &Node) -> Result<(), ExportError> {
    if !l.graph.states().is_empty() {
        return Err(unsupported(node, "a training graph has state"));
    }
    let inputs = l.input_names(node);
    with_op!(
        &node.op,
        op => op.lower(l, node, inputs),
        training => Err(unsupported(node, "it belongs to training"))
    )
}

fn ints(values: impl IntoIterator<Item = usize>) -> Attribute {
    Attribute::Ints(values.into_iter().map(|value| value as i64).collect())
}

/// The same padding at the beginning and at the end of both axes.
fn pads([rows, columns]: [usize; 2]) -> Attribute {
    ints([rows, columns, rows, columns])
}
