//! From a recipe's text and `--set` arguments to one checked value per key, with its origin; every mistake is found.
//!
//! Knows the shape of TOML and the schema; knows no meaning of keys beyond it.

use std::{collections::BTreeMap, fmt, ops::Range};

use toml_edit::{Document, Item, TableLike};

use super::schema::{Family, Field, Group, Kind, Value};
use crate::{Error, Problem};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// Line of the recipe, counted from 1.
    Line(usize),
    /// A `--set` argument.
    Set(String),
    /// The preset of this name.
    Preset(String),
}

/// One value per key.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The recipe's file as named by the caller.
    pub file: String,
    /// Every known field in the order of the schema.
    pub fields: Vec<Field>,
    /// Values of the fields that have one.
    pub values: BTreeMap<String, (Value, Origin)>,
}

/// Reads `text`, the recipe `file`, then applies `sets` of the form `a.b=value` in order.
///
/// # Errors
/// [`Error::Recipe`] with every mistake: text that is no TOML, unknown keys, wrong types, impossible values, missing keys.
pub fn resolve(
    file: &str,
    text: &str,
    sets: &[String],
    common: &[Field],
    families: &[Family],
) -> Result<Resolved, Error> {
    let mut problems = vec![];
    let mut found = Leaves::default();
    match Document::parse(text.to_owned()) {
        Ok(document) => found.collect(document.as_table(), "", &mut |span| {
            let line = span.map_or(1, |span| line_of(text, span.start));
            (format!("{file}:{line}"), Origin::Line(line))
        }),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let message = error.message().lines().next().unwrap_or("unreadable").to_owned();
            return Err(Error::Recipe(vec![Problem {
                place: format!("{file}:{line}"),
                key: String::new(),
                message: format!("not valid TOML: {message}"),
            }]));
        }
    }
    for set in sets {
        if let Err(problem) = found.set(set) {
            problems.push(problem);
        }
    }
    let fields = all_fields(common, families, &found, &mut problems);
    let sections = sections(&fields);
    let mut values = BTreeMap::new();
    for leaf in found.0 {
        match check(&leaf, &fields, &sections) {
            Ok(value) => {
                values.insert(leaf.key, (value, leaf.origin));
            }
            Err(message) => problems.push(Problem { place: leaf.place, key: leaf.key, message }),
        }
    }
    apply_preset(families, &mut values);
    for field in &fields {
        if let (false, Some(default)) = (values.contains_key(&field.key), &field.default) {
            values.insert(field.key.clone(), (default.clone(), Origin::Default));
        }
        let mentioned =
            values.contains_key(&field.key) || problems.iter().any(|p| p.key == field.key);
        if field.required && !mentioned {
            let message = format!("missing; expected {} ({})", field.kind, field.help);
            problems.push(Problem { place: file.to_owned(), key: field.key.clone(), message });
        }
    }
    if problems.is_empty() {
        Ok(Resolved { file: file.to_owned(), fields, values })
    } else {
        Err(Error::Recipe(problems))
    }
}

impl Resolved {
    /// `file:line` or the `--set` argument that gave `key`, or the file alone.
    pub fn place(&self, key: &str) -> String {
        match self.values.get(key).map(|(_, origin)| origin) {
            Some(Origin::Line(line)) => format!("{}:{line}", self.file),
            Some(Origin::Set(argument)) => format!("--set {argument}"),
            Some(Origin::Default | Origin::Preset(_)) | None => self.file.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Set(argument) => write!(f, "--set {argument}"),
            Self::Preset(name) => write!(f, "preset {name}"),
        }
    }
}

/// A key as found, before the schema has seen it.
struct Leaf {
    key: String,
    item: Item,
    place: String,
    origin: Origin,
}

#[derive(Default)]
struct Leaves(Vec<Leaf>);

impl Leaves {
    fn collect(
        &mut self,
        table: &dyn TableLike,
        prefix: &str,
        locate: &mut dyn FnMut(Option<Range<usize>>) -> (String, Origin),
    ) {
        for (name, item) in table.iter() {
            let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            match item.as_table_like() {
                Some(inner) if !inner.is_empty() => self.collect(inner, &key, locate),
                // An empty section says nothing.
                Some(_) if item.is_table() && prefix.is_empty() => {}
                _ => {
                    let span =
                        table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
                    let (place, origin) = locate(span);
                    self.0.push(Leaf { key, item: item.clone(), place, origin });
                }
            }
        }
    }

