//! A diagnosis as one self-contained page: account, findings, zoomable timeline, collectives. No network.
//!
//! Knows what the page needs as data; `page.html`, `page.css`, `page.js` and `timeline.js` draw it.

mod lanes;

use std::collections::HashSet;

use diagnose::{
    diagnosis::Diagnosis,
    finding::{Evidence, Finding},
    job::Job,
    leaf::Leaf,
};
use serde_json::{Map, Value, json};

use super::{
    classes::{Class, classes, rank_list, telling},
    json,
};
use lanes::Lanes;

/// Classes of ranks whose account is shown.
const CLASSES: usize = 6;
/// Devices drawn at most; of more, some of each class.
const DEVICES: usize = 8;
/// Devices of a class that are drawn where there are more than [`DEVICES`].
const OF_A_CLASS: usize = 2;

/// The page.
pub fn page(job: &Job, diagnosis: &Diagnosis) -> String {
    let at_fault = diagnosis.findings.first().map_or(&[][..], |first| &first.ranks);
    let all = classes(job);
    let ranks = all.iter().map(|class| class.ranks.len()).sum::<usize>();
    let shown = telling(all, at_fault, CLASSES);
    let further = ranks - shown.iter().map(|class| class.ranks.len()).sum::<usize>();
    let drawn = representatives(job, &shown, at_fault);
    let span = |evidence: &Evidence| {
        let input = job.inputs.iter().position(|input| input.name == evidence.file)?;
        Some((input, evidence.span.as_ref()?.index))
    };
    let cited: HashSet<(usize, u32)> =
        diagnosis.findings.iter().flat_map(|finding| &finding.evidence).filter_map(span).collect();
    let lanes = Lanes::of(job, &drawn, &cited);
    // For each piece of evidence of each finding where the timeline shows it.
    let places = |finding: &Finding| -> Vec<Value> {
        let place = |evidence| span(evidence).and_then(|(input, span)| lanes.place(input, span));
        finding.evidence.iter().map(|evidence| json!(place(evidence))).collect()
    };
    let places: Vec<Vec<Value>> = diagnosis.findings.iter().map(places).collect();
    let (timeline, mut note) = lanes.into_json();
    if drawn.len() < job.participants.len() {
        let ranks: Vec<u32> = drawn.iter().map(|&index| job.participants[index].rank).collect();
        let stand = format!("Drawn: {}, which stand for all.", rank_list(&ranks));
        note = Some(note.map_or(stand.clone(), |note| format!("{stand} {note}")));
    }
    let data = json!({
        "document": json::document(job, diagnosis),
        "classes": shown.iter().map(class).collect::<Vec<_>>(),
        "further_ranks": further,
        "leaves": leaves(),
        "timeline": timeline,
        "places": places,
        "note": note,
    });
    // A text inside a script element must not close it or open another.
    let data = data.to_string().replace('<', "\\u003c");
    let parts = [
        ("/*CSS*/", include_str!("page.css")),
        ("/*PAGE*/", include_str!("page.js")),
        ("/*TIMELINE*/", include_str!("timeline.js")),
        ("/*DATA*/", &data),
    ];
    let empty = include_str!("page.html").to_owned();
    parts.into_iter().fold(empty, |page, (mark, part)| page.replacen(mark, part, 1))
}

fn class(class: &Class) -> Value {
    let leaves = class.account.iter().filter(|(_, time)| *time > 0);
    let account: Map<String, Value> =
        leaves.map(|(leaf, time)| (leaf.name().to_owned(), json!(class.per_step(time)))).collect();
    json!({
        "name": rank_list(&class.ranks),
        "count": class.ranks.len(),
        "step_ns": class.per_step(class.account.total()),
        "account": account,
    })
}

fn leaves() -> Map<String, Value> {
    Leaf::ALL.iter().map(|leaf| (leaf.name().to_owned(), json!(leaf.meaning()))).collect()
}

/// The participants that are drawn: all of a few, else some of each class, those at fault first.
fn representatives(job: &Job, shown: &[Class], at_fault: &[u32]) -> Vec<usize> {
    if job.participants.len() <= DEVICES {
        return (0..job.participants.len()).collect();
    }
    let mut drawn: Vec<usize> = vec![];
    for class in shown {
        let mut own = class.participants.clone();
        own.sort_by_key(|&index| !at_fault.contains(&job.participants[index].rank));
        drawn.extend(own.into_iter().take(OF_A_CLASS));
    }
    drawn.truncate(DEVICES);
    drawn.sort_unstable();
    drawn
}
