//! The nearest valid name for one that does not exist. Knows no names.

/// `; nearest: NAME`, or nothing where no name is near.
pub fn hint<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let scored = names.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    scored
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, _)| *score > 0.7)
        .map_or_else(String::new, |(_, name)| format!("; nearest: {name}"))
}
