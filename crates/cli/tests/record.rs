//! `counterpoint record` on unchanged jobs: exit status and output are the job's, and the folder answers a diagnosis.
//!
//! Ranks need PyTorch in COUNTERPOINT_PYTHON, in `.venv`, or in `python3`. Without it those tests say so and pass;
//! COUNTERPOINT_STRICT makes that a failure.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

fn counterpoint() -> Command {
    Command::new(env!("CARGO_BIN_EXE_counterpoint"))
}

/// A Python that can import torch.
#[expect(clippy::print_stdout, reason = "a test says why it is left out")]
fn python_with_torch() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("COUNTERPOINT_PYTHON").map(PathBuf::from);
    let known = [root.join(".venv/bin/python"), PathBuf::from("python3")];
    let works = |python: &PathBuf| {
        let mut check = Command::new(python);
        check.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    let found = named.into_iter().chain(known).find(works);
    if found.is_none() {
        let strict = std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|value| value != "0");
        assert!(!strict, "no Python with torch: set COUNTERPOINT_PYTHON");
        println!("left out: no Python with torch");
    }
    found
}

/// Two ranks of the job, as a launcher starts them.
fn two_ranks(python: &Path, folder: &Path, record: &[&str], job: &[&str]) -> Vec<Output> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).expect("a port").port();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/job.py");
    let start = |rank: usize| -> Child {
        let mut command = counterpoint();
        command.arg("record").args(record).arg("--").arg(python).arg(&script).args(job);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", port.to_string()).env("CUDA_VISIBLE_DEVICES", "");
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    };
    let ranks: Vec<Child> = (0..2).map(start).collect();
    ranks.into_iter().map(|rank| rank.wait_with_output().expect("ends")).collect()
}

#[test]
fn a_recorded_job_names_steps_ranks_and_a_slow_loader() {
    let Some(python) = python_with_torch() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (rank, output) in two_ranks(&python, folder.path(), &["--out", "run"], &["0.04", "14", "3"])
        .iter()
        .enumerate()
    {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("done {rank}\n"));
        assert!(!text.contains("the job goes on"), "{text}");
    }
    let diagnosed = counterpoint()
        .args(["diagnose", "run", "--json"])
        .current_dir(folder.path())
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&diagnosed.stderr);
    assert!(diagnosed.status.success(), "{text}");
    let document: Value = serde_json::from_slice(&diagnosed.stdout).expect("JSON");
    assert_eq!(document["job"]["ranks"], serde_json::json!([0, 1]));
    assert_eq!(document["steps"]["source"], "engine");
    assert_eq!(document["steps"]["counted"], 5);
    assert!(document["job"]["versions"][0]["torch"].is_string(), "{}", document["job"]);
    let first = &document["findings"][0];
    assert_eq!(first["id"], "data.loader_starved", "{document:#}");
    assert_eq!(first["ranks"], serde_json::json!([1]));
    let cost = first["cost_ms_per_step"].as_f64().expect("a cost");
    assert!((25.0..80.0).contains(&cost), "{cost}");
}

#[test]
fn a_job_that_profiles_itself_is_left_alone_and_told() {
    let Some(python) = python_with_torch() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let script = "import torch\n\
        w = torch.nn.Linear(2, 2)\n\
        o = torch.optim.SGD(w.parameters(), lr=0.1)\n\
        for i in range(12):\n\
        \x20   if i == 5:\n\
        \x20       p = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]); p.start()\n\
        \x20   w(torch.ones(1, 2)).sum().backward(); o.step()\n\
        p.stop(); p.export_chrome_trace('own.json')\n";
    fs::write(folder.path().join("job.py"), script).expect("writes");
    let output = counterpoint()
        .args(["record", "--out", "run", "--"])
        .arg(&python)
        .arg("job.py")
        .current_dir(folder.path())
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("this job profiles itself: the job is left alone"), "{text}");
    assert!(folder.path().join("own.json").exists());
    let names = fs::read_dir(folder.path().join("run")).expect("a folder");
    let names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!names.iter().any(|name| name.contains("trace")), "{names:?}");
}

#[test]
fn any_command_keeps_its_status_and_an_existing_sitecustomize_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        let mut command = counterpoint();
        command.args(["record", "--out", "run", "--"]).args(arguments);
        command.current_dir(folder.path()).env("PYTHONPATH", "own").output().expect("starts")
    };
    let output = run(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("err\n"));

    fs::create_dir(folder.path().join("own")).expect("creates");
    fs::write(folder.path().join("own/sitecustomize.py"), "import os\nos.environ['OWN'] = 'ran'\n")
        .expect("writes");
    let output =
        run(&["python3", "-c", "import os, sys; print(os.environ.get('OWN')); sys.exit(5)"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n");
    // Without torch the process is still described.
    let facts = fs::read_dir(folder.path().join("run")).expect("a folder").any(|entry| {
        entry.expect("an entry").file_name().to_string_lossy().ends_with(".facts.json")
    });
    assert!(facts);

    let output = run(&["no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("error: no-such-program: cannot start: "), "{text}");
}
