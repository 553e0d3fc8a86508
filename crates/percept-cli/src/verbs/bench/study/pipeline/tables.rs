//! What was measured, for people and for the record.

use percept_models::study::pipeline::{Figure, Line, PipelineStudy};
use percept_report::{Table, milliseconds, percent};
use serde_json::{Value, json};

use super::figures::{Branch, Measurements, PASSES};

pub struct Shown<'a> {
    pub study: &'a PipelineStudy,
    pub measured: &'a Measurements,
    pub tree: &'a [Branch],
}

impl Shown<'_> {
    fn total(&self, pass: usize) -> f64 {
        self.tree.iter().filter_map(|branch| branch.ms[pass]).sum()
    }

    pub fn tree_table(&self) -> String {
        let mut heads = vec!["<ms"];
        heads.extend(PASSES.iter().flat_map(|pass| [*pass, "share"]));
        let mut table = Table::new(&heads);
        let totals: Vec<f64> = (0..PASSES.len()).map(|pass| self.total(pass)).collect();
        let mut row = |name: &str, ms: [Option<f64>; 4]| {
            let cells = (0..PASSES.len()).flat_map(|pass| match ms[pass] {
                Some(ms) => [milliseconds(ms), percent(ms / totals[pass])],
                None => [String::new(), String::new()],
            });
            table.row([name.to_owned()].into_iter().chain(cells));
        };
        row("all", [0, 1, 2, 3].map(|pass| Some(totals[pass])));
        for branch in self.tree {
            row(&format!("  {}", branch.name), branch.ms);
        }
        let waiting = self.measured.waiting();
        let cells = waiting.ms.iter().flat_map(|ms| {
            let ms = ms.map_or_else(String::new, milliseconds);
            [ms, String::new()]
        });
        table.row([waiting.name.to_owned()].into_iter().chain(cells));
        table.render()
    }

    pub fn tree_record(&self) -> Vec<Value> {
        let of = |branch: &Branch| {
            let passes = PASSES.iter().zip(branch.ms);
            let passes = passes.map(|(pass, ms)| ((*pass).to_owned(), json!(ms)));
            let passes: serde_json::Map<String, Value> = passes.collect();
            json!({"stage": branch.name, "ms": passes})
        };
        let waiting = self.measured.waiting();
        self.tree.iter().chain([&waiting]).map(of).collect()
    }

    /// The part of some stages in a training, with features made and kept.
    fn shares(&self) -> [f64; 2] {
        [2, 3].map(|pass| {
            let stages = self.study.share.stages.iter();
            let own: f64 = stages.filter_map(|&stage| self.tree[stage].ms[pass]).sum();
            own / self.total(pass)
        })
    }

    pub fn share_text(&self) -> String {
        let share = &self.study.share;
        let [made, kept] = self.shares().map(percent);
        format!(
            "{} in a training: {made} where they are made, {kept} where they are kept; published: {}, by its own figures {}\n",
            share.name, share.says, share.by_its_figures
        )
    }

    pub fn share_record(&self) -> Value {
        let share = &self.study.share;
        let [made, kept] = self.shares();
        json!({
            "of": share.name, "made": made, "kept": kept,
            "published": share.says, "published_figures": share.by_its_figures,
        })
    }

    pub fn sections(&self) -> String {
        let mut text = String::new();
        for section in self.study.sections {
            let mut table = Table::new(&["<", "before", "after", "change"]);
            for line in self.lines(section.lines) {
                let change = match (
                    self.measured.get(line.before),
                    self.measured.get(line.after),
                ) {
                    (Some(before), Some(after)) => before.change_to(after),
                    _ => String::new(),
                };
                let cells = [line.before, line.after].map(|figure| self.text(figure));
                let [before, after] = cells;
                table.row([line.what.to_owned(), before, after, change]);
            }
            text += &format!(
                "{}\nthe text: {}\n\n{}\n",
                section.title,
                section.says,
                table.render()
            );
        }
        text
    }

    pub fn section_records(&self) -> Vec<Value> {
        let of_line = |line: &Line| json!({"what": line.what, "before": self.record(line.before), "after": self.record(line.after)});
        let sections = self.study.sections.iter();
        let sections = sections.map(|section| {
            let lines: Vec<Value> = self.lines(section.lines).map(of_line).collect();
            json!({"title": section.title, "published": section.says, "lines": lines})
        });
        sections.collect()
    }

    /// Those that this network has.
    fn lines<'l>(&self, lines: &'l [Line]) -> impl Iterator<Item = &'l Line> {
        lines
            .iter()
            .filter(|line| self.has(line.before) && self.has(line.after))
    }

    fn has(&self, figure: Figure) -> bool {
        match figure {
            Figure::Published(_) | Figure::Nothing => true,
            figure => self.measured.get(figure).is_some(),
        }
    }

    fn text(&self, figure: Figure) -> String {
        match figure {
            Figure::Published(says) => format!("{says} (published)"),
            figure => self
                .measured
                .get(figure)
                .map_or_else(String::new, |a| a.text()),
        }
    }

    fn record(&self, figure: Figure) -> Value {
        match figure {
            Figure::Published(says) => json!({"published": says}),
            figure => self
                .measured
                .get(figure)
                .map_or(Value::Null, |a| a.record()),
        }
    }
}
