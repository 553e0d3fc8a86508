//! How a graph looks: the module tree as PyTorch prints it, and the storage table as fvcore prints it.

use crate::graph::{Graph, ScopeChild, ScopeId};
use crate::ops::Operator;

/// The module tree, as PyTorch's `print(model)`.
pub fn module_tree(graph: &Graph) -> String {
    let mut text = String::new();
    write_scope(graph, ScopeId(0), 0, &mut text);
    text.push('\n');
    text
}

fn write_scope(graph: &Graph, id: ScopeId, depth: usize, text: &mut String) {
    let scope = graph.scope(id);
    text.push_str(&scope.class);
    text.push('(');
    let indent = "  ".repeat(depth + 1);
    let mut modules = 0;
    for child in &scope.children {
        match *child {
            ScopeChild::Node(node) => {
                let node = graph.node(node);
                if !node.is_module {
                    continue;
                }
                text.push_str(&format!(
                    "\n{indent}({}): {}",
                    last_component(&node.name),
                    node.op.describe()
                ));
            }
            ScopeChild::Scope(inner) => {
                text.push_str(&format!(
                    "\n{indent}({}): ",
                    last_component(&graph.scope(inner).path)
                ));
                write_scope(graph, inner, depth + 1, text);
            }
        }
        modules += 1;
    }
    if modules > 0 {
        text.push_str(&format!("\n{}", "  ".repeat(depth)));
    }
    text.push(')');
}

fn last_component(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A row of the storage table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRow {
    /// Module path or parameter name; empty for the whole model.
    pub name: String,
    /// Nesting, 0 for the whole model.
    pub depth: usize,
    /// Trainable parameters below this name.
    pub elements: usize,
    /// The shape, when the row is one parameter.
    pub shape: Option<Vec<usize>>,
}

/// Rows of the storage table down to `depth` name components, in state-dict order. Buffers do not count.
pub fn storage_rows(graph: &Graph, depth: usize) -> Vec<StorageRow> {
    let total = graph.parameter_count();
    let mut rows = vec![StorageRow {
        name: String::new(),
        depth: 0,
        elements: total,
        shape: None,
    }];
    for param in graph.params().iter().filter(|param| param.trainable) {
        let parts: Vec<&str> = param.name.split('.').collect();
        for level in 1..=parts.len().min(depth) {
            let name = parts[..level].join(".");
            let shape = (level == parts.len()).then(|| param.shape.clone());
            match rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.elements += param.elements(),
                None => {
                    // A module's rows stand together, behind its last row, even when its parameters do not.
                    let at = insertion_point(&rows, &parts[..level - 1].join("."));
                    rows.insert(
                        at,
                        StorageRow {
                            name,
                            depth: level,
                            elements: param.elements(),
                            shape,
                        },
                    );
                }
            }
        }
    }
    rows
}

fn insertion_point(rows: &[StorageRow], parent: &str) -> usize {
    if parent.is_empty() {
        return rows.len();
    }
    let inside = format!("{parent}.");
    let last = rows
        .iter()
        .rposition(|row| row.name == parent || row.name.starts_with(&inside));
    last.map_or(rows.len(), |at| at + 1)
}

/// The storage table, as fvcore's `parameter_count_table`.
pub fn storage_table(graph: &Graph, depth: usize) -> String {
    let rows = storage_rows(graph, depth);
    let cells: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            let indent = " ".repeat(row.depth);
            let name = if row.depth == 0 {
                "model".to_owned()
            } else {
                format!("{indent}{}", row.name)
            };
            let size = match &row.shape {
                Some(shape) => format!("{indent}{}", python_tuple(shape)),
                None => format!("{indent}{}", short_count(row.elements)),
            };
            (name, size)
        })
        .collect();
    let header = ("name".to_owned(), "#elements or shape".to_owned());
    let width = |pick: fn(&(String, String)) -> &String| {
        cells
            .iter()
            .chain([&header])
            .map(|cell| pick(cell).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (name_width, size_width) = (width(|c| &c.0), width(|c| &c.1));
    let mut text = format!("| {:name_width$} | {:size_width$} |\n", header.0, header.1);
    text += &format!(
        "|:{}|:{}|\n",
        "-".repeat(name_width + 1),
        "-".repeat(size_width + 1)
    );
    for (name, size) in &cells {
        text += &format!("| {name:name_width$} | {size:size_width$} |\n");
    }
    text
}

fn python_tuple(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => format!(
            "({})",
            many.iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// A count as fvcore shortens it: `25.6M`, `9.4K`, `64`.
fn short_count(count: usize) -> String {
    match count {
        0..100 => count.to_string(),
        100..100_000 => format!("{:.1}K", count as f64 / 1e3),
        100_000..100_000_000 => format!("{:.1}M", count as f64 / 1e6),
        _ => format!("{:.1}G", count as f64 / 1e9),
    }
}
