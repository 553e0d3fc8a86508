//! Plain tables: aligned columns, no colour, no frame characters that a log would garble.

/// Which side a column leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Align {
    Left,
    Right,
}

/// Rows under a header.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table; a header that starts with `<` makes a left-aligned column.
    pub fn new(headers: &[&str]) -> Self {
        let column = |header: &&str| match header.strip_prefix('<') {
            Some(name) => (name.to_owned(), Align::Left),
            None => ((*header).to_owned(), Align::Right),
        };
        Self {
            columns: headers.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<I: IntoIterator<Item: Into<String>>>(&mut self, cells: I) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The text in lines of at most so many characters, where the last column can be broken at its spaces.
    pub fn render_within(mut self, characters: usize) -> String {
        let Some(last) = self.columns.len().checked_sub(1) else {
            return self.render();
        };
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max()
        };
        let before: usize = (0..last).filter_map(width).map(|width| width + 2).sum();
        let left = characters.saturating_sub(before).max(16);
        for row in std::mem::take(&mut self.rows) {
            let lines = broken(&row[last], left);
            let rest = vec![String::new(); last];
            for (number, line) in lines.into_iter().enumerate() {
                let cells = if number == 0 { &row[..last] } else { &rest };
                self.row(cells.iter().cloned().chain([line]));
            }
        }
        self.render()
    }

    /// The text, a line a row.
    pub fn render(&self) -> String {
        let headers: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .chain([&headers])
                .map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line =
            |cells: &[String]| {
                let padded = cells.iter().zip(&self.columns).zip(&widths).map(
                    |((cell, (_, align)), &width)| match align {
                        Align::Left => format!("{cell:<width$}"),
                        Align::Right => format!("{cell:>width$}"),
                    },
                );
                padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
            };
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let mut text = line(&headers) + &line(&rule);
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}

/// Text in lines of at most so many characters, but for words that are longer.
fn broken(text: &str, characters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the beginning");
        let taken = line.chars().count() + 1 + word.chars().count();
        match line.is_empty() {
            true => line.push_str(word),
            false if taken <= characters => *line += &format!(" {word}"),
            false => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_broken_at_spaces() {
        let mut table = Table::new(&["<name", "<what"]);
        table.row(["knn", "the nearest points to each point"]);
        table.row(["relu", "max"]);
        let text = table.render_within(22);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "knn   the nearest",
                "      points to each",
                "      point",
                "relu  max"
            ]
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["<layer", "ms"]);
        table.row(["conv1", "12.3"]);
        table.row(["layer1.0.conv2", "1"]);
        table.row(["fc"]);
        assert_eq!(
            table.render(),
            "layer             ms\n--------------  ----\nconv1           12.3\nlayer1.0.conv2     1\nfc\n"
        );
    }
}
