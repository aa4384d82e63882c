//! What each text format says: lines in, facts out.

mod shapes;

use readers::Input;
use shapes::SHAPES;
use timeline::{FactValue, Timeline};

fn told(timeline: &Timeline) -> String {
    let mut text = String::new();
    for fact in &timeline.facts {
        let value = match &fact.value {
            FactValue::Int(number) => number.to_string(),
            FactValue::Float(number) => number.to_string(),
            FactValue::Text(text) => format!("{text:?}"),
        };
        let process = fact.process.map(|index| &timeline.processes[index as usize]);
        let whose = process.map_or(String::new(), |process| match process.rank {
            Some(rank) => format!(" (rank {rank})"),
            None => format!(" ({})", process.name),
        });
        let line = fact.source.as_ref().map_or(0, |line| line.number);
        text += &format!("{line:>3} {} = {value}{whose}\n", fact.key);
    }
    for skipped in &timeline.skipped {
        text += &format!("skipped {} {}\n", skipped.count, skipped.reason);
    }
    text
}

#[test]
fn shapes_are_recognised_and_state_their_facts() {
    let mut text = String::new();
    for (format, shape) in SHAPES {
        let input = Input::from_bytes("-", shape.to_vec()).expect("bytes can be read");
        let reading = readers::read(input).expect(format);
        text += &format!("{}\n{}\n", reading.format, told(&reading.timeline));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn of_markdown_the_log_is_read_and_not_the_words_about_it() {
    let warning = "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: \
                   CollectiveFingerPrint(OpType=BROADCAST), but Rank 0 is running OpType=BARRIER";
    let driver = "| NVIDIA-SMI 560.35.03    Driver Version: 560.35.03    CUDA Version: 12.6 |";
    let cases: [(&str, String, &[&str]); 7] = [
        ("bare", format!("{warning}\n"), &["rank 1: BROADCAST against BARRIER"]),
        (
            "fenced",
            format!("## Logs\n\n```text\n{warning}\n{driver}\n```\n"),
            &["rank 1: BROADCAST against BARRIER", "560.35.03", "12.6"],
        ),
        ("bare below a heading", format!("### Logs\n{driver}\n"), &["560.35.03", "12.6"]),
        ("a line of code", format!("## Log\n`{driver}`\n"), &["560.35.03", "12.6"]),
        ("items", format!("- `{warning}`\n* `Driver Version: 560.35.03`\n1. {driver}\n"), &[]),
        ("words", "## Why\n`Driver Version: 560.35.03` hangs\n".to_owned(), &[]),
        (
            "items inside a block",
            format!("```\n- {warning}\n~~~\n```\n"),
            &["rank 1: BROADCAST against BARRIER"],
        ),
    ];
    for (name, text, expected) in cases {
        let reading =
            readers::read(Input::from_bytes("-", text.into()).expect("bytes can be read"));
        let facts = reading.map(|reading| reading.timeline.facts).unwrap_or_default();
        let mut values: Vec<String> = facts
            .into_iter()
            .filter_map(|fact| match fact.value {
                FactValue::Text(text) => Some(text),
                _ => None,
            })
            .collect();
        values.dedup();
        assert_eq!(values, expected, "{name}");
    }
}
