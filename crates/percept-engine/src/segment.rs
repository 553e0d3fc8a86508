//! Where a run must pause: a node that defines a symbol ends a segment, because what follows it cannot be
//! sized, and so not planned, before it has run.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use percept_graph::{Bindings, Graph, GraphError, TensorType};

use crate::lowering::Lowered;

/// Ranges of steps that are planned together. All but the last end with a step that defines symbols.
pub fn segments(graph: &Graph, lowered: &Lowered) -> Vec<Range<usize>> {
    let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
    for input in graph.inputs() {
        known.extend(own_symbols(&graph.value(input.value).ty));
    }
    let mut segments = Vec::new();
    let mut start = 0;
    for (i, step) in lowered.steps.iter().enumerate() {
        let defined = step
            .outputs
            .iter()
            .flat_map(|&value| own_symbols(&graph.value(value).ty));
        let before = known.len();
        known.extend(defined);
        if known.len() > before {
            segments.push(start..i + 1);
            start = i + 1;
        }
    }
    segments.push(start..lowered.steps.len());
    segments
}

/// Symbols that stand alone as an axis: the only place where a node can define one.
fn own_symbols(ty: &TensorType) -> impl Iterator<Item = Arc<str>> + '_ {
    ty.shape.iter().filter_map(|dim| dim.as_symbol().cloned())
}

/// Binds the symbols that `ty` defines to the sizes that came out, and checks the sizes known already.
pub fn bind_output(
    ty: &TensorType,
    shape: &[usize],
    bindings: &mut Bindings,
) -> Result<(), String> {
    let mismatch = || format!("gave a tensor of shape {shape:?} where {ty} was declared");
    if ty.shape.len() != shape.len() {
        return Err(mismatch());
    }
    for (dim, &size) in ty.shape.iter().zip(shape) {
        match (dim.eval(bindings), dim.as_symbol()) {
            (Ok(expected), _) if expected == size => {}
            (Err(GraphError::UnboundSymbol { .. }), Some(symbol)) => {
                bindings.insert(symbol.clone(), size);
            }
            _ => return Err(mismatch()),
        }
    }
    Ok(())
}
