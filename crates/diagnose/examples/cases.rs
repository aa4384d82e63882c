//! Holds a folder of labelled cases against the diagnosis: for each run of each `expected.json`, whether the expected
//! cause is first, how many evidence lines are quoted, and which forbidden causes were found; from files, and from
//! bytes without names.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use diagnose::{
    diagnosis::{Diagnosis, diagnose},
    job::{Input, Job, Unusable},
};
use serde_json::Value;

#[expect(clippy::print_stdout, reason = "an example prints")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: cases FOLDER")?;
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("expected.json").exists())
        .collect();
    cases.sort();
    let (mut right, mut unnamed_right) = (0, 0);
    for case in &cases {
        let expected: Value = serde_json::from_slice(&fs::read(case.join("expected.json"))?)?;
        let strings = |key: &str| -> Vec<String> {
            let list = expected[key].as_array().cloned().unwrap_or_default();
            list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let (substrings, must_not) = (strings("evidence_substrings"), strings("must_not"));
        let (mut case_right, mut case_unnamed) = (true, true);
        for run in expected["runs"].as_array().cloned().unwrap_or_default() {
            let files: Vec<PathBuf> = run["files"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|f| f.as_str().map(|f| case.join(f)))
                .collect();
            let contents: String = files
                .iter()
                .map(|path| {
                    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                })
                .collect::<Result<_, _>>()?;
            let here = substrings.iter().filter(|text| contents.contains(text.as_str())).count();
            for named in [true, false] {
                let (diagnosis, unusable) = look(&files, named)?;
                let first = diagnosis.findings.first().map(|finding| finding.id);
                let quoted: Vec<&String> = substrings
                    .iter()
                    .filter(|substring| {
                        diagnosis.findings.iter().take(1).flat_map(|f| &f.evidence).any(
                            |evidence| {
                                evidence.text.contains(*substring)
                                    || evidence
                                        .span
                                        .as_ref()
                                        .is_some_and(|s| s.name.contains(*substring))
                            },
                        )
                    })
                    .collect();
                let forbidden: Vec<&str> = (diagnosis.findings.iter().map(|f| f.id))
                    .filter(|id| must_not.iter().any(|other| other == id))
                    .collect();
                let expect = run["expect"].as_str();
                let ok = first == expect
                    && forbidden.is_empty()
                    && (expect.is_none() || here == 0 || !quoted.is_empty());
                if named {
                    case_right &= ok;
                } else {
                    case_unnamed &= ok;
                }
                if named || !ok {
                    println!(
                        "{} {} {:?}: found {:?}, expected {expect:?}, evidence {}/{here}, forbidden {forbidden:?}, \
                         unusable {unusable:?}, all {:?}{}",
                        if ok { "ok  " } else { "FAIL" },
                        case.file_name().unwrap_or_default().to_string_lossy(),
                        run["files"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .filter_map(Value::as_str)
                            .collect::<Vec<_>>(),
                        first,
                        quoted.len(),
                        diagnosis.findings.iter().map(|f| f.id).collect::<Vec<_>>(),
                        if named { "" } else { " (standard input)" },
                    );
                }
            }
        }
        right += usize::from(case_right);
        unnamed_right += usize::from(case_unnamed);
    }
    println!("{right} of {} cases right; from bytes without names {unnamed_right}", cases.len());
    Ok(())
}

fn look(files: &[PathBuf], named: bool) -> Result<(Diagnosis, Vec<String>), Box<dyn Error>> {
    let (mut inputs, mut unusable) = (vec![], vec![]);
    for path in files {
        match read(path, named) {
            Ok(reading) => inputs.push(Input {
                name: reading.input,
                format: reading.format,
                timeline: reading.timeline,
            }),
            Err(error) => {
                let name = path.display().to_string();
                unusable.push(Unusable { name, reason: error.to_string() });
            }
        }
    }
    let reasons = unusable.iter().map(|unusable| unusable.reason.clone()).collect();
    Ok((diagnose(&Job::new(inputs, unusable)), reasons))
}

fn read(path: &Path, named: bool) -> Result<readers::Reading, Box<dyn Error>> {
    if named {
        return Ok(readers::read_file(path)?);
    }
    Ok(readers::read(readers::Input::from_bytes("-", fs::read(path)?)?)?)
}