    fn set(&mut self, argument: &str) -> Result<(), Problem> {
        let place = format!("--set {argument}");
        let Some((key, text)) = argument.split_once('=') else {
            return Err(Problem {
                place,
                key: String::new(),
                message: "expected KEY=VALUE".to_owned(),
            });
        };
        let key = key.trim();
        let text = text.trim();
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        // A bare word is a string, so that a shell needs no second pair of quotes.
        let value = match text.parse() {
            Ok(value) => value,
            Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let message = format!("found {text}, which is beyond 64 bits");
                return Err(Problem { place, key: key.to_owned(), message });
            }
            Err(_) => toml_edit::Value::from(text),
        };
        self.0.retain(|leaf| leaf.key != key);
        self.0.push(Leaf {
            key: key.to_owned(),
            item: Item::Value(value),
            place,
            origin: Origin::Set(argument.to_owned()),
        });
        Ok(())
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

const PRESET: &str = "model.preset";

fn apply_preset(families: &[Family], values: &mut BTreeMap<String, (Value, Origin)>) {
    let text = |key: &str| match values.get(key) {
        Some((Value::Text(text), _)) => text.clone(),
        _ => String::new(),
    };
    let (family, name) = (text("model.family"), text(PRESET));
    let family = families.iter().find(|known| known.name == family);
    let preset = family.and_then(|family| family.presets.iter().find(|(known, _)| *known == name));
    for (key, value) in preset.map_or(&[][..], |(_, values)| values) {
        values.entry(key.clone()).or_insert_with(|| (value.clone(), Origin::Preset(name.clone())));
    }
}

/// The fields of the family that the recipe names come first, then the common ones.
fn all_fields(
    common: &[Field],
    families: &[Family],
    found: &Leaves,
    problems: &mut Vec<Problem>,
) -> Vec<Field> {
    let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
    let word = Kind::choice(&names);
    let mut fields = vec![Field::required("model.family", word, "which model")];
    let named =
        found.0.iter().find(|leaf| leaf.key == "model.family").and_then(|leaf| leaf.item.as_str());
    match families.iter().find(|family| Some(family.name.as_str()) == named) {
        Some(family) => {
            let presets: Vec<&str> = family.presets.iter().map(|(name, _)| name.as_str()).collect();
            let help = "a known size; keys given one by one count more";
            if !presets.is_empty() {
                fields.push(Field::optional(PRESET, Kind::choice(&presets), help));
            }
            fields.extend(family.fields.iter().cloned());
            let help = "safetensors file with initial values";
            fields.push(Field::optional("model.weights", Kind::Text, help));
        }
        // Without a family its keys cannot be judged: only the family itself is reported.
        None => {
            let mentioned = found.0.iter().filter(|leaf| leaf.key.starts_with("model."));
            for leaf in mentioned.filter(|leaf| leaf.key != "model.family") {
                let known = families
                    .iter()
                    .flat_map(|family| &family.fields)
                    .find(|field| field.key == leaf.key);
                if let Some(field) =
                    known.filter(|known| !fields.iter().any(|field| field.key == known.key))
                {
                    fields.push(Field { required: false, ..field.clone() });
                }
            }
        }
    }
    if fields.iter().any(|field| !field.key.starts_with("model.")) {
        problems.push(Problem {
            place: "model".to_owned(),
            key: String::new(),
            message: "a family declares a key outside [model]".to_owned(),
        });
    }
    fields.extend(common.iter().cloned());
    fields
}

fn sections(fields: &[Field]) -> Vec<String> {
    let mut sections: Vec<String> = vec![];
    for field in fields {
        let mut prefix = field.key.as_str();
        while let Some((section, _)) = prefix.rsplit_once('.') {
            if !sections.iter().any(|known| known == section) {
                sections.push(section.to_owned());
            }
            prefix = section;
        }
    }
    sections
}

fn check(leaf: &Leaf, fields: &[Field], sections: &[String]) -> Result<Value, String> {
    if let Some(field) = fields.iter().find(|field| field.key == leaf.key) {
        return match &field.kind {
            Kind::Groups => groups(&leaf.item),
            kind => convert(&leaf.item, kind).ok_or_else(|| unexpected(&leaf.item, kind)),
        };
    }
    if sections.contains(&leaf.key) {
        return Err(format!(
            "found {}, expected a section of keys",
            describe(&leaf.item, &Kind::Text)
        ));
    }
    if let Some(field) =
        fields.iter().find(|field| leaf.key.starts_with(&format!("{}.", field.key)))
    {
        return Err(format!("{} takes {}, not a section", field.key, field.kind));
    }
    let keys: Vec<&str> = fields.iter().map(|field| field.key.as_str()).collect();
    Err(match nearest(&leaf.key, &keys) {
        Some(name) => format!("no such key; nearest: {name}"),
        None => format!("no such key; sections are {}", top_level(sections)),
    })
}

fn top_level(sections: &[String]) -> String {
    let top: Vec<&str> = sections.iter().filter(|s| !s.contains('.')).map(String::as_str).collect();
    top.join(", ")
}

/// The valid name that is most like `wrong`, if any is like it at all. The last part of a dotted name counts alone too,
/// so that a key in the wrong section is found.
pub fn nearest<'a>(wrong: &str, names: &[&'a str]) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or("").to_owned();
    let likeness = |name: &str| {
        let whole = strsim::jaro_winkler(wrong, name);
        let tail = strsim::jaro_winkler(&last(wrong), &last(name)) - 0.05;
        whole.min(0.99).max(tail)
            + if wrong.split('.').next() == name.split('.').next() { 0.05 } else { 0.0 }
    };
    names
        .iter()
        .map(|&name| (likeness(name), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn unexpected(item: &Item, kind: &Kind) -> String {
    format!("found {}, expected {kind}", describe(item, kind))
}

/// The value of every kind but [`Kind::Groups`], which has mistakes of its own.
fn convert(item: &Item, kind: &Kind) -> Option<Value> {
    match kind {
        Kind::Integer { min, max } => {
            item.as_integer().filter(|value| (min..=max).contains(&value)).map(Value::Integer)
        }
        Kind::Number { min, max } => {
            number(item).filter(|value| (min..=max).contains(&value)).map(Value::Number)
        }
        Kind::Boolean => item.as_bool().map(Value::Boolean),
        Kind::Choice(words) => item
            .as_str()
            .filter(|word| words.iter().any(|known| known == word))
            .map(|word| Value::Text(word.to_owned())),
        Kind::Text => item.as_str().map(|text| Value::Text(text.to_owned())),
        Kind::Paths => {
            let paths: Vec<String> = match item.as_str() {
                Some(path) => vec![path.to_owned()],
                None => strings(item)?,
            };
            let named = !paths.is_empty() && paths.iter().all(|path| !path.is_empty());
            named.then_some(Value::Paths(paths))
        }
        Kind::Groups => None,
    }
}

fn number(item: &Item) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "an integer in a recipe may stand for a number")]
    let value = item.as_float().or_else(|| item.as_integer().map(|value| value as f64))?;
    value.is_finite().then_some(value)
}

