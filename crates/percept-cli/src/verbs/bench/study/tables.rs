//! The tables of a study of steps, with the arithmetic of epochs and trainings.

use percept_models::study::{StepStudy, Study};
use percept_report::{Table, bytes, milliseconds, percent};

use super::Row;

/// (step / inference, an epoch in minutes, a training in hours).
fn consequences(inference_ms: f64, step_ms: f64, [steps, epochs]: [u32; 2]) -> [String; 3] {
    let epoch_minutes = step_ms * f64::from(steps) / 60e3;
    [
        format!("{:.0}x", step_ms / inference_ms),
        format!("{epoch_minutes:.1} min"),
        format!("{:.1} h", epoch_minutes * f64::from(epochs) / 60.0),
    ]
}

/// What the consequences are called.
fn titles([steps, epochs]: [u32; 2]) -> [String; 3] {
    [
        "step/inference".to_owned(),
        format!("{steps} steps"),
        format!("{epochs} x {steps}"),
    ]
}

/// Every row at every batch.
pub fn steps(study: &Study, measured: &StepStudy, rows: &[Row]) -> String {
    let varied: Vec<&str> = study.varied().collect();
    let mut header: Vec<String> = varied.iter().map(|name| format!("<{name}")).collect();
    let times = [
        "batch",
        "inference ms",
        "step ms",
        "forward",
        "backward",
        "update",
        measured.own,
        "of step",
    ];
    header.extend(times.map(str::to_owned));
    header.extend(titles(measured.training));
    header.push("memory".to_owned());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    for row in rows {
        let own = row.own_ms(measured);
        let mut cells: Vec<String> = varied
            .iter()
            .map(|name| study.rows[row.number].value(name).to_owned())
            .collect();
        cells.push(row.batch.to_string());
        let times = [
            row.inference_ms,
            row.step_ms,
            row.forward_ms,
            row.backward_ms,
            row.update_ms,
            own,
        ];
        cells.extend(times.map(milliseconds));
        cells.push(percent(own / row.step_ms));
        cells.extend(consequences(
            row.inference_ms,
            row.step_ms,
            measured.training,
        ));
        cells.push(bytes(row.memory_bytes as u64));
        table.row(cells);
    }
    table.render()
}

/// A published report beside what its own times come to, and beside the same row here; none where there is no report.
pub fn claims(measured: &StepStudy, rows: &[Row]) -> Option<String> {
    let published = measured.published?;
    let here = rows
        .iter()
        .find(|row| row.number == published.row && row.batch == published.batch);
    let own = consequences(published.inference_ms, published.step_ms, measured.training);
    let ours = here.map(|row| consequences(row.inference_ms, row.step_ms, measured.training));
    let ours = ours.unwrap_or_else(|| ["-", "-", "-"].map(str::to_owned));
    let header = [
        "<of the published row",
        "it says",
        "its own times give",
        "measured here",
    ];
    let mut table = Table::new(&header);
    let time = |of: fn(&Row) -> f64| here.map_or("-".to_owned(), |row| milliseconds(of(row)));
    let blank = String::new;
    let given = [
        (
            "inference ms",
            published.inference_ms,
            time(|row| row.inference_ms),
        ),
        ("step ms", published.step_ms, time(|row| row.step_ms)),
    ];
    for (name, theirs, ours) in given {
        table.row([name.to_owned(), milliseconds(theirs), blank(), ours]);
    }
    let claims = titles(measured.training).into_iter().zip(published.says);
    for (((name, says), own), ours) in claims.zip(own).zip(ours) {
        table.row([name, says.to_owned(), own, ours]);
    }
    Some(table.render())
}

/// What a change must save of a step's time or memory to be told from noise.
const SHOWN: f64 = 0.02;

/// What each change brings.
pub fn changes(measured: &StepStudy, rows: &[Row]) -> String {
    let [steps, epochs] = measured.training;
    let saved = format!("hours saved in {epochs} x {steps} steps");
    let header = [
        "<change",
        "step ms before",
        "after",
        "faster",
        &saved,
        "memory before",
        "after",
        "<on this CPU it",
    ];
    let mut table = Table::new(&header);
    for change in measured.changes {
        let [from, to] = [&rows[change.from], &rows[change.to]];
        let [before, after] = [from.step_ms, to.step_ms];
        let hours = (before - after) * f64::from(steps) * f64::from(epochs) / 3.6e6;
        table.row([
            change.title.to_owned(),
            milliseconds(before),
            milliseconds(after),
            format!("{:.2}x", before / after),
            format!("{hours:.1}"),
            bytes(from.memory_bytes as u64),
            bytes(to.memory_bytes as u64),
            finding(
                after / before,
                to.memory_bytes as f64 / from.memory_bytes as f64,
            )
            .to_owned(),
        ]);
    }
    table.render()
}

/// What a change of time and of memory, as factors, comes to.
fn finding(time: f64, memory: f64) -> &'static str {
    let saves = |factor: f64| factor < 1.0 - SHOWN;
    let costs = |factor: f64| factor > 1.0 + SHOWN;
    match (saves(time), saves(memory)) {
        (true, true) => "saves time and memory",
        (true, false) => "saves time",
        (false, true) if costs(time) => "saves memory and costs time",
        (false, true) => "saves memory, no time",
        (false, false) => "does not pay",
    }
}

/// The components of some rows, forward and backward, beside each other.
pub fn components(measured: &StepStudy, rows: &[Row]) -> String {
    let rows: Vec<&Row> = measured.detailed.iter().map(|&row| &rows[row]).collect();
    let mut header = vec!["<component".to_owned()];
    for row in &rows {
        header.extend([format!("{} ms", row.row), "share".to_owned()]);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut line = |name: &str, of: &dyn Fn(&Row) -> f64| {
        let cells = rows
            .iter()
            .flat_map(|row| [milliseconds(of(row)), percent(of(row) / row.step_ms)]);
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    for (place, component) in measured.components.iter().enumerate() {
        line(component.name, &|row| row.components_ms[place]);
    }
    line("update", &|row| row.update_ms);
    line("the step", &|row| row.step_ms);
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_times_have_these_consequences() {
        assert_eq!(
            consequences(22.59, 13_266.0, [1000, 100]),
            ["587x", "221.1 min", "368.5 h"]
        );
    }
}
