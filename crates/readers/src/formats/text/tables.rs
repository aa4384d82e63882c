//! Markdown tables of measurements, as people paste them.
//!
//! Facts of the run, one set per row, joined by its line: `table.row` (the first cell) and `table.cell.COLUMN` (a
//! number under the column of that name, lower case, words joined by underscores).

use timeline::Line;

use super::{Context, Grammar, support::key_word};

/// The grammar.
#[derive(Debug, Default)]
pub struct Tables {
    columns: Vec<String>,
}

impl Grammar for Tables {
    fn name(&self) -> &'static str {
        "table"
    }

    fn line(&mut self, text: &str, line: &Line, context: &mut Context<'_>) -> bool {
        let trimmed = text.trim();
        let inside = trimmed.strip_prefix('|').and_then(|rest| rest.strip_suffix('|'));
        let Some(inside) = inside.filter(|inside| inside.contains('|')) else {
            self.columns.clear();
            return false;
        };
        if inside.chars().all(|c| "-|: ".contains(c)) {
            return !self.columns.is_empty();
        }
        let cells: Vec<&str> = inside.split('|').map(str::trim).take(64).collect();
        let number =
            |cell: &&str| cell.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
        let numbers = cells.iter().skip(1).filter(|cell| number(cell).is_some()).count();
        if numbers == 0 {
            let named = cells.iter().all(|cell| !cell.is_empty() && cell.len() < 64);
            self.columns = match named {
                true => cells.iter().map(|cell| key_word(cell)).collect(),
                false => vec![],
            };
            return named;
        }
        if cells.len() != self.columns.len() {
            return false;
        }
        context.fact(None, "table.row", cells[0], line);
        for (column, cell) in self.columns.iter().zip(&cells).skip(1) {
            if let Some(value) = number(cell).filter(|_| !column.is_empty()) {
                context.fact(None, &format!("table.cell.{column}"), value, line);
            }
        }
        true
    }
}
