//! The command from outside: what a person sees who mistypes, or who has no GPU. Knows no measurement.

use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_counterpoint-bench"))
        .args(arguments)
        .output()
        .expect("the binary was built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_mistake_names_what_was_found_and_what_was_expected() {
    for (arguments, expected) in [
        (vec!["matmuls"], "a similar subcommand exists: 'matmul'"),
        (vec!["attention", "--shapes", "32x12"], "32x12x1024x64"),
        (vec!["convolutions", "--only", "stage 9"], "stage 3 inner 3x3"),
        (vec!["matmul", "--models", "7b"], "355m"),
    ] {
        let (code, text) = run(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    if !matches!(native::driver::devices(), Err(error) if error.is_missing_library()) {
        return;
    }
    let (code, text) = run(&["copy"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("libcuda.so.1") && text.contains("COUNTERPOINT_LIBRARY_PATH"), "{text}");
}

#[test]
fn what_would_be_measured_can_be_seen_without_a_gpu() {
    let (code, text) = run(&["matmul", "--dry-run"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("124M b32 t1024 down data gradient: plain; residual as C"), "{text}");
}
