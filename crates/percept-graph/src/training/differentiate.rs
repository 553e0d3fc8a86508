//! From a loss to the gradients of what it depends on: the reverse walk over the nodes.

use std::collections::BTreeMap;

use super::{Backward, Differentiable};
use crate::graph::{Graph, Node, ScopeId, ValueId, ValueSource};
use crate::ops::{Binary, BinaryKind, Constant, Operator};
use crate::{Builder, Dim, GraphError};

/// A graph with its backward nodes.
#[derive(Clone, Debug)]
pub struct Differentiated {
    /// Forward nodes, then backward nodes.
    pub graph: Graph,
    /// The gradient of each value asked for that the loss depends on.
    pub gradients: BTreeMap<ValueId, ValueId>,
}

/// Appends the nodes that compute the gradients of `loss` with respect to some values: state, inputs, or anything between.
///
/// Parameters become state first ([`Graph::with_state`]). Backward nodes stand in the scope of their forward node and carry
/// its name with a suffix, such as `layer1.0.conv1.grad_weight`.
pub fn differentiate(
    graph: Graph,
    loss: ValueId,
    with_respect_to: &[ValueId],
) -> Result<Differentiated, GraphError> {
    let graph = graph.with_state();
    let ty = &graph.value(loss).ty;
    if ty.elements() != Dim::from(1) {
        return Err(GraphError::NotALoss {
            value: name_of(&graph, loss).0,
            got: ty.to_string(),
        });
    }
    let needed = depend_on(&graph, with_respect_to);
    let forward: Vec<Node> = graph.nodes().to_vec();
    let mut walk = Walk {
        builder: Builder::resume(graph),
        parts: BTreeMap::new(),
    };
    walk.seed(loss);
    let mut gradients = BTreeMap::new();
    for node in forward.iter().rev() {
        let output_gradients: Vec<Option<ValueId>> =
            node.outputs.iter().map(|&value| walk.sum(value)).collect();
        for (&value, gradient) in node.outputs.iter().zip(&output_gradients) {
            if let Some(gradient) = gradient.filter(|_| with_respect_to.contains(&value)) {
                gradients.insert(value, gradient);
            }
        }
        let wanted: Vec<bool> = node.inputs.iter().map(|v| needed[v.index()]).collect();
        if output_gradients.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        walk.step(node, &output_gradients, wanted)?;
    }
    for &value in with_respect_to {
        if let Some(gradient) = walk.sum(value) {
            gradients.insert(value, gradient);
        }
    }
    let graph = walk.builder.finish()?;
    Ok(Differentiated { graph, gradients })
}

/// Which values depend smoothly on some of these.
fn depend_on(graph: &Graph, roots: &[ValueId]) -> Vec<bool> {
    let mut depends = vec![false; graph.values().len()];
    for root in roots {
        depends[root.index()] = true;
    }
    for node in graph.nodes() {
        if node.inputs.iter().any(|value| depends[value.index()]) {
            for value in &node.outputs {
                depends[value.index()] |= graph.value(*value).ty.dtype.is_float();
            }
        }
    }
    depends
}

/// The name and scope of the gradient of a value.
fn name_of(graph: &Graph, value: ValueId) -> (String, ScopeId) {
    match graph.value(value).source {
        ValueSource::Node(id, _) => (graph.node(id).name.clone(), graph.node(id).scope),
        ValueSource::Input(position) => (graph.inputs()[position].name.clone(), ScopeId(0)),
        ValueSource::State(position) => (graph.states()[position].name.clone(), ScopeId(0)),
    }
}

struct Walk {
    builder: Builder,
    /// Contributions to the gradient of each value, not summed yet.
    parts: BTreeMap<ValueId, Vec<ValueId>>,
}

impl Walk {
    /// The gradient of the loss by itself: one.
    fn seed(&mut self, loss: ValueId) {
        let (name, scope) = name_of(self.builder.graph(), loss);
        let one = Constant {
            value: 1.0,
            shape: self.builder.shape(loss),
        };
        let seed = self
            .builder
            .append(scope, &format!("{name}.grad"), one.into(), &[], &[]);
        self.parts.insert(loss, seed);
    }

    /// The gradient of a value, summed over everybody who reads it.
    fn sum(&mut self, value: ValueId) -> Option<ValueId> {
        let mut parts = self.parts.remove(&value)?.into_iter();
        let first = parts.next()?;
        let (name, scope) = name_of(self.builder.graph(), value);
        let name = format!("{name}.grad_sum");
        let add = Binary {
            kind: BinaryKind::Add,
        };
        Some(parts.fold(first, |sum, part| {
            self.builder
                .append(scope, &name, add.into(), &[sum, part], &[])[0]
        }))
    }

