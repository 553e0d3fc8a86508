//! Which dict of a checkpoint holds the weights.

use std::collections::{HashSet, VecDeque};

use super::fault::CheckpointFault;
use super::value::{TensorView, Value, ValueId, Values};

/// Wrappers put these before every name of a state dict.
const WRAPPER_PREFIXES: [&str; 2] = ["module.", "_orig_mod."];

/// A dict of tensors in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDict {
    /// Its keys from the root, joined by dots; empty for the root itself.
    pub path: String,
    /// Tensors that it holds directly.
    pub tensors: usize,
}

/// The chosen dict, by name and tensor, in file order.
pub(crate) struct Selection<'v, 'a> {
    pub(crate) dicts: Vec<StateDict>,
    pub(crate) chosen: usize,
    pub(crate) tensors: Vec<(String, &'v TensorView<'a>)>,
    /// Names in the chosen dict whose values are no tensors.
    pub(crate) skipped: Vec<String>,
}

/// Finds every dict of tensors and chooses the one at `path`, or the one with the most tensors
/// (of equals the one nearest to the root, then the first).
pub(crate) fn select<'v, 'a>(
    values: &'v Values<'a>,
    root: ValueId,
    path: Option<&str>,
) -> Result<Selection<'v, 'a>, CheckpointFault> {
    let found = find_dicts(values, root);
    let dicts: Vec<StateDict> = found
        .iter()
        .map(|(path, dict)| StateDict {
            path: path.clone(),
            tensors: count_tensors(values, dict),
        })
        .collect();
    if dicts.is_empty() {
        return Err(CheckpointFault::NoStateDict {
            objects: opaque_objects(values),
        });
    }
    let chosen = match path {
        Some(asked) => dicts
            .iter()
            .position(|dict| dict.path == asked)
            .ok_or_else(|| {
                let present = dicts
                    .iter()
                    .take(10)
                    .map(|dict| dict.path.clone())
                    .collect();
                CheckpointFault::NoSuchDict {
                    asked: asked.to_owned(),
                    present,
                }
            })?,
        // max_by_key gives the last of equals, the reversed order the first.
        None => (0..dicts.len())
            .rev()
            .max_by_key(|&at| dicts[at].tensors)
            .unwrap_or(0),
    };
    let (mut tensors, skipped) = contents(values, found[chosen].1);
    while let Some(prefix) = common_prefix(&tensors) {
        tensors
            .iter_mut()
            .for_each(|(name, _)| drop(name.drain(..prefix.len())));
    }
    Ok(Selection {
        dicts,
        chosen,
        tensors,
        skipped,
    })
}

type Pairs = [(ValueId, ValueId)];

/// Every dict with tensors, nearest to the root first. Objects of unknown classes are not entered.
fn find_dicts<'v>(values: &'v Values<'_>, root: ValueId) -> Vec<(String, &'v Pairs)> {
    let mut found = Vec::new();
    let mut visited = HashSet::from([root]);
    let mut queue = VecDeque::from([(root, String::new())]);
    while let Some((id, path)) = queue.pop_front() {
        let mut visit = |child: ValueId, key: &dyn Fn() -> String| {
            let nested = matches!(
                values.get(child),
                Value::Dict(_) | Value::List(_) | Value::Tuple(_)
            );
            if nested && visited.insert(child) {
                queue.push_back((child, join(&path, &key())));
            }
        };
        match values.get(id) {
            Value::Dict(pairs) => {
                for &(key, value) in pairs {
                    visit(value, &|| {
                        key_text(values, key).unwrap_or_else(|| "?".to_owned())
                    });
                }
                if count_tensors(values, pairs) > 0 {
                    found.push((path, pairs.as_slice()));
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                for (index, &item) in items.iter().enumerate() {
                    visit(item, &|| index.to_string());
                }
            }
            _ => {}
        }
    }
    found
}

/// Paths are for people; hostile nesting must not make them grow without end.
const MAX_PATH_BYTES: usize = 200;

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.chars().take(MAX_PATH_BYTES).collect()
    } else if path.len() + key.len() < MAX_PATH_BYTES {
        format!("{path}.{key}")
    } else {
        path.to_owned()
    }
}

fn key_text(values: &Values<'_>, key: ValueId) -> Option<String> {
    match values.get(key) {
        Value::Text(text) => Some((*text).to_owned()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn is_named_tensor(values: &Values<'_>, (key, value): (ValueId, ValueId)) -> bool {
    matches!(
        (values.get(key), values.get(value)),
        (Value::Text(_), Value::Tensor(_))
    )
}

fn count_tensors(values: &Values<'_>, pairs: &Pairs) -> usize {
    pairs
        .iter()
        .filter(|&&pair| is_named_tensor(values, pair))
        .count()
}

type Contents<'v, 'a> = (Vec<(String, &'v TensorView<'a>)>, Vec<String>);

fn contents<'v, 'a>(values: &'v Values<'a>, pairs: &Pairs) -> Contents<'v, 'a> {
    let mut seen = HashSet::new();
    let (mut tensors, mut skipped) = (Vec::new(), Vec::new());
    // As in Python, of equal keys the last one counts.
    for &(key, value) in pairs.iter().rev() {
        let Some(name) = key_text(values, key).filter(|name| seen.insert(name.clone())) else {
            continue;
        };
        match values.get(value) {
            Value::Tensor(view) => tensors.push((name, view.as_ref())),
            _ => skipped.push(name),
        }
    }
    tensors.reverse();
    skipped.reverse();
    (tensors, skipped)
}

fn common_prefix(tensors: &[(String, &TensorView<'_>)]) -> Option<&'static str> {
    let all_have = |prefix: &str| {
        tensors
            .iter()
            .all(|(name, _)| name.len() > prefix.len() && name.starts_with(prefix))
    };
    WRAPPER_PREFIXES
        .into_iter()
        .find(|prefix| !tensors.is_empty() && all_have(prefix))
}

/// The classes of unknown objects, outermost first: a container is made before its contents.
fn opaque_objects(values: &Values<'_>) -> Vec<String> {
    let mut seen = HashSet::new();
    let classes = values.iter().filter_map(|value| match value {
        Value::Opaque(class) => Some(*class),
        _ => None,
    });
    let distinct = classes.filter(|&class| seen.insert(class));
    distinct
        .take(10)
        .map(|class| format!("{}.{}", class.module, class.name))
        .collect()
}
