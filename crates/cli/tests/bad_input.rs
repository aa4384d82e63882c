//! What people get wrong, through the program itself: one clear line, exit status 2, nothing lost.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A folder with a small recipe and text, in which the program runs.
struct Place(TempDir);

const RECIPE: &str = "[model]\nfamily = \"gpt2\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n\
    [data]\ntrain = \"text.txt\"\n[train]\nbatch = 4\nsteps = 3\n[validation]\nbatches = 1\n";

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        place.file("small.toml", RECIPE);
        place.file("text.txt", &"to be or not to be, that is the question\n".repeat(20));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("writes");
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .args(line.split(' '))
            .current_dir(self.0.path())
            .output()
            .expect("starts")
    }

    /// Standard error of a command line that must fail with `status`.
    fn fails(&self, line: &str, status: i32) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{line}: {text}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
        text
    }

    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {text}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn mistakes_are_one_line_and_status_2() {
    let place = Place::new();
    place.file(
        "wrong.toml",
        &RECIPE.replace("batch = 4", "batchs = 4").replace("steps = 3", "steps = \"3\""),
    );
    place.file("big.bin", "\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}\u{1}");
    place.file("odd.bin", "12345");
    place.file("cut.bin", "123456");
    for (line, expected) in [
        (
            "train nowhere.toml",
            "error: nowhere.toml: cannot read: No such file or directory (os error 2)\n",
        ),
        (
            "train",
            "error: no recipe: expected a TOML file such as recipes/tiny-gpt.toml, or --resume\n",
        ),
        (
            "config wrong.toml",
            "error: wrong.toml:10: train.batchs: no such key; nearest: train.batch\n\
             error: wrong.toml:11: train.steps: found \"3\" (a string), expected an integer of at least 1\n",
        ),
        (
            "train small.toml --set train.batch=6 --set parallel.ranks=4",
            "error: --set train.batch=6: train.batch: found 6, expected a multiple of parallel.ranks x train.accumulation = 4 x 1 = 4\n",
        ),
        (
            "train small.toml --set model.heads=3",
            "error: --set model.heads=3: model.heads: found 3, expected a divisor of model.width = 16\n",
        ),
        (
            "train small.toml --set data.train=txt.txt",
            "error: txt.txt: no such file; nearest: ./text.txt\n",
        ),
        (
            "train small.toml --set data.train=cut.bin",
            "error: cut.bin: found 6 tokens in its part for training, expected at least 9 for one sample\n",
        ),
        (
            "train small.toml --set data.format=tokens-bin --set data.train=odd.bin",
            "error: odd.bin: found 5 bytes, expected an even number (two bytes per token): cut off or another format\n",
        ),
        (
            "train small.toml --set data.format=tokens-bin --set data.train=big.bin",
            "error: big.bin: token 0 is 257, beyond the vocabulary of 256 (model.vocabulary)\n",
        ),
        (
            "train small.toml --set data.format=llm-c --set data.train=text.txt",
            "error: text.txt: found 820 bytes, expected a header of 1024 bytes: cut off\n",
        ),
        (
            "train small.toml --set precision.residual=bf16",
            "error: --set precision.residual=bf16: precision.residual: found \"bf16\" with precision.compute = \"f32\", expected \"f32\"\n",
        ),
        (
            "train small.toml --set precision.loss_scale=dynamic --set precision.initial_scale=1000",
            "error: --set precision.initial_scale=1000: precision.initial_scale: found 1000, expected a power of two; nearest: 1024\n",
        ),
        (
            "train small.toml --set parallel.link.bytes_per_second=0.5",
            "error: --set parallel.link.bytes_per_second=0.5: parallel.link.bytes_per_second: found 0.5, expected 0 (unlimited) or at least 1000\n",
        ),
        (
            "train small.toml --set validation.batches=1000000000000",
            "error: --set validation.batches=1000000000000: validation.batches: found 1000000000000, expected an integer from 1 to 1048576\n",
        ),
        ("train small.toml --resume nowhere", "error: nowhere: no such folder\n"),
        ("generate --checkpoint nowhere", "error: nowhere: no such folder\n"),
        (
            "plan small.toml --target h300",
            "error: --target h300: expected host or h200; nearest: h200\n",
        ),
    ] {
        assert_eq!(place.fails(line, 2), expected, "{line}");
    }
    let text = place.fails("train small.toml --set train.batch=1000000000", 2);
    assert!(text.starts_with("error: --set train.batch=1000000000: train.batch: 1000000000 in 1 ranks and 1 micro-steps takes "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(place.fails("trian small.toml", 2).contains("a similar subcommand exists: 'train'"));
    assert!(!place.path("runs").exists(), "a mistake leaves no folder behind");
}

#[test]
fn a_run_keeps_its_word_about_files_and_goes_on_from_them() {
    let place = Place::new();
    let text = place.succeeds("train small.toml");
    assert!(
        text.contains("where the time of the steps went") && text.contains("3 steps, loss "),
        "{text}"
    );
    for file in ["recipe.toml", "plan.json", "metrics.jsonl", "timeline.json", "summary.json"] {
        assert!(place.path("runs/small").join(file).exists(), "{file}");
    }
    // Parts of every rank's time sum to its steps exactly.
    let summary: serde_json::Value = serde_json::from_str(
        &fs::read_to_string(place.path("runs/small/summary.json")).expect("reads"),
    )
    .expect("JSON");
    let parts = summary["ranks"][0]["parts"].as_object().expect("parts");
    let number = |value: &serde_json::Value| value.as_i64().expect("nanoseconds");
    let sum: i64 =
        parts.iter().filter(|(name, _)| *name != "total_ns").map(|(_, value)| number(value)).sum();
    assert_eq!(sum, number(&parts["total_ns"]));
    assert_eq!(summary["ranks"][0]["steps"], 3);

    // A second run takes another folder; a named one that is taken is a mistake.
    place.succeeds("train small.toml");
    assert!(place.path("runs/small-2/summary.json").exists());
    assert_eq!(
        place.fails("train small.toml --out runs/small", 2),
        "error: runs/small: holds a run; --resume runs/small goes on with it, another --out starts a new one\n"
    );

    // Going on: the same recipe with more steps, without naming it.
    place.succeeds("train --resume runs/small --set train.steps=5");
    let metrics = fs::read_to_string(place.path("runs/small/metrics.jsonl")).expect("reads");
    let steps: Vec<u64> = metrics
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|event| event["event"] == "step")
        .map(|event| event["step"].as_u64().expect("a step"))
        .collect();
    assert_eq!(steps, [1, 2, 3, 4, 5]);

    // The folder of the checkpoints names the run too; a run that is done says so, one that has done more is a mistake.
    let output = place.run("train --resume runs/small/checkpoints");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all 5 steps are done"), "{said}");
    assert_eq!(
        place.fails("train --resume runs/small --set train.steps=4", 2),
        "error: --set train.steps=4: train.steps: found 4, but runs/small has done 5 steps\n"
    );
    assert_eq!(
        place.fails("train small.toml --out small.toml/o", 2),
        "error: small.toml/o: cannot create: Not a directory (os error 20)\n"
    );

    // Another model, a cut-off file.
    assert_eq!(
        place.fails("train small.toml --resume runs/small --set model.width=32", 2),
        "error: runs/small: made with model.width = 16, the recipe says 32\n"
    );
    assert_eq!(
        place.succeeds("generate --checkpoint runs/small --prompt to --tokens 5 --seed 3").len(),
        place.succeeds("generate --checkpoint runs/small --prompt to --tokens 5 --seed 3").len()
    );
    let newest = place.path("runs/small/checkpoints/step-00000005/model.safetensors");
    let bytes = fs::read(&newest).expect("reads");
    fs::write(&newest, &bytes[..bytes.len() / 2]).expect("writes");
    let text = place.fails("train --resume runs/small", 2);
    assert!(
        text.ends_with("cut off\n") && text.contains("step-00000005/model.safetensors: found "),
        "{text}"
    );
}

#[test]
fn weights_of_another_file_start_a_run_or_are_refused_by_name() {
    let place = Place::new();
    place.succeeds("train small.toml --set train.steps=30");
    let weights = "runs/small/checkpoints/step-00000030/model.safetensors";
    let line = format!("train small.toml --set model.weights={weights} --set train.steps=1 --json");
    let summary: serde_json::Value = serde_json::from_str(&place.succeeds(&line)).expect("JSON");
    assert!(summary["loss"].as_f64().expect("a loss") < 5.3, "{summary}");
    let text = place.fails(&format!("{line} --set model.layers=2"), 2);
    assert!(text.contains(&format!("error: {weights}: no tensor h.1.")), "{text}");
    assert!(text.contains(" in the file; nearest: h.0."), "{text}");
    let text = place.fails(&format!("{line} --set model.width=32"), 2);
    assert!(
        text.contains("16], expected f32[") && text.ends_with(": made for another model\n"),
        "{text}"
    );
    // Moments of another optimizer have no place.
    for optimizer in ["sgd", "sgd --set optimizer.momentum=0.9"] {
        let line = format!(
            "train --resume runs/small --set optimizer.name={optimizer} --set train.steps=40"
        );
        let text = place.fails(&line, 2);
        assert!(
            text.contains("error: runs/small: tensor ")
                && text.contains(" has no place in this run: made with another optimizer"),
            "{text}"
        );
    }
}

#[test]
fn a_loss_that_is_no_number_follows_the_policy() {
    let place = Place::new();
    let huge = "train small.toml --set optimizer.learning_rate=1e6 --set optimizer.name=sgd --set schedule.name=constant --set train.steps=12";
    let text = place.fails(huge, 1);
    assert!(
        text.contains("the loss is") && text.contains("train.nan = \"stop\" ends the run"),
        "{text}"
    );
    // The state is kept, but not where a run goes on by itself.
    assert!(!place.path("runs/small/checkpoints").exists());
    assert_eq!(fs::read_dir(place.path("runs/small/not-finite")).expect("a folder").count(), 1);
    assert!(text.contains("its state is in runs/small/not-finite/step-"), "{text}");
    assert!(text.contains("newest checkpoint: none"), "{text}");
    place.succeeds(&format!("{huge} --set train.nan=skip"));
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let place = Place::new();
    let held = cli::folder::create(&place.path("o")).and_then(|o| cli::folder::lock(&o));
    let text = place.fails("train small.toml --out o", 2);
    assert!(text.contains("o: another run writes here"), "{text}");
    drop(held.expect("the lock"));
    place.succeeds("train small.toml --out o");
}

/// Starts the program and interrupts it so many times, each after the answer to the last; its exit status and its answers.
fn interrupted(place: &Place, line: &str, times: usize) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(line.split(' '))
        .current_dir(place.0.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let (id, mut said) = (child.id().to_string(), String::new());
    // From the first metrics on an interrupt is heard.
    while !place.path("runs/small/metrics.jsonl").exists() {
        assert_eq!(child.try_wait().expect("is asked"), None, "{line}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for _ in 0..times {
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("runs").success());
        errors.read_line(&mut said).expect("a line");
    }
    errors.read_to_string(&mut said).expect("reads");
    (child.wait_with_output().expect("ends").status.code(), said)
}

#[test]
fn a_second_interrupt_ends_at_once() {
    let place = Place::new();
    let endless = "train small.toml --set validation.batches=1048576";
    let (status, said) = interrupted(&place, endless, 2);
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("Ctrl-C again stops at once") && said.contains("stopped;"), "{said}");
}

