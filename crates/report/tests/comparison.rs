//! What two runs' accounts make certain.

use serde_json::{Value, json};

/// A run of one device, each of whose steps is `least` to `most` ns of waiting and nothing else.
fn run(steps: i64, least: i64, most: i64) -> (String, Value) {
    let total = steps * (least + most) / 2;
    let device = json!({
        "steps": steps, "window_ns": total, "beside": {"busy_ns": 0},
        "account": {"comm.wait": total}, "ranges": {"comm.wait": [least, most]},
    });
    let document = json!({"schema": "counterpoint.diagnosis/1", "devices": [device]});
    ("run".to_owned(), document)
}

#[test]
fn a_change_is_certain_only_where_enough_steps_say_so() {
    let outside = "* outside the noise.";
    let inside = "No change is outside the noise.";
    let few = "Fewer than 3 steps in a run: no change is certain.";
    // Steps before and after; range before and after, in ms.
    for (steps, before, after, expected) in [
        ((1, 1), (90, 90), (50, 50), few),
        ((2, 9), (90, 91), (50, 51), few),
        ((3, 3), (90, 91), (50, 51), outside),
        ((3, 3), (50, 90), (40, 60), inside),
        ((9, 9), (50, 90), (20, 60), outside),
        ((9, 9), (50, 90), (45, 85), inside),
        ((1, 1), (90, 90), (90, 90), "No leaf changed."),
    ] {
        let side =
            |steps, (least, most): (i64, i64)| run(steps, least * 1_000_000, most * 1_000_000);
        let compared =
            report::comparison::compare(&side(steps.0, before), &side(steps.1, after), &[])
                .unwrap();
        let text = report::comparison::text(&compared);
        let said = text.contains(&format!("\n{expected} "));
        assert!(said, "{steps:?} {before:?} {after:?}: {text}");
        let leaves = compared["leaves"].as_array().unwrap();
        let certain = leaves.iter().any(|leaf| leaf["significant"] == true);
        assert_eq!(certain, expected == outside, "{steps:?} {before:?} {after:?}");
    }
}
