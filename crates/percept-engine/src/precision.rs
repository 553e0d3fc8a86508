//! Which layers compute in which precision.

use std::collections::BTreeMap;
use std::fmt;

use percept_graph::Graph;

use crate::EngineError;

/// What a layer's products are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// Signed bytes, summed in 32-bit integers.
    I8,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::I8 => "i8",
        })
    }
}

/// A precision for each scope that is to differ from [`Precision::F32`]; an inner scope decides before an outer one.
///
/// It is about layers with weights. What surrounds them follows the types of their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrecisionPlan {
    by_scope: BTreeMap<String, Precision>,
}

impl PrecisionPlan {
    /// Everything in f32.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same plan with this precision for a scope: a layer's name, a module's, or "" for the whole network.
    pub fn with(mut self, scope: impl Into<String>, precision: Precision) -> Self {
        self.by_scope.insert(scope.into(), precision);
        self
    }

    /// The precision of the node of this name.
    pub fn of(&self, node: &str) -> Precision {
        let mut scope = node;
        loop {
            if let Some(&precision) = self.by_scope.get(scope) {
                return precision;
            }
            scope = match (scope.rsplit_once('.'), scope) {
                (Some((outer, _)), _) => outer,
                (None, "") => return Precision::default(),
                (None, _) => "",
            };
        }
    }

    /// Refuses scopes that hold no node of the graph.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), EngineError> {
        let holds = |scope: &str, node: &str| {
            let rest = node.strip_prefix(scope);
            scope.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for scope in self.by_scope.keys() {
            if !graph.nodes().iter().any(|node| holds(scope, &node.name)) {
                let scope = scope.clone();
                return Err(EngineError::UnknownScope { scope });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_scope_decides() {
        let plan = PrecisionPlan::new()
            .with("layer1", Precision::I8)
            .with("layer1.0.conv2", Precision::F32)
            .with("fc", Precision::I8);
        for (node, expected) in [
            ("layer1.0.conv1", Precision::I8),
            ("layer1.0.conv2", Precision::F32),
            ("layer10.conv1", Precision::F32),
            ("fc", Precision::I8),
            ("conv1", Precision::F32),
        ] {
            assert_eq!(plan.of(node), expected, "{node}");
        }
        let whole = PrecisionPlan::new().with("", Precision::I8);
        assert_eq!(whole.of("layer1.0.conv1"), Precision::I8);
    }
}
