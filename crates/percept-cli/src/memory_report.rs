//! What a command and its parts did to memory.

use std::sync::{Arc, Mutex, PoisonError};

use percept_kernels::machine::{MemoryUse, memory_info, watch_memory};
use percept_report::{Table, bytes};
use serde_json::{Value, json};

/// What was watched, in the order in which it ended; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryReport(Arc<Mutex<Vec<(&'static str, MemoryUse)>>>);

impl MemoryReport {
    /// Does a piece of work and notes what it did to memory. Of work that is done again and again, the first time and the most
    /// that was ever held are noted.
    pub fn watch<R>(&self, what: &'static str, work: impl FnOnce() -> R) -> R {
        let (result, used) = watch_memory(work);
        if let Some(used) = used {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match all.iter_mut().find(|(known, _)| *known == what) {
                Some((_, known)) => {
                    known.after_bytes = used.after_bytes;
                    known.peak_bytes = known.peak_bytes.max(used.peak_bytes);
                }
                None => all.push((what, used)),
            }
        }
        result
    }

    fn all(&self) -> Vec<(&'static str, MemoryUse)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// A table with a heading.
    pub fn text(&self) -> String {
        let mut table = Table::new(&["<memory of", "before", "after", "peak", "grew by"]);
        for (what, used) in self.all() {
            table.row([
                what.to_owned(),
                bytes(used.before_bytes),
                bytes(used.after_bytes),
                bytes(used.peak_bytes),
                bytes(used.growth_bytes()),
            ]);
        }
        let machine = memory_info().map_or_else(
            || "the system does not tell what memory is used\n".to_owned(),
            |now| {
                let (free, total) = (bytes(now.available_bytes), bytes(now.total_bytes));
                format!("the machine has {total}, {free} of it free\n")
            },
        );
        format!("\n{}{machine}", table.render())
    }

    pub fn record(&self) -> Value {
        let all = self.all().into_iter();
        let all = all.map(|(what, used)| {
            json!({
                "what": what, "before_bytes": used.before_bytes, "after_bytes": used.after_bytes,
                "peak_bytes": used.peak_bytes, "growth_bytes": used.growth_bytes(),
            })
        });
        all.collect()
    }
}
