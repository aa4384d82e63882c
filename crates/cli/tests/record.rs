//! `counterpoint record` on unchanged jobs: exit status and output are the job's, and the folder answers a diagnosis.
//!
//! Ranks need PyTorch in COUNTERPOINT_PYTHON, in `.venv`, or in `python3`. Without it those tests say so and pass;
//! COUNTERPOINT_STRICT makes that a failure.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
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
        command.env("WORLD_SIZE", "2").env("TORCHELASTIC_RUN_ID", "none");
        command.env("MASTER_ADDR", "127.0.0.1");
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
    for (rank, output) in two_ranks(&python, folder.path(), &["--out", "run"], &["0.04", "24", "3"])
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
    // Steps after the recorded ones are timed: each waits 40 ms for its batch on one of the ranks, and both meet in it.
    for entry in fs::read_dir(folder.path().join("run")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !(name.starts_with("rank") && name.ends_with(".facts.json")) {
            continue;
        }
        let facts: Value = serde_json::from_slice(&fs::read(&path).expect("reads")).expect("JSON");
        let step = &facts["facts"]["steps.unrecorded_ns"];
        assert!(step.as_u64().is_some_and(|step| step > 40_000_000), "{facts}");
    }
    assert_eq!(document["job"]["launcher"], "torchrun");
    assert_eq!(document["job"]["binding"][0]["ranks"], serde_json::json!([0, 1]));
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

#[test]
fn steps_are_marked_whatever_the_loop_and_status_and_output_stay() {
    let Some(python) = python_with_torch() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/loops.py");
    let folder = tempfile::tempdir().expect("a folder");
    // Loop, status, what it prints, what standard error holds, steps counted by the diagnosis.
    let table = [
        ("plain", 0, "done\n", "", 5),
        ("alternating", 0, "done\n", "", 5),
        ("accumulating", 0, "done\n", "", 5),
        ("by group", 0, "done\n", "", 5),
        ("short", 0, "done\n", "", 2),
        ("forked", 0, "", "", 2),
        ("failing", 1, "", "ValueError: bad batch\n", 2),
        ("too short", 0, "done\n", "ended at step 2, and recording begins after step 3", 0),
    ];
    for (name, status, printed, said, steps) in table {
        let mut command = counterpoint();
        command.args(["record", "--out", name, "--"]).arg(&python).arg(&script).arg(name);
        let output = command.current_dir(folder.path()).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{name}: {text}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), printed, "{name}");
        assert!(text.contains(said) && !text.contains("the job goes on"), "{name}: {text}");
        let diagnosed = counterpoint()
            .args(["diagnose", name, "--json"])
            .current_dir(folder.path())
            .output()
            .expect("starts");
        let document: Value = serde_json::from_slice(&diagnosed.stdout).expect("JSON");
        assert_eq!(document["steps"]["counted"], steps, "{name}: {}", document["steps"]);
        let open = document["abstained"][0]["why"].as_str().expect("a reason");
        assert_eq!(open.contains("left no trace"), steps == 0, "{name}: {open}");
    }
}