#[test]
fn an_interrupt_ends_after_the_step_with_a_checkpoint() {
    let place = Place::new();
    let long = "train small.toml --set train.steps=10000000 --set validation.every=1000";
    let (status, rest) = interrupted(&place, long, 1);
    assert_eq!(status, Some(0), "{rest}");
    assert!(rest.contains("stopping after this step") && rest.contains("stopped after"), "{rest}");
    let checkpoints = fs::read_dir(place.path("runs/small/checkpoints")).expect("a folder").count();
    assert_eq!(checkpoints, 1);
    place.succeeds("generate --checkpoint runs/small --prompt to --tokens 3");
}

#[test]
fn a_full_disk_is_stated_and_loses_nothing() {
    let place = Place::new();
    place.succeeds("train small.toml");
    let before = contents(&place.path("runs/small/checkpoints"));
    // A limit on the size of files stands in for the disk: writes beyond 8 KiB fail.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} train --resume runs/small --set train.steps=4",
        env!("CARGO_BIN_EXE_counterpoint")
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.0.path())
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write"), "{text}");
    assert_eq!(contents(&place.path("runs/small/checkpoints")), before);
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).expect("reads")));
        }
    }
    found.sort();
    found
}

#[test]
fn a_checkpoint_of_another_optimizer_is_a_mistake() {
    let place = Place::new();
    place.succeeds("train small.toml --out sgd --set optimizer.name=sgd");
    let text = place.fails("train small.toml --resume sgd --out other --set train.steps=4", 2);
    assert!(text.contains("exp_avg in the file"), "{text}");
}
