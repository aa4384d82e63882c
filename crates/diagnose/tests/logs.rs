//! Every rule about logs: what it says of an input with its cause, and that it is silent on one without.
//!
//! `logs/ID/positive.txt` and `negative.txt` are inputs written for this test; the text of the finding is a snapshot.

use std::{fs, path::Path};

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
        let found = look(&folder.join(id).join("positive.txt"));
        match found.first() {
            Some(finding) if finding.id == id => texts += &format!("{id}: {}\n\n", told(finding)),
            _ => {
                let others: Vec<&str> = found.iter().map(|finding| finding.id).collect();
                wrong.push(format!("{id}: found {others:?}"));
            }
        }
        let found = look(&folder.join(id).join("negative.txt"));
        if found.iter().any(|finding| finding.id == id) {
            wrong.push(format!("{id}: found in its negative input"));
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
