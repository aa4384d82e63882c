//! A table of the database with the columns it happens to have. Knows SQLite, not what the columns mean.

use rusqlite::{Connection, Row, types::ValueRef};
use timeline::Timeline;

/// A plain table and which of the wanted columns it has.
#[derive(Debug)]
pub struct Table {
    name: &'static str,
    wanted: &'static [&'static str],
    present: Vec<bool>,
}

impl Table {
    /// The table, if it exists, is no view or virtual table, and has the first `needed` wanted columns.
    ///
    /// # Errors
    /// Where the database's schema cannot be read.
    pub fn find(
        connection: &Connection,
        name: &'static str,
        wanted: &'static [&'static str],
        needed: usize,
    ) -> rusqlite::Result<Option<Table>> {
        let mut plain = connection.prepare(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1 AND sql LIKE 'CREATE TABLE%'",
        )?;
        if !plain.exists([name])? {
            return Ok(None);
        }
        let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let columns: Vec<String> =
            columns.query_map([name], |row| row.get(0))?.filter_map(Result::ok).collect();
        let present: Vec<bool> = wanted.iter().map(|w| columns.iter().any(|c| c == w)).collect();
        let complete = present.iter().take(needed).all(|&present| present);
        Ok(complete.then_some(Table { name, wanted, present }))
    }

    /// Whether the table has a wanted column.
    pub fn has(&self, column: &str) -> bool {
        self.wanted.iter().zip(&self.present).any(|(name, &present)| present && *name == column)
    }

    /// Calls `row` for each row with the wanted columns, those missing being null. Damage ends the table and is counted.
    pub fn each(
        &self,
        connection: &Connection,
        timeline: &mut Timeline,
        mut row: impl FnMut(&mut Timeline, Values<'_>),
    ) {
        let columns: Vec<String> = self
            .wanted
            .iter()
            .zip(&self.present)
            .map(|(name, &present)| if present { format!("\"{name}\"") } else { "NULL".to_owned() })
            .collect();
        let statement = format!("SELECT {} FROM \"{}\"", columns.join(", "), self.name);
        let outcome: rusqlite::Result<()> = (|| {
            let mut statement = connection.prepare(&statement)?;
            let mut rows = statement.query([])?;
            while let Some(found) = rows.next()? {
                row(timeline, Values(found));
            }
            Ok(())
        })();
        if let Err(error) = outcome {
            timeline.skip(&format!("rest of table {} ({error})", self.name));
        }
    }
}

/// One row.
#[derive(Clone, Copy)]
pub struct Values<'r>(&'r Row<'r>);

impl<'r> Values<'r> {
    /// A whole number; `None` where the column is missing, null or something else.
    pub fn int(self, column: usize) -> Option<i64> {
        match self.0.get_ref(column) {
            Ok(ValueRef::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// A text.
    pub fn text(self, column: usize) -> Option<&'r str> {
        match self.0.get_ref(column) {
            Ok(value @ ValueRef::Text(_)) => value.as_str().ok(),
            _ => None,
        }
    }

    /// Start and length of a span in nanoseconds from the first two columns; `None` where they make none.
    pub fn times(self) -> Option<(i64, i64)> {
        let (start, end) = (self.int(0)?, self.int(1)?);
        Some((start, end.checked_sub(start).filter(|&length| length >= 0)?))
    }
}
