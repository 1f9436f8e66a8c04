//! Text tables: columns padded to their widest cell, two spaces between, the last column padded too.
//!
//! A row shorter than the columns gets empty cells; a longer one is a mistake of the caller and is cut.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    Center,
}

pub struct Table {
    /// Heading, its alignment, the cells' alignment.
    columns: Vec<(String, Align, Align)>,
    rows: Vec<Vec<String>>,
    separator: &'static str,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    pub fn new() -> Self {
        Self {
            columns: Vec::new(),
            rows: Vec::new(),
            separator: "  ",
        }
    }

    /// Columns whose headings and cells lean the same way.
    pub fn columns(mut self, align: Align, names: &[&str]) -> Self {
        for n in names {
            self.columns.push((n.to_string(), align, align));
        }
        self
    }

    /// One column with a heading that leans another way than its cells.
    pub fn column(mut self, name: &str, heading: Align, cells: Align) -> Self {
        self.columns.push((name.to_string(), heading, cells));
        self
    }

    pub fn left(self, names: &[&str]) -> Self {
        self.columns(Align::Left, names)
    }

    pub fn right(self, names: &[&str]) -> Self {
        self.columns(Align::Right, names)
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl ToString>) {
        let mut row: Vec<String> = cells
            .into_iter()
            .take(self.columns.len())
            .map(|c| c.to_string())
            .collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// All lines, each ending with a newline.
    pub fn print(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|r| r[i].chars().count());
            cells.max().unwrap_or(0).max(self.columns[i].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut out = String::new();
        let headings = self.columns.iter().map(|(n, a, _)| (n.as_str(), *a));
        self.line(&mut out, headings, &widths);
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(&self.columns)
                .map(|(c, (_, _, a))| (c.as_str(), *a));
            self.line(&mut out, cells, &widths);
        }
        out
    }

    fn line<'a>(&self, out: &mut String, cells: impl Iterator<Item = (&'a str, Align)>, widths: &[usize]) {
        for (i, ((text, align), width)) in cells.zip(widths).enumerate() {
            if i > 0 {
                out.push_str(self.separator);
            }
            let free = width.saturating_sub(text.chars().count());
            let before = match align {
                Align::Left => 0,
                Align::Right => free,
                Align::Center => free / 2,
            };
            out.push_str(&" ".repeat(before));
            out.push_str(text);
            out.push_str(&" ".repeat(free - before));
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_every_column() {
        let mut t = Table::new().right(&["ID"]).left(&["TYPE NAME"]);
        t.row(["-1", "root default"]);
        t.row(["0", "x"]);
        assert_eq!(
            t.print(),
            "ID  TYPE NAME   \n-1  root default\n 0  x           \n"
        );
    }
}
