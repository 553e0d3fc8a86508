//! What a search found, as a table, a record and a picture.

use percept_graph::{PriceList, Scored, Searched, Unit};
use percept_models::zoo::Entry;
use percept_picture::{Axis, Better, Chart, Panel, Picture, Series};
use percept_report::{Table, count, counted};
use serde_json::{Value, json};

use super::score::Spent;
use crate::outcome::Outcome;

/// What was found, and in which terms.
pub struct Report<'a> {
    pub entry: &'a Entry,
    pub prices: &'a PriceList,
    pub found: &'a Searched,
    pub unit: Unit,
    /// What the score is called.
    pub what: &'static str,
    /// What the whole network costs.
    pub most: u64,
}

impl Report<'_> {
    pub fn outcome(&self, model: &str, budget: u64, samples: usize, spent: &Spent) -> Outcome {
        let found = self.found;
        let path: Vec<&Scored> = found.path.iter().map(|&at| &found.scored[at]).collect();
        let front = found.front(self.unit);
        let settings = path.last().map(|last| self.settings(last));
        let settings = settings.unwrap_or_default();
        let saved = spent.naive_macs as f64 / spent.macs.max(1) as f64;
        let text = format!(
            "{}\nPareto front, the cheapest first\n{}\n{} scored on {}; the answer: {}\n\
             {} MACs, {saved:.2} times fewer than without keeping what parts have in common; {:.0} MB kept at most\n",
            self.table(&path),
            self.table(&front),
            counted(found.scored.len(), "part"),
            counted(samples, "sample"),
            match (found.met, settings.is_empty()) {
                (false, _) => "none is within the budget".to_owned(),
                (true, true) => "the whole network".to_owned(),
                (true, false) => settings.join(" "),
            },
            count(spent.macs),
            spent.most_bytes as f64 / 1e6,
        );
        let records = |rows: &[&Scored]| -> Vec<Value> {
            rows.iter().map(|scored| self.record(scored)).collect()
        };
        let record = json!({
            "model": model, "budget": budget, "met": found.met, "score": self.what,
            "path": records(&path), "front": records(&front), "scored": found.scored.len(),
            "samples": samples, "settings": settings,
            "spent": {
                "macs": spent.macs, "naive_macs": spent.naive_macs, "times_fewer": saved,
                "kept_bytes": spent.most_bytes, "parts": spent.parts,
            },
        });
        Outcome::new(text, record)
    }

    /// What a user writes to get this part.
    fn settings(&self, scored: &Scored) -> Vec<String> {
        let choice = self.prices.choice(&scored.levels);
        let elastic = self.entry.settings.iter();
        let levels = elastic.filter_map(|s| Some((s, s.levels_of(&choice)?)));
        let changed = levels.filter(|(s, levels)| *levels != s.default_text());
        changed
            .map(|(s, levels)| format!("--set {}={levels}", s.name))
            .collect()
    }

    fn is_timed(&self) -> bool {
        self.unit == Unit::Nanoseconds
    }

    fn table(&self, rows: &[&Scored]) -> String {
        let mut heads = vec!["<configuration", self.what, "parameters", "MACs"];
        if self.is_timed() {
            heads.push("ms");
        }
        heads.push("share");
        let mut table = Table::new(&heads);
        for scored in rows {
            let mut cells = vec![
                self.prices.choice(&scored.levels).to_string(),
                format!("{:.5}", scored.score),
                count(scored.price.params),
                count(scored.price.macs),
            ];
            if self.is_timed() {
                cells.push(format!("{:.3}", scored.price.nanoseconds as f64 / 1e6));
            }
            let share = 100.0 * self.unit.of(scored.price) as f64 / self.most.max(1) as f64;
            cells.push(format!("{share:.2} %"));
            table.row(cells);
        }
        table.render()
    }

    fn record(&self, scored: &Scored) -> Value {
        json!({
            "choice": self.prices.choice(&scored.levels).to_string(), "settings": self.settings(scored),
            "score": scored.score, "params": scored.price.params, "macs": scored.price.macs,
            "ms": self.is_timed().then(|| scored.price.nanoseconds as f64 / 1e6),
        })
    }

    /// Score against cost.
    pub fn picture(&self, model: &str, budget: u64) -> Picture {
        let (name, scale) = match self.unit {
            Unit::Params => ("parameters, millions", 1e-6),
            Unit::Macs => ("multiply-adds, billions", 1e-9),
            Unit::Nanoseconds => ("latency, ms", 1e-6),
        };
        let found = self.found;
        let dot = |scored: &Scored| [scale * self.unit.of(scored.price) as f64, scored.score];
        let all = found.scored.iter().map(dot);
        let path = found.path.iter().map(|&at| dot(&found.scored[at]));
        let mut series = vec![Series::dots("scored", all.collect())];
        if found.path.len() > 1 {
            series.push(Series::dots("the way down", path.collect()));
        }
        let panel = Panel {
            title: format!("budget {:.4}", scale * budget as f64),
            x: Axis::linear(name),
            y: Axis::linear(self.what),
            series,
            front: Some([Better::Lower, Better::Higher]),
        };
        Chart {
            title: format!("{model}: parts by cost and {}", self.what),
            panels: vec![panel],
            columns: 1,
        }
        .draw()
    }
}