fn strings(item: &Item) -> Option<Vec<String>> {
    item.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn groups(item: &Item) -> Result<Value, String> {
    let tables: Option<Vec<&dyn TableLike>> = match item {
        Item::ArrayOfTables(tables) => {
            Some(tables.iter().map(|table| table as &dyn TableLike).collect())
        }
        Item::Value(toml_edit::Value::Array(array)) => array
            .iter()
            .map(|value| value.as_inline_table().map(|table| table as &dyn TableLike))
            .collect(),
        _ => None,
    };
    let tables = tables.ok_or_else(|| unexpected(item, &Kind::Groups))?;
    let named = tables.into_iter().enumerate().map(|(index, table)| {
        group(table).map_err(|message| format!("group {}: {message}", index + 1))
    });
    named.collect::<Result<_, _>>().map(Value::Groups)
}

/// The keys of a group and what each takes.
const GROUP_KEYS: [(&str, &str); 4] = [
    ("endings", "a list of strings"),
    ("at_least_axes", "an integer of at least 0"),
    ("weight_decay", "a number of at least 0"),
    ("learning_rate_scale", "a number of at least 0"),
];

fn group(table: &dyn TableLike) -> Result<Group, String> {
    let mut group = Group::default();
    let not_negative = |item: &Item| number(item).filter(|&value| value >= 0.0);
    for (name, item) in table.iter() {
        let Some((_, expected)) = GROUP_KEYS.iter().find(|(known, _)| *known == name) else {
            let keys = GROUP_KEYS.map(|(key, _)| key);
            return Err(match nearest(name, &keys) {
                Some(key) => format!("no such key {name}; nearest: {key}"),
                None => format!("no such key {name}; keys are {}", keys.join(", ")),
            });
        };
        let taken = match name {
            "endings" => strings(item).map(|endings| group.endings = endings),
            "at_least_axes" => item
                .as_integer()
                .and_then(|axes| u64::try_from(axes).ok())
                .map(|axes| group.at_least_axes = axes),
            "weight_decay" => not_negative(item).map(|decay| group.weight_decay = Some(decay)),
            _ => not_negative(item).map(|scale| group.learning_rate_scale = Some(scale)),
        };
        taken.ok_or_else(|| {
            format!("{name}: found {}, expected {expected}", describe(item, &Kind::Groups))
        })?;
    }
    if table.is_empty() { Err("has no keys".to_owned()) } else { Ok(group) }
}

/// What was found, as a person would say it: the value, and its type where that is what is wrong.
fn describe(item: &Item, kind: &Kind) -> String {
    let shown = item.to_string().trim().chars().take(60).collect::<String>().replace('\n', " ");
    let same_type = match kind {
        Kind::Integer { .. } => item.is_integer(),
        Kind::Number { .. } => item.is_integer() || item.is_float(),
        Kind::Boolean => item.is_bool(),
        Kind::Choice(words) => {
            if let Some(word) = item.as_str() {
                let known: Vec<&str> = words.iter().map(String::as_str).collect();
                return match nearest(word, &known) {
                    Some(name) => format!("{shown} (nearest: {name:?})"),
                    None => shown,
                };
            }
            false
        }
        Kind::Text | Kind::Paths | Kind::Groups => false,
    };
    if same_type { shown } else { format!("{shown} ({})", type_name(item)) }
}

fn type_name(item: &Item) -> &'static str {
    match item.type_name() {
        "string" => "a string",
        "integer" => "an integer",
        "float" => "a number",
        "boolean" => "a boolean",
        "array" => "an array",
        "datetime" => "a date",
        "array of tables" => "a list of tables",
        _ => "a table",
    }
}
