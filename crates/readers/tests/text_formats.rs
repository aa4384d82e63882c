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
