//! The recipe as people and programs read it back: every key with its value and origin, or a file that needs no other.
//! Knows no meaning of keys.

use std::fmt::Write as _;

use super::{Origin, Recipe, Value};

impl Recipe {
    /// Every key as TOML with its origin as a comment; the text is itself a recipe.
    pub fn with_origins(&self) -> String {
        self.write(true, |_, value| value.clone())
    }

    /// A recipe that means the same wherever its file lies: all keys, absolute paths.
    pub fn portable(&self) -> String {
        self.write(false, |key, value| match (key, value) {
            ("data.train", Value::Paths(_)) => paths(&self.data.train),
            ("data.validation", Value::Paths(_)) => paths(&self.data.validation),
            ("model.weights", Value::Text(_)) => {
                self.model.weights.as_ref().map_or_else(|| value.clone(), |path| absolute(path))
            }
            ("output.folder", Value::Text(_)) => absolute(&self.output.folder),
            _ => value.clone(),
        })
    }

    /// Every key with its value and origin as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let entries = self.resolved.fields.iter().filter_map(|field| {
            let (value, origin) = self.resolved.values.get(&field.key)?;
            let value = match value {
                Value::Integer(value) => serde_json::json!(value),
                Value::Number(value) => serde_json::json!(value),
                Value::Boolean(value) => serde_json::json!(value),
                Value::Text(value) => serde_json::json!(value),
                Value::Paths(value) => serde_json::json!(value),
                Value::Groups(value) => value
                    .iter()
                    .map(|group| {
                        serde_json::json!({
                            "endings": group.endings,
                            "at_least_axes": group.at_least_axes,
                            "weight_decay": group.weight_decay,
                            "learning_rate_scale": group.learning_rate_scale,
                        })
                    })
                    .collect(),
            };
            Some((
                field.key.clone(),
                serde_json::json!({ "value": value, "origin": origin.to_string() }),
            ))
        });
        serde_json::Value::Object(entries.collect())
    }

    fn write(&self, origins: bool, value_of: impl Fn(&str, &Value) -> Value) -> String {
        let mut text = String::new();
        let mut section = "";
        let mut lines: Vec<(String, String)> = vec![];
        let flush = |text: &mut String, lines: &mut Vec<(String, String)>| {
            let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
            for (line, comment) in lines.drain(..) {
                let _ = if comment.is_empty() {
                    writeln!(text, "{line}")
                } else {
                    writeln!(text, "{line:width$}  # {comment}")
                };
            }
        };
        for field in &self.resolved.fields {
            let (own, name) = field.key.split_once('.').unwrap_or(("", &field.key));
            if own != section {
                flush(&mut text, &mut lines);
                let _ = writeln!(text, "{}[{own}]", if section.is_empty() { "" } else { "\n" });
                section = own;
            }
            match self.resolved.values.get(&field.key) {
                Some((value, origin)) => {
                    let comment = match (origins, origin) {
                        (false, _) => String::new(),
                        (true, Origin::Line(line)) => format!("{}:{line}", self.resolved.file),
                        (true, other) => other.to_string(),
                    };
                    lines.push((format!("{name} = {}", value_of(&field.key, value)), comment));
                }
                None if origins => lines.push((format!("# {name}: not set"), field.help.clone())),
                None => {}
            }
        }
        flush(&mut text, &mut lines);
        text
    }
}

fn absolute(path: &std::path::Path) -> Value {
    Value::Text(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string())
}

fn paths(paths: &[std::path::PathBuf]) -> Value {
    Value::Paths(
        paths
            .iter()
            .map(|path| {
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
            })
            .collect(),
    )
}
