//! Whether a document fulfils a JSON Schema, for the keywords that our schemas use. Knows no schema.

use serde_json::Value;

/// Everything that is wrong with a document, each with its place.
pub fn problems(schema: &Value, document: &Value) -> Vec<String> {
    let mut found = vec![];
    check(schema, document, "", &mut found);
    found
}

fn check(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        found.push(format!("{place}: the schema is no object"));
        return;
    };
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "type" => {
                let names: Vec<&str> = match wanted {
                    Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                if !names.iter().any(|name| is_type(value, name)) {
                    found.push(format!("{place}: found {value}, expected {wanted}"));
                }
            }
            "const" if wanted != value => {
                found.push(format!("{place}: found {value}, expected {wanted}"));
            }
            "enum" if wanted.as_array().is_none_or(|all| !all.contains(value)) => {
                found.push(format!("{place}: found {value}, expected one of {wanted}"));
            }
            "required" => {
                for name in wanted.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if value.is_object() && value.get(name).is_none() {
                        found.push(format!("{place}.{name}: missing"));
                    }
                }
            }
            "properties" => {
                for (name, inner) in wanted.as_object().into_iter().flatten() {
                    if let Some(own) = value.get(name) {
                        check(inner, own, &format!("{place}.{name}"), found);
                    }
                }
                // Our schemas name every key that we write.
                let unnamed = value.as_object().into_iter().flatten().map(|(name, _)| name);
                for name in unnamed.filter(|name| wanted.get(name.as_str()).is_none()) {
                    found.push(format!("{place}.{name}: not in the schema"));
                }
            }
            "additionalProperties" => {
                for (name, own) in value.as_object().into_iter().flatten() {
                    check(wanted, own, &format!("{place}.{name}"), found);
                }
            }
            "items" => {
                for (index, own) in value.as_array().into_iter().flatten().enumerate() {
                    check(wanted, own, &format!("{place}[{index}]"), found);
                }
            }
            "minItems" => {
                let count = value.as_array().map_or(u64::MAX, |all| all.len() as u64);
                if wanted.as_u64().is_some_and(|least| count < least) {
                    found.push(format!("{place}: {count} items, expected at least {wanted}"));
                }
            }
            "$schema" | "$id" | "title" | "description" | "const" | "enum" => {}
            other => found.push(format!("{place}: the checker does not know {other}")),
        }
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    }
}
