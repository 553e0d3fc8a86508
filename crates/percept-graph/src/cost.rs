//! What a node costs, before anything runs.
//!
//! `macs` counts the multiply-adds of contractions (convolution, linear, matrix products, attention)
//! as fvcore does; `other_ops` counts the arithmetic of everything else, one for each add, multiply,
//! comparison or transcendental, so that no op is free and the two are never mixed.

use crate::ops::Operator;
use crate::{Bindings, Dim, Graph, GraphError, Node, NodeId};

/// A count that may depend on symbols, or on data that only a run knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Known once the symbols are bound.
    Known(Dim),
    /// Depends on the data: a run measures it. Never confused with zero.
    Unknown,
}

impl Amount {
    /// Nothing of it.
    pub fn zero() -> Self {
        Amount::Known(Dim::from(0))
    }

    /// The count for these symbol values; `None` when only a run can tell.
    pub fn eval(&self, bindings: &Bindings) -> Result<Option<u64>, GraphError> {
        match self {
            Amount::Known(dim) => match dim.eval(bindings) {
                Ok(count) => Ok(Some(count as u64)),
                // A size that a run defines is not known yet.
                Err(GraphError::UnboundSymbol { .. }) => Ok(None),
                Err(other) => Err(other),
            },
            Amount::Unknown => Ok(None),
        }
    }
}

impl From<Dim> for Amount {
    fn from(dim: Dim) -> Self {
        Amount::Known(dim)
    }
}

/// The cost of an op, in symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-adds of contractions.
    pub macs: Amount,
    /// Arithmetic operations that are not multiply-adds of a contraction.
    pub other_ops: Amount,
}

impl Cost {
    /// A contraction.
    pub fn macs(macs: Dim) -> Self {
        Self {
            macs: macs.into(),
            other_ops: Amount::zero(),
        }
    }

    /// An op without contraction that does `per_element` operations on each of `elements`.
    pub fn elementwise(elements: Dim, per_element: i64) -> Self {
        Self {
            macs: Amount::zero(),
            other_ops: (elements * per_element).into(),
        }
    }

    /// An op that only moves or renames data.
    pub fn movement() -> Self {
        Self {
            macs: Amount::zero(),
            other_ops: Amount::zero(),
        }
    }
}

/// The cost of one node for bound sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCost {
    /// Whose cost.
    pub node: NodeId,
    /// Multiply-adds; `None` when it depends on data.
    pub macs: Option<u64>,
    /// Other arithmetic; `None` when it depends on data.
    pub other_ops: Option<u64>,
    /// Bytes of inputs and parameters.
    pub bytes_read: u64,
    /// Bytes of outputs.
    pub bytes_written: u64,
}

/// The cost of all nodes of one op kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpTotals {
    /// Number of nodes.
    pub nodes: usize,
    /// Multiply-adds of the nodes whose count is known.
    pub macs: u64,
    /// Other arithmetic of the nodes whose count is known.
    pub other_ops: u64,
    /// Nodes whose cost depends on data.
    pub unknown: usize,
}

impl Graph {
    /// The cost of one node.
    pub fn node_cost(&self, node: &Node, bindings: &Bindings) -> Result<NodeCost, GraphError> {
        let bytes_of = |values: &[crate::ValueId]| -> Result<u64, GraphError> {
            values
                .iter()
                .map(|&value| self.value_bytes(value, bindings))
                .sum()
        };
        let param_bytes: u64 = node.params.iter().map(|&p| self.param(p).bytes()).sum();
        let cost = self.symbolic_cost(node);
        Ok(NodeCost {
            node: node.id,
            macs: cost.macs.eval(bindings)?,
            other_ops: cost.other_ops.eval(bindings)?,
            bytes_read: bytes_of(&node.inputs)? + param_bytes,
            bytes_written: bytes_of(&node.outputs)?,
        })
    }

    /// The cost of every node, in execution order.
    pub fn costs(&self, bindings: &Bindings) -> Result<Vec<NodeCost>, GraphError> {
        self.nodes()
            .iter()
            .map(|node| self.node_cost(node, bindings))
            .collect()
    }

    /// Multiply-adds of the whole graph: conv, linear, matrix products, attention (fvcore's figure plus attention).
    pub fn total_macs(&self, bindings: &Bindings) -> Result<u64, GraphError> {
        Ok(self
            .costs(bindings)?
            .iter()
            .filter_map(|cost| cost.macs)
            .sum())
    }

    /// Whether [`Graph::total_macs`] leaves out layers whose multiply-adds depend on the data.
    pub fn macs_depend_on_data(&self, bindings: &Bindings) -> Result<bool, GraphError> {
        Ok(self.costs(bindings)?.iter().any(|cost| cost.macs.is_none()))
    }

    /// Costs summed by op kind, in order of first appearance.
    pub fn costs_by_kind(
        &self,
        bindings: &Bindings,
    ) -> Result<Vec<(&'static str, OpTotals)>, GraphError> {
        let mut totals: Vec<(&'static str, OpTotals)> = Vec::new();
        for (node, cost) in self.nodes().iter().zip(self.costs(bindings)?) {
            let kind = node.op.kind();
            let index = totals
                .iter()
                .position(|(k, _)| *k == kind)
                .unwrap_or_else(|| {
                    totals.push((kind, OpTotals::default()));
                    totals.len() - 1
                });
            let total = &mut totals[index].1;
            total.nodes += 1;
            total.macs += cost.macs.unwrap_or(0);
            total.other_ops += cost.other_ops.unwrap_or(0);
            total.unknown += usize::from(cost.macs.is_none() || cost.other_ops.is_none());
        }
        Ok(totals)
    }
}
