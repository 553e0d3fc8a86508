//! What a node of a training step is there for, told by its name.

/// What the names of the optimiser's nodes begin with.
const OPTIMISER: &str = "optimiser.";

/// A part of every training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepPhase {
    /// From the inputs to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// The optimiser moves parameters.
    Update,
}

impl StepPhase {
    /// All of them, in order of execution.
    pub const ALL: [StepPhase; 3] = [StepPhase::Forward, StepPhase::Backward, StepPhase::Update];

    /// What the node of this name does, and for which layer.
    ///
    /// ```
    /// use percept_graph::StepPhase;
    /// let weight = StepPhase::of_node("layer1.0.conv1.grad_weight");
    /// assert_eq!(weight, (StepPhase::Backward, "layer1.0.conv1"));
    /// assert_eq!(StepPhase::of_node("optimiser.fc.bias"), (StepPhase::Update, "fc"));
    /// ```
    pub fn of_node(name: &str) -> (StepPhase, &str) {
        let parent = |name: &'_ str| name.rfind('.').unwrap_or(0);
        if let Some(parameter) = name.strip_prefix(OPTIMISER) {
            return match parameter.contains('.') {
                true => (StepPhase::Update, &parameter[..parent(parameter)]),
                false => (StepPhase::Update, name),
            };
        }
        let (layer, last) = name.split_at(parent(name));
        match last.strip_prefix(".grad") {
            Some(rest) if rest.is_empty() || rest.starts_with('_') => (StepPhase::Backward, layer),
            _ => (StepPhase::Forward, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_phases() {
        for (name, phase, layer) in [
            ("conv1", StepPhase::Forward, "conv1"),
            ("net.gradient_like", StepPhase::Forward, "net.gradient_like"),
            ("loss.grad", StepPhase::Backward, "loss"),
            ("a.b.grad_sum_2", StepPhase::Backward, "a.b"),
            ("optimiser.a.b.weight", StepPhase::Update, "a.b"),
            ("optimiser.clip", StepPhase::Update, "optimiser.clip"),
        ] {
            assert_eq!(StepPhase::of_node(name), (phase, layer), "{name}");
        }
    }
}
