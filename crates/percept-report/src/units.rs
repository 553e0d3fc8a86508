//! Numbers as people read them.

/// Bytes: `512 B`, `9.8 MB` (powers of ten, as disks and fvcore count).
pub fn bytes(value: u64) -> String {
    scaled(value as f64, 1000.0, &["B", "kB", "MB", "GB", "TB"], " ")
}

/// Counts: `64`, `9.41 K`, `25.56 M`, `4.09 G`.
pub fn count(value: u64) -> String {
    scaled(value as f64, 1000.0, &["", "K", "M", "G", "T"], " ")
}

/// How many there are: `1 frame`, `2 frames`, `3 boxes`, `4 queries`; of several words the last one changes.
pub fn counted(count: impl TryInto<u64>, one: &str) -> String {
    let count: u64 = count.try_into().unwrap_or(u64::MAX);
    if count == 1 {
        return format!("1 {one}");
    }
    let before_y = one
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{count} {stem}ies"),
        None if one.ends_with("xis") => format!("{count} {}es", &one[..one.len() - 2]),
        None if one.ends_with(['s', 'x']) || one.ends_with("ch") => format!("{count} {one}es"),
        None => format!("{count} {one}s"),
    }
}

/// Milliseconds with three digits that matter.
pub fn milliseconds(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// A share: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn scaled(value: f64, base: f64, units: &[&str], space: &str) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    match (unit, units[unit]) {
        (0, "") => format!("{value:.0}"),
        (0, name) => format!("{value:.0}{space}{name}"),
        (_, name) if value < 100.0 => format!("{value:.2}{space}{name}"),
        (_, name) => format!("{value:.1}{space}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let words = ["frame", "box", "query", "batch"];
        let said = |count: usize| words.map(|one| counted(count, one));
        assert_eq!(said(1)[..2], ["1 frame", "1 box"]);
        let several = ["0 frames", "0 boxes", "0 queries", "0 batches"];
        assert_eq!(said(0)[..4], several);
        assert_eq!(counted(2usize, "key"), "2 keys");
        assert_eq!(counted(2usize, "elastic axis"), "2 elastic axes");
    }

    #[test]
    fn units_are_chosen_for_reading() {
        assert_eq!(
            [bytes(0), bytes(999), bytes(1_000), bytes(102_228_128)],
            ["0 B", "999 B", "1.00 kB", "102.2 MB"]
        );
        assert_eq!([count(64), count(25_557_032)], ["64", "25.56 M"]);
        assert_eq!(
            [
                milliseconds(0.01234),
                milliseconds(1.5),
                milliseconds(98.76),
                milliseconds(1234.5)
            ],
            ["0.012", "1.50", "98.8", "1234"]
        );
    }
}
