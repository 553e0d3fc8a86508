//! Parameters that stay as they are, by the beginning of their names.

use percept_models::nearest;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Modules whose parameters do not move. They have no moments, their batch norms keep the running statistics and use them, and
/// their dropouts drop nothing.
///
/// ```
/// let frozen: percept_train::Frozen = serde_json::from_str("\"backbone,head.conv\"")?;
/// assert!(!frozen.trains("backbone.conv1.weight") && !frozen.trains("head.conv.bias"));
/// assert!(frozen.trains("backbone_2.weight") && frozen.trains("head.conv_2.bias"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Names", into = "Vec<String>")]
pub struct Frozen(Vec<String>);

/// As a list, or as one text with commas.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    Text(String),
    List(Vec<String>),
}

impl From<Names> for Vec<String> {
    fn from(names: Names) -> Self {
        let list = match names {
            Names::Text(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
            Names::List(list) => list,
        };
        let named = list.into_iter().filter(|name| !name.is_empty());
        named.collect()
    }
}

impl From<Names> for Frozen {
    fn from(names: Names) -> Self {
        Self(names.into())
    }
}

impl From<Frozen> for Vec<String> {
    fn from(frozen: Frozen) -> Self {
        frozen.0
    }
}

impl Frozen {
    /// These modules.
    pub fn modules<'a>(modules: impl IntoIterator<Item = &'a str>) -> Self {
        Self(modules.into_iter().map(str::to_owned).collect())
    }

    /// Whether everything moves.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether what has this name moves.
    pub fn trains(&self, name: &str) -> bool {
        !self.0.iter().any(|prefix| is_within(prefix, name))
    }

    /// Refuses a module that no parameter is in, and a network that has nothing left to train.
    pub(crate) fn check<'a>(
        &self,
        parameters: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), TrainError> {
        for prefix in &self.0 {
            if !parameters.clone().any(|name| is_within(prefix, name)) {
                let modules = parameters.clone().flat_map(modules);
                return Err(TrainError::UnknownModule {
                    module: prefix.clone(),
                    nearest: nearest(prefix, modules).map(str::to_owned),
                });
            }
        }
        match parameters.clone().any(|name| self.trains(name)) {
            true => Ok(()),
            false => Err(TrainError::AllFrozen),
        }
    }
}

/// Whether a name is that of a module or of something inside it.
fn is_within(module: &str, name: &str) -> bool {
    let rest = name.strip_prefix(module);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The modules that a parameter is in, and the parameter.
fn modules(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(end, _)| end);
    ends.chain([name.len()]).map(|end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: [&str; 3] = ["backbone.conv.weight", "backbone.conv.bias", "head.weight"];

    fn check(modules: &[&str]) -> Result<(), String> {
        let frozen = Frozen(modules.iter().map(|module| (*module).to_owned()).collect());
        let checked = frozen.check(PARAMETERS.into_iter());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn modules_must_exist_and_something_must_train() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["backbone"]), Ok(()));
        assert_eq!(check(&["backbone.conv.bias", "head"]), Ok(()));
        assert_eq!(
            check(&["backbon"]).unwrap_err(),
            "freeze: no parameter is in `backbon`; did you mean `backbone`?"
        );
        assert_eq!(
            check(&["backbone", "head"]).unwrap_err(),
            "freeze: nothing is left to train"
        );
    }
}