#[test]
fn launchers_hand_the_environment_on_or_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for program in ["mpirun", "srun", "docker", "torchrun", "python3"] {
        let path = folder.path().join(program);
        let text = "#!/bin/sh\nprintf '%s\\n' \"$*\"\n[ -z \"$OMPI_MCA_mca_base_env_list\" ] || echo list\n";
        fs::write(&path, text).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("is allowed");
    }
    let names = [
        "PYTHONPATH",
        "COUNTERPOINT_RECORD",
        "COUNTERPOINT_RECORD_STEPS",
        "COUNTERPOINT_RECORD_WARMUP",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "KINETO_LOG_LEVEL",
    ];
    let added = |names: &[&str]| names.iter().map(|name| format!("-x {name} ")).collect::<String>();
    // Command, what it is started with, what stands in the way of recording.
    let table = [
        ("torchrun train.py", "train.py\n".to_owned(), ""),
        ("mpirun -n 2 train", "-n 2 train\nlist\n".to_owned(), ""),
        ("mpirun -x A -n 2 train", format!("{}-x A -n 2 train\n", added(&names)), ""),
        (
            "mpirun -x PYTHONPATH=p -x NCCL_DEBUG train",
            format!(
                "{}{}-x PYTHONPATH=p -x NCCL_DEBUG train\n",
                added(&names[1..4]),
                added(&names[5..])
            ),
            "-x PYTHONPATH=p hides what is imported before the job, so no step is recorded: put counterpoint record \
             behind mpirun",
        ),
        ("srun --export=ALL,A=1 train", "--export=ALL,A=1 train\n".to_owned(), ""),
        (
            "srun --export=NONE train",
            "--export=NONE train\n".to_owned(),
            "srun --export=NONE does not hand the environment on",
        ),
        (
            "docker run i train",
            "run i train\n".to_owned(),
            "docker starts the job in an environment of its own",
        ),
        (
            "python3 -W ignore::ImportWarning -m pkg -I",
            "-W ignore::ImportWarning -m pkg -I\n".to_owned(),
            "",
        ),
        (
            "python3 -u -I train.py",
            "-u -I train.py\n".to_owned(),
            "python3 -I imports nothing before the job",
        ),
        (
            "torchrun python3 -BS t.py",
            "python3 -BS t.py\n".to_owned(),
            "python3 -BS imports nothing",
        ),
    ];
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a path"));
    for (command, started, obstacle) in table {
        let output = counterpoint()
            .args(["record", "--out", "run", "--"])
            .args(command.split(' '))
            .current_dir(folder.path())
            .env("PATH", &path)
            .env_remove("PYTHONPATH")
            .output()
            .expect("starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), started, "{command}: {text}");
        assert_eq!(text.contains("no step is recorded"), !obstacle.is_empty(), "{command}: {text}");
        assert!(text.contains(obstacle), "{command}: {text}");
    }
}

#[test]
fn ranks_of_one_job_share_a_folder_and_jobs_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let slurm = |rank, step| {
        [
            ("SLURM_PROCID", rank),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_LOCALID", rank),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", step),
        ]
        .to_vec()
    };
    let mpi = |rank| {
        [
            ("OMPI_COMM_WORLD_RANK", rank),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
            ("PMIX_NAMESPACE", "99"),
            // The rank of the batch script that mpirun was typed in.
            ("SLURM_PROCID", "0"),
        ]
        .to_vec()
    };
    // Environment, folder, file of facts, whether it says where to look.
    let table = [
        (slurm("0", "0"), "counterpoint-record-7.0", "rank0", true),
        (slurm("1", "0"), "counterpoint-record-7.0", "rank1", false),
        (slurm("0", "1"), "counterpoint-record-7.1", "rank0", true),
        (mpi("0"), "counterpoint-record-99", "rank0", true),
        (mpi("1"), "counterpoint-record-99", "rank1", false),
        (
            vec![("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")],
            "counterpoint-record",
            "process",
            true,
        ),
        (
            vec![("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")],
            "counterpoint-record-2",
            "process",
            true,
        ),
    ];
    for (environment, place, file, says) in table {
        let output = counterpoint()
            .args(["record", "--", "python3", "-c", ""])
            .current_dir(folder.path())
            .envs(environment)
            .output()
            .expect("starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {text}");
        assert_eq!(text.contains("counterpoint diagnose"), says, "{place}: {text}");
        let facts = fs::read_dir(folder.path().join(place)).expect("a folder").any(|entry| {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            name.starts_with(&format!("{file}.")) && name.ends_with(".facts.json")
        });
        assert!(facts, "{place}: {file}");
    }
}

#[test]
fn one_recording_inside_another_and_a_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        let mut command = counterpoint();
        command.args(arguments).current_dir(folder.path()).output().expect("starts")
    };
    let own = env!("CARGO_BIN_EXE_counterpoint");
    let inner = [own, "record", "--out", "two", "--", "python3", "-c", "print(1)"];
    let output = run(&[&["record", "--out", "one", "--"][..], &inner].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");

    fs::write(folder.path().join("file"), "").expect("writes");
    let output = run(&["record", "--out", "file", "--", "python3", "-c", "print(1)"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("error: file: cannot be written: "), "{text}");
}
