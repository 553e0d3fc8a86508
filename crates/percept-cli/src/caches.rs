//! What the nodes of a network keep from run to run, as a table and for the record.

use percept_graph::{CacheCounters, Graph, Op};
use percept_report::{Table, bytes};
use serde_json::{Value, json};

/// The caches of a network by the names of their nodes.
pub struct Caches<'a>(Vec<(&'a str, CacheCounters)>);

impl<'a> Caches<'a> {
    pub fn of(graph: &'a Graph) -> Self {
        let nodes = graph.nodes().iter();
        let kept = nodes.filter_map(|node| match &node.op {
            Op::Custom(op) => Some((node.name.as_str(), op.cache()?)),
            _ => None,
        });
        Self(kept.collect())
    }

    /// A table with a heading; nothing where nothing is kept.
    pub fn text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut table = Table::new(&["<kept by", "hits", "misses", "from disk", "held", "bytes"]);
        for (name, counters) in &self.0 {
            let counts = [
                counters.hits,
                counters.misses,
                counters.from_disk,
                counters.entries,
            ];
            let cells = counts.map(|count| count.to_string());
            let row = [(*name).to_owned()].into_iter().chain(cells);
            table.row(row.chain([bytes(counters.bytes)]));
        }
        format!("\ncaches, over all runs\n{}", table.render())
    }

    pub fn record(&self) -> Value {
        let caches = self.0.iter();
        let caches = caches.map(|(name, counters)| {
            json!({
                "name": name, "hits": counters.hits, "misses": counters.misses,
                "from_disk": counters.from_disk, "entries": counters.entries, "bytes": counters.bytes,
            })
        });
        caches.collect()
    }
}

#[cfg(test)]
mod tests {
    use percept_models::{Settings, zoo};

    use super::*;

    #[test]
    fn only_networks_that_keep_something_have_a_table() {
        let built = |settings: &[&str]| {
            let settings = Settings::parse(settings).unwrap();
            zoo::build("randlanet", &settings).unwrap()
        };
        let without = built(&[]);
        assert_eq!(Caches::of(&without.graph).text(), "");
        let with = built(&["cache=8"]);
        let text = Caches::of(with.form(true)).text();
        assert!(text.contains("levels"), "{text}");
        assert_eq!(Caches::of(&with.graph).record()[0]["misses"], 0);
    }
}
