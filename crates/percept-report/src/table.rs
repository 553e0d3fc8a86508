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

#[cfg(test)]
mod tests {
    use super::*;

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
