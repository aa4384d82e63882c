//! Every rule about logs: what it says of an input with its cause, and that it is silent on one without.
//!
//! `logs/ID/positive*` and `logs/ID/negative*` are inputs written for this test; the text of the finding is a snapshot.

use std::{
    fs,
    path::{Path, PathBuf},
};

use diagnose::{
    diagnosis::diagnose,
    finding::Finding,
    job::{Input, Job},
};

fn look(path: &Path) -> Vec<Finding> {
    let bytes = fs::read(path).expect("the input exists");
    let input = readers::Input::from_bytes("log", bytes).expect("bytes can be read");
    let reading = readers::read(input).expect("a reader knows the text");
    let input = Input { name: reading.input, format: reading.format, timeline: reading.timeline };
    diagnose(&Job::new(vec![input], vec![])).findings
}

/// The inputs of a cause whose names start so, at least one.
fn inputs(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of inputs");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
    });
    paths.sort();
    assert!(!paths.is_empty(), "{} has no {start} input", folder.display());
    paths
}

fn told(finding: &Finding) -> String {
    let mut text = format!("{} ({:?}, {:?})", finding.title, finding.severity, finding.confidence);
    if !finding.ranks.is_empty() {
        text += &format!("\nranks {:?}", finding.ranks);
    }
    if let Some(cost) = finding.cost {
        text += &format!("\n{:.1} ms per step, {:.1} to {:.1}", cost.estimate, cost.low, cost.high);
    }
    for evidence in &finding.evidence {
        text += &format!("\n{:>4}: {}", evidence.line.unwrap_or(0), evidence.text.trim());
    }
    if let Some(setting) = &finding.remedy.setting {
        text += &format!("\nsetting: {setting}");
    }
    text
}

#[test]
fn rules_find_their_cause_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut ids: Vec<String> = fs::read_dir(&folder)
        .expect("the folder of inputs exists")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    ids.sort();
    let mut wrong = vec![];
    let mut texts = String::new();
    for id in &ids {
        for path in inputs(&folder.join(id), "positive") {
            let found = look(&path);
            match found.first() {
                Some(finding) if finding.id == id => {
                    texts += &format!("{id}: {}\n\n", told(finding));
                }
                _ => {
                    let others: Vec<&str> = found.iter().map(|finding| finding.id).collect();
                    wrong.push(format!("{}: found {others:?}", path.display()));
                }
            }
        }
        for path in inputs(&folder.join(id), "negative") {
            if look(&path).iter().any(|finding| finding.id == id) {
                wrong.push(format!("{}: found in a negative input", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!(texts);
}

#[test]
fn every_cause_of_a_log_is_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let explained: Vec<&str> = diagnose::rules::ALL
        .iter()
        .flat_map(|rule| rule.explanations())
        .map(|explanation| explanation.id)
        .collect();
    for entry in fs::read_dir(folder).expect("the folder of inputs exists") {
        let id = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(explained.contains(&id.as_str()), "{id} has no explanation");
    }
    let mut once = explained.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), explained.len(), "an id is explained twice");
}
