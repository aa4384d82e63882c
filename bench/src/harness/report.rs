//! Tables on disk: one JSON file for programs and one markdown file for people, kept current while measuring.
//!
//! Knows no particular table.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::{Common, Samples, say};

/// How often files are rewritten while rows arrive.
const INTERVAL: Duration = Duration::from_secs(2);

/// A row of a table: named values in order, each with its text for people.
#[derive(Debug, Clone, Default)]
pub struct Row(Vec<(String, Value, String)>);

impl Row {
    /// No value yet.
    pub fn new() -> Row {
        Row::default()
    }

    /// A word.
    #[must_use]
    pub fn text(mut self, name: &str, value: impl Into<String>) -> Row {
        let value = value.into();
        self.0.push((name.into(), json!(value), value.replace('|', "/")));
        self
    }

    /// A whole number.
    #[must_use]
    pub fn integer(mut self, name: &str, value: u64) -> Row {
        self.0.push((name.into(), json!(value), value.to_string()));
        self
    }

    /// A number with `digits` after the point for people.
    #[must_use]
    pub fn number(mut self, name: &str, value: f64, digits: usize) -> Row {
        self.0.push((name.into(), json!(value), format!("{value:.digits$}")));
        self
    }

    /// A small number such as an error, in scientific notation.
    #[must_use]
    pub fn error(mut self, name: &str, value: f64) -> Row {
        self.0.push((name.into(), json!(value), format!("{value:.1e}")));
        self
    }

    /// With the values of another row behind its own.
    #[must_use]
    pub fn append(mut self, other: Row) -> Row {
        self.0.extend(other.0);
        self
    }

    /// The greatest number whose name starts with `prefix`; NaN counts as infinite.
    pub fn greatest(&self, prefix: &str) -> Option<f64> {
        let numbers = self.0.iter().filter(|(name, _, _)| name.starts_with(prefix));
        // JSON has no infinity: such a number is stored as null.
        numbers.map(|(_, value, _)| value.as_f64().unwrap_or(f64::INFINITY)).reduce(f64::max)
    }

    /// Median and spread in milliseconds.
    #[must_use]
    pub fn timing(self, samples: &Samples) -> Row {
        self.number("ms", samples.median, 4)
            .number("p10", samples.p10, 4)
            .number("p90", samples.p90, 4)
            .integer("samples", samples.count as u64)
    }

    fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect())
    }
}

struct Table {
    title: String,
    rows: Vec<Row>,
    /// Too long for people: in the JSON file alone.
    is_detail: bool,
}

/// The tables of one measurement.
pub struct Report {
    folder: PathBuf,
    name: String,
    header: Map<String, Value>,
    tables: Vec<Table>,
    written: Option<Instant>,
    ordinal: usize,
}

impl Report {
    /// Tables that go to `<out>/<name>.json` and `<out>/<name>.md`.
    pub fn new(common: &Common, header: Map<String, Value>, name: &str) -> Result<Report> {
        fs::create_dir_all(&common.out)
            .with_context(|| format!("cannot create {}", common.out.display()))?;
        let (folder, name) = (common.out.clone(), name.to_owned());
        Ok(Report { folder, name, header, tables: vec![], written: None, ordinal: common.device })
    }

    /// Adds a row to the table `title`, prints it, and rewrites the files now and then.
    pub fn add(&mut self, title: &str, row: Row) -> Result<()> {
        self.add_to(title, row, false)
    }

    /// As [`Report::add`], for a table that goes to the JSON file alone.
    pub fn add_detail(&mut self, title: &str, row: Row) -> Result<()> {
        self.add_to(title, row, true)
    }

    fn add_to(&mut self, title: &str, row: Row, is_detail: bool) -> Result<()> {
        let cells: Vec<String> =
            row.0.iter().map(|(name, _, text)| format!("{name} {text}")).collect();
        say(&format!("{title} | {}", cells.join(" | ")));
        match self.tables.iter_mut().find(|table| table.title == title) {
            Some(table) => table.rows.push(row),
            None => {
                self.tables.push(Table { title: title.to_owned(), rows: vec![row], is_detail });
            }
        }
        if self.written.is_none_or(|at| at.elapsed() > INTERVAL) {
            self.write()?;
        }
        Ok(())
    }

    /// Notes the card's state at the end and writes the files for the last time.
    pub fn finish(mut self) -> Result<()> {
        let state = super::session::card_state(self.ordinal);
        self.header.insert("state at the end".into(), json!(state));
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        write_whole(&self.folder.join(format!("{}.json", self.name)), &self.json()?)?;
        write_whole(&self.folder.join(format!("{}.md", self.name)), &self.markdown())?;
        self.written = Some(Instant::now());
        Ok(())
    }

    /// One row a line, so that two runs can be compared by lines.
    fn json(&self) -> Result<String> {
        let mut text = String::from("{\n  \"header\": ");
        text.push_str(&serde_json::to_string(&self.header)?);
        text.push_str(",\n  \"tables\": [");
        for (index, table) in self.tables.iter().enumerate() {
            let rows = table.rows.iter().map(|row| serde_json::to_string(&row.json()));
            let rows = rows.collect::<serde_json::Result<Vec<String>>>()?;
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&format!(
                "    {{\"title\": {}, \"rows\": [\n      {}\n    ]}}",
                serde_json::to_string(&table.title)?,
                rows.join(",\n      ")
            ));
        }
        text.push_str("\n  ]\n}\n");
        Ok(text)
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.name);
        for (name, value) in &self.header {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("- {name}: {value}\n"));
        }
        for Table { title, rows, .. } in self.tables.iter().filter(|t| !t.is_detail) {
            text.push_str(&format!("\n## {title}\n\n"));
            let mut columns: Vec<&str> = vec![];
            for (name, _, _) in rows.iter().flat_map(|row| &row.0) {
                if !columns.contains(&name.as_str()) {
                    columns.push(name);
                }
            }
            text.push_str(&format!(
                "| {} |\n|{}\n",
                columns.join(" | "),
                "---|".repeat(columns.len())
            ));
            for row in rows {
                let cell = |column: &&str| {
                    let found = row.0.iter().find(|(name, _, _)| name == column);
                    found.map_or("", |(_, _, text)| text.as_str())
                };
                let cells: Vec<&str> = columns.iter().map(cell).collect();
                text.push_str(&format!("| {} |\n", cells.join(" | ")));
            }
        }
        text
    }
}

/// Writes to a temporary name, syncs, and renames.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