    fn step(
        &mut self,
        node: &Node,
        output_gradients: &[Option<ValueId>],
        wanted: Vec<bool>,
    ) -> Result<(), GraphError> {
        let mut back = Backward {
            builder: &mut self.builder,
            node,
            output_gradients,
            given: vec![None; wanted.len()],
            wanted,
        };
        let ruled = node.op.vector_jacobian(&mut back);
        ruled.map_err(|reason| GraphError::NotDifferentiable {
            node: node.name.clone(),
            op: node.op.kind(),
            reason,
        })?;
        let given = std::mem::take(&mut back.given);
        for ((&input, gradient), wanted) in node.inputs.iter().zip(given).zip(back.wanted) {
            if let Some(gradient) = gradient.filter(|_| wanted) {
                self.parts.entry(input).or_default().push(gradient);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Activation, BatchNorm, Conv2d, CrossEntropy, Reduce, ReduceKind, TensorType, ops::Op,
    };

    /// A residual block whose input is read twice, and a loss.
    fn network() -> Graph {
        let mut b = Builder::new("Net");
        let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
        let x = b.input("image", [n.clone(), 4.into(), h, w]);
        let x = b.conv2d("stem", x, Conv2d::new(4, 4, 3).padding(1));
        let y = b.module("block", "Block", |b| {
            let y = b.conv2d("conv", x, Conv2d::new(4, 4, 3).padding(1).no_bias());
            let y = b.batch_norm("bn", y, BatchNorm::new(4));
            let y = b.add("add", y, x);
            b.relu("relu", y)
        });
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![2, 3],
        };
        let y = b.call("pool", mean, &[y]);
        let y = b.flatten("flatten", y, 1);
        let labels = b.integer_input("labels", [n]);
        let loss = CrossEntropy { smoothing: 0.0 };
        let loss = b.call("loss", loss, &[y, labels]);
        b.output("loss", loss);
        b.finish().unwrap()
    }

    fn gradients_of(graph: Graph) -> Differentiated {
        let graph = graph.in_training();
        let loss = graph.find("loss").unwrap();
        let wrt: Vec<ValueId> = graph.states().iter().map(|state| state.value).collect();
        differentiate(graph, loss, &wrt).unwrap()
    }

    #[test]
    fn gradients_have_the_shape_of_what_they_belong_to() {
        let Differentiated { graph, gradients } = gradients_of(network());
        let trainable = ["stem.weight", "stem.bias", "block.conv.weight"];
        let trainable = trainable
            .into_iter()
            .chain(["block.bn.weight", "block.bn.bias"]);
        for name in trainable {
            let state = graph.state(name).unwrap();
            let gradient = gradients[&state.value];
            assert_eq!(
                graph.value(gradient).ty,
                graph.value(state.value).ty,
                "{name}"
            );
        }
        let running = graph.state("block.bn.running_mean").unwrap();
        assert!(!gradients.contains_key(&running.value));
        assert_ne!(running.next, running.value, "running statistics move");
    }

    #[test]
    fn backward_nodes_stand_beside_their_forward_nodes() {
        let graph = gradients_of(network()).graph;
        let scope_of = |name: &str| {
            let node = graph.nodes().iter().find(|node| node.name == name);
            node.unwrap_or_else(|| panic!("no node {name}")).scope
        };
        for (forward, backward) in [
            ("block.conv", "block.conv.grad_weight"),
            ("block.conv", "block.conv.grad_input"),
            ("block.bn", "block.bn.grad"),
            ("stem", "stem.grad_sum"),
        ] {
            assert_eq!(scope_of(forward), scope_of(backward), "{backward}");
        }
        let image_gradient = |node: &Node| node.name == "stem.grad_input";
        assert!(
            !graph.nodes().iter().any(image_gradient),
            "nobody asked for it"
        );
    }

    #[test]
    fn what_has_no_gradient_says_so() {
        let mut b = Builder::new("Net");
        let x = b.input("x", [Dim::from(3)]);
        let y = b.leaf("act", Activation::Gelu, &[x]);
        b.output("y", y);
        let graph = b.finish().unwrap();
        let error = differentiate(graph.clone(), y, &[x]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a loss is one number, and `act` is f32 [3]"
        );

        let mut b = Builder::resume(graph);
        let sum = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![0],
        };
        let loss = b.call("sum", sum, &[y]);
        let once = differentiate(b.finish().unwrap(), loss, &[x]).unwrap();
        let slope = once.gradients[&x];
        let mut b = Builder::resume(once.graph);
        let loss = b.call(
            "slope",
            Reduce {
                kind: ReduceKind::Sum,
                axes: vec![0],
            },
            &[slope],
        );
        let error = differentiate(b.finish().unwrap(), loss, &[x]).unwrap_err();
        assert!(
            matches!(error, GraphError::NotDifferentiable { ref node, .. } if node == "act.grad"),
            "{error}"
        );
    }

    #[test]
    fn state_keeps_every_value_and_name() {
        let before = network();
        let after = before.clone().with_state();
        assert_eq!(after.states().len(), before.params().len());
        for (a, b) in before.nodes().iter().zip(after.nodes()) {
            assert_eq!((&a.name, &a.outputs), (&b.name, &b.outputs));
            assert_eq!(b.param_values().map_or(0, <[_]>::len), a.params.len());
        }
        let norm = before.clone().in_training();
        let norm = norm
            .nodes()
            .iter()
            .find(|node| node.name == "block.bn")
            .unwrap();
        assert!(matches!(norm.op, Op::BatchNormTraining(_)) && norm.outputs.len() == 5);
        let ty = TensorType::f32([Dim::from(4)]);
        assert_eq!(before.clone().in_training().value(norm.outputs[1]).ty, ty);
    }
}
