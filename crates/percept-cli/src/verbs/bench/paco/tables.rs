//! The tables of the report, with the arithmetic of epochs and runs.

use percept_report::{Table, milliseconds, percent};

use super::{COMPONENTS, Row};

/// Batches of an epoch and epochs of a run, as the customer's report counts.
const EPOCH: f64 = 1000.0;
const EPOCHS: f64 = 100.0;
/// The customer's report (seed 003): inference and training step in milliseconds. It says 220x, 89.7 minutes, 149.5 hours.
const CUSTOMER: (f64, f64) = (22.59, 13_266.0);
/// Changes between two of [`VARIANTS`](super::VARIANTS).
const CHANGES: [(&str, usize, usize); 4] = [
    ("the exact loss (ResNet-50)", 0, 1),
    ("EfficientNet-B0 (exact loss)", 1, 3),
    ("d 32, r 3 (EfficientNet-B0, exact loss)", 3, 4),
    ("all three", 0, 4),
];

/// (step / inference, an epoch in minutes, a run in hours).
fn consequences(inference_ms: f64, step_ms: f64) -> [String; 3] {
    let epoch_minutes = step_ms * EPOCH / 60e3;
    [
        format!("{:.0}x", step_ms / inference_ms),
        format!("{epoch_minutes:.1} min"),
        format!("{:.1} h", epoch_minutes * EPOCHS / 60.0),
    ]
}

pub fn steps(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<backbone",
        "batch",
        "<loss",
        "d",
        "r",
        "inference ms",
        "step ms",
        "forward",
        "backward",
        "update",
        "loss+parts",
        "of step",
        "step/inference",
        "1000 steps",
        "100 x 1000",
        "memory",
    ]);
    for row in rows {
        let cells = [
            row.backbone.to_owned(),
            row.batch.to_string(),
            row.loss.to_owned(),
            row.d.to_string(),
            row.r.to_string(),
        ];
        let loss = row.loss_and_parts_ms();
        let times = [
            row.inference_ms,
            row.step_ms,
            row.forward_ms,
            row.backward_ms,
            row.update_ms,
            loss,
        ];
        let times = times
            .map(milliseconds)
            .into_iter()
            .chain([percent(loss / row.step_ms)]);
        let consequences = consequences(row.inference_ms, row.step_ms).into_iter();
        let memory = percept_report::bytes(row.memory_bytes as u64);
        table.row(
            cells
                .into_iter()
                .chain(times)
                .chain(consequences)
                .chain([memory]),
        );
    }
    let (inference_ms, step_ms) = CUSTOMER;
    let head = ["customer's report", "8", "naive", "64", "5"]
        .map(str::to_owned)
        .into_iter();
    let times = [milliseconds(inference_ms), milliseconds(step_ms)];
    let blank = std::iter::repeat_n(String::new(), 5);
    table.row(
        head.chain(times)
            .chain(blank)
            .chain(consequences(inference_ms, step_ms)),
    );
    format!(
        "{}\n`customer's report` is seed 003 on its own machine; it says 220x, 89.7 minutes and 149.5 hours of the same two times.\n",
        table.render()
    )
}

pub fn changes(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<change",
        "step ms before",
        "after",
        "faster",
        "hours saved in 100 x 1000 steps",
    ]);
    for (name, before, after) in CHANGES {
        let [before, after] = [rows[before].step_ms, rows[after].step_ms];
        let hours = (before - after) * EPOCH * EPOCHS / 3.6e6;
        table.row([
            name.to_owned(),
            milliseconds(before),
            milliseconds(after),
            format!("{:.2}x", before / after),
            format!("{hours:.1}"),
        ]);
    }
    table.render()
}

/// The customer's table: the same components, forward and backward, with one loss and the other.
pub fn components(rows: &[Row]) -> String {
    let mut header = vec!["<component".to_owned()];
    for row in rows {
        header.extend([format!("{} ms", row.loss), "share".to_owned()]);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut line = |name: &str, of: &dyn Fn(&Row) -> f64| {
        let cells = rows
            .iter()
            .flat_map(|row| [milliseconds(of(row)), percent(of(row) / row.step_ms)]);
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    for (place, (name, _)) in COMPONENTS.iter().enumerate() {
        line(name, &|row| row.components_ms[place]);
    }
    line("update", &|row| row.update_ms);
    line("the step", &|row| row.step_ms);
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_customers_times_have_these_consequences() {
        assert_eq!(
            consequences(CUSTOMER.0, CUSTOMER.1),
            ["587x", "221.1 min", "368.5 h"]
        );
    }
}
