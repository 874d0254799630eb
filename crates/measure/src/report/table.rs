//! Plain tables: aligned for a terminal, with the same rows for HTML.

use std::fmt;

/// Table with a title, columns and rows of text.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Names of the columns, units included.
    pub columns: Vec<String>,
    /// Rows of cells; a row may have fewer cells than there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Table {
        Table {
            title: title.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.title.is_empty() {
            writeln!(f, "{}", self.title)?;
        }
        let widths = self.widths();
        // A header whose names are all empty is left out.
        let named = self.columns.iter().any(|name| !name.is_empty());
        let head = named.then_some(&self.columns);
        for row in head.into_iter().chain(&self.rows) {
            let mut line = String::from(" ");
            for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let cell = if number == 0 {
                    format!(" {cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
                line.push_str(&cell);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats a number with about three significant digits: `0.213`, `4.81`, `66.2`, `12 345`.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        "-".to_owned()
    } else if size >= 10_000.0 {
        grouped(value)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 || size == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Formats a whole number in groups of three digits.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("Times", &["what", "ns"]);
        table.row(vec!["get".into(), number(66.23)]);
        table.row(vec!["overwrite".into(), number(1234.4)]);
        assert_eq!(
            table.to_string(),
            "Times\n  what         ns\n  get        66.2\n  overwrite  1234\n"
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.2134, "0.213"),
            (4.814, "4.81"),
            (66.23, "66.2"),
            (656_000.4, "656 000"),
            (-1_234_567.0, "-1 234 567"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
