//! Ops of inference that ONNX cannot say.

use std::sync::Arc;

use percept_graph::{ActiveSites, CustomOp, Knn, Node, Rulebook, SparseConv3d, SparseToDense};

use super::{Done, Names, ToOnnx};
use crate::lowering::{Lowering, unsupported};

macro_rules! no_onnx_form {
    ($reason:literal: $($op:ty),*) => {
        $(impl ToOnnx for $op {
            fn lower(&self, _: &mut Lowering<'_>, node: &Node, _: Names) -> Done {
                Err(unsupported(node, $reason))
            }
        })*
    };
}
no_onnx_form!(
    "sparse convolutions have no ONNX form":
    ActiveSites, Rulebook, SparseConv3d, SparseToDense
);
no_onnx_form!("the search for neighbours has no ONNX form": Knn);
no_onnx_form!("custom ops have no ONNX form": Arc<dyn CustomOp>);
