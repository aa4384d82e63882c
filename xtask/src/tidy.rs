//! The tidy rules: the architecture as ARCHITECTURE.md states it, held against the files.
//!
//! Knows file names and first lines; does not parse Rust.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Lists in which every sibling file must appear: `(list file, folder)`.
/// A file `x.rs` is listed when the list file has `mod x;` and mentions `x::` outside that line.
const LISTS: &[&str] = &[
    "crates/graph/src/ops/mod.rs",
    "crates/graph/src/optim/mod.rs",
    "crates/plan/src/rewrite/mod.rs",
    "crates/models/src/zoo/mod.rs",
    "crates/train/src/data/mod.rs",
    "crates/readers/src/formats/mod.rs",
    "crates/readers/src/formats/text/mod.rs",
    "crates/diagnose/src/rules/mod.rs",
    "crates/cli/src/commands/mod.rs",
    "bench/src/programs/mod.rs",
];

/// Files of a listed folder that are shared support rather than entries.
const SUPPORT: &[&str] = &["mod", "support", "testing"];

const MAX_LINES: usize = 600;

/// All broken rules, one line each, naming the file.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut problems = vec![];
    let files = source_files(root)?;
    arrows(root, &mut problems)?;
    lists(root, &mut problems)?;
    headers_and_sizes(root, &files, &mut problems)?;
    unsafe_stays_in_native(root, &files, &mut problems)?;
    named_paths_exist(root, &mut problems)?;
    Ok(problems)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn source_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    let mut folders: Vec<PathBuf> =
        ["crates", "bench", "xtask", "examples", "fuzz"].iter().map(|f| root.join(f)).collect();
    while let Some(folder) = folders.pop() {
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_none_or(|n| n != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The arrow table of ARCHITECTURE.md: rows "| `crate` | `may`, `depend` |" under the heading "Arrows".
fn arrow_table(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let text = read(&root.join("ARCHITECTURE.md"))?;
    let names = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let section = text.split("## Arrows").nth(1).unwrap_or("").split("\n## ").next().unwrap_or("");
    Ok(section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|');
            let name = names(cells.next()?).first()?.clone();
            Some((name, names(cells.next()?)))
        })
        .collect())
}

fn arrows(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let table = arrow_table(root)?;
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let name = relative(&root.join("crates"), &folder);
        let Some(allowed) = table.get(&name) else {
            problems.push(format!("crates/{name}: not in the arrow table of ARCHITECTURE.md"));
            continue;
        };
        let manifest = read(&folder.join("Cargo.toml"))?;
        let section = manifest.split("[dependencies]").nth(1).unwrap_or("");
        for line in section.lines().skip(1).take_while(|line| !line.starts_with('[')) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("");
            if table.contains_key(dependency) && !allowed.iter().any(|a| a == dependency) {
                problems.push(format!("crates/{name}: must not depend on {dependency}"));
            }
        }
    }
    Ok(())
}

fn lists(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    for list in LISTS {
        let path = root.join(list);
        if !path.exists() {
            continue;
        }
        let text = read(&path)?;
        for entry in fs::read_dir(path.parent().expect("a list is in a folder"))? {
            let entry = entry?.path();
            let stem = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_module =
                entry.is_dir() || entry.extension().is_some_and(|extension| extension == "rs");
            if !is_module || SUPPORT.contains(&stem.as_str()) {
                continue;
            }
            if !text.contains(&format!("mod {stem};")) {
                problems.push(format!("{list}: {stem} is not a module of it"));
            } else if !text.contains(&format!("{stem}::")) {
                problems.push(format!("{list}: {stem} is not in the list"));
            }
        }
    }
    Ok(())
}

fn headers_and_sizes(root: &Path, files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    for path in files {
        let text = read(path)?;
        let name = relative(root, path);
        if !text.starts_with("//!") {
            problems.push(format!("{name}: does not open with a //! comment"));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES && !text.contains("// tidy: table") {
            problems.push(format!("{name}: {lines} lines, the limit is {MAX_LINES}"));
        }
        if path.file_stem().is_some_and(|stem| stem == "utils" || stem == "util") {
            problems.push(format!("{name}: name the file for what it holds"));
        }
    }
    Ok(())
}

fn unsafe_stays_in_native(
    root: &Path,
    files: &[PathBuf],
    problems: &mut Vec<String>,
) -> Result<()> {
    for path in files {
        let name = relative(root, path);
        if name.starts_with("crates/native/") || name.starts_with("xtask/") {
            continue;
        }
        let code = read(path)?;
        let used = code.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
            line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl")
        });
        if used {
            problems.push(format!("{name}: unsafe code belongs in crates/native"));
        }
    }
    Ok(())
}

/// Every path in back quotes that starts with a folder of the repository must exist.
fn named_paths_exist(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let folders = ["crates/", "bench/", "recipes/", "examples/", "xtask/", ".ci/", "data/"];
    let mut documents: Vec<PathBuf> = vec![root.join("bench/H200.md")];
    for entry in fs::read_dir(root)? {
        documents.push(entry?.path());
    }
    for path in documents {
        if path.extension().is_none_or(|e| e != "md") || !path.exists() {
            continue;
        }
        let text = read(&path)?;
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = folders.iter().any(|folder| quoted.starts_with(folder));
            if is_path
                && !quoted.contains([' ', '*', '<', '\n', '{'])
                && !root.join(quoted).exists()
            {
                problems.push(format!(
                    "{}: names {quoted}, which does not exist",
                    relative(root, &path)
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let problems = super::check(&crate::root()).unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
