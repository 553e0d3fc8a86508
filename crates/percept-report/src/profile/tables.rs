//! The faces of a profile in a terminal: the table of its rows, and what holds memory at the peak.

use super::{Grouping, Order, Profile, Selection};
use crate::table::Table;
use crate::units::{bytes, count, milliseconds, percent};

impl Profile {
    /// The table of a selection.
    pub fn table(&self, selection: Selection) -> String {
        let mut table = Table::new(&[
            "<layer", "<op", "ms", "p10..p90", "share", "MACs", "GFLOP/s", "of peak", "alloc",
            "live", "weights", "<note",
        ]);
        let indented = matches!(selection.grouping, Grouping::Module { .. })
            && selection.order == Order::Execution;
        for row in self.rows(selection) {
            let indent = if indented {
                "  ".repeat(row.depth)
            } else {
                String::new()
            };
            let fused = row.note.starts_with("in ");
            let winograd = row.note.starts_with("winograd");
            let or_blank = |blank: bool, text: String| if blank { String::new() } else { text };
            let rate = row
                .gflops_per_s
                .map_or_else(String::new, |rate| format!("{rate:.1}"));
            table.row([
                format!("{indent}{}", row.name),
                row.op,
                or_blank(fused, milliseconds(row.time_ms.median)),
                or_blank(
                    fused,
                    format!(
                        "{}..{}",
                        milliseconds(row.time_ms.p10),
                        milliseconds(row.time_ms.p90)
                    ),
                ),
                or_blank(fused, percent(row.share)),
                row.macs.map_or_else(
                    || "by data".to_owned(),
                    |macs| or_blank(macs == 0, count(macs)),
                ),
                rate,
                row.share_of_peak.map_or_else(String::new, percent),
                or_blank(row.allocated_bytes == 0, bytes(row.allocated_bytes as u64)),
                or_blank(row.live_bytes == 0, bytes(row.live_bytes as u64)),
                or_blank(row.weight_bytes == 0, bytes(row.weight_bytes as u64)),
                if winograd {
                    format!("{} (effective rate)", row.note)
                } else {
                    row.note
                },
            ]);
        }
        table.render()
    }

    /// What holds memory at the peak, as a table.
    pub fn memory_table(&self, top: usize) -> String {
        let memory = &self.memory;
        let mut table = Table::new(&["<held at the peak", "bytes"]);
        for holder in memory.values.iter().take(top) {
            table.row([
                format!("  output of {}", holder.name),
                bytes(holder.bytes as u64),
            ]);
        }
        let rest: usize = memory
            .values
            .iter()
            .skip(top)
            .map(|holder| holder.bytes)
            .sum();
        if rest > 0 {
            table.row([
                format!("  {} more values", memory.values.len() - top),
                bytes(rest as u64),
            ]);
        }
        table.row([
            "intermediate values".to_owned(),
            bytes(memory.live_bytes as u64),
        ]);
        table.row([
            "  arena, with what the plan could not fill".to_owned(),
            bytes(memory.arena_bytes as u64),
        ]);
        table.row([
            "packed weights and constants".to_owned(),
            bytes(memory.weight_bytes as u64),
        ]);
        if memory.state_bytes > 0 {
            table.row([
                "parameters, statistics and moments".to_owned(),
                bytes(memory.state_bytes as u64),
            ]);
        }
        table.row([
            "working memory of the threads".to_owned(),
            bytes(memory.scratch_bytes as u64),
        ]);
        table.row([
            "all together (arena + weights + working)".to_owned(),
            bytes(memory.total_bytes() as u64),
        ]);
        format!("peak at {}\n{}", memory.step, table.render())
    }
}
