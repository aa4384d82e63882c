//! `counterpoint diagnose`, `explain` and `compare` through the program: recordings in, text and JSON out.

mod kineto;
#[path = "../../report/tests/schema/mod.rs"]
mod schema;

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use kineto::{Job, traces};
use serde_json::Value;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
        fs::write(path, text).expect("writes");
    }

    /// Writes the ranks' recordings into a folder.
    fn record(&self, folder: &str, job: &Job) {
        for (rank, text) in traces(job).into_iter().enumerate() {
            self.file(&format!("{folder}/r{rank}.json"), &text);
        }
    }

    fn run(&self, arguments: &[&str], input: Option<&str>) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A program that has ended reads no more.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
        drop(stdin);
        child.wait_with_output().expect("ends")
    }

    /// Standard output and standard error of a command that ends with `status`.
    fn ends(&self, arguments: &[&str], status: i32) -> (String, String) {
        let output = self.run(arguments, None);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {out}{err}");
        (out, err)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let document: Value = serde_json::from_str(&self.ends(arguments, 0).0).expect("JSON");
        let text = match document["schema"].as_str() {
            Some("counterpoint.diagnosis/1") => report::diagnosis::json::SCHEMA,
            Some("counterpoint.comparison/1") => report::comparison::SCHEMA,
            Some("counterpoint.scaling/1") => report::comparison::SCALING_SCHEMA,
            other => panic!("no schema for {other:?}"),
        };
        let schema: Value = serde_json::from_str(text).expect("a schema");
        assert_eq!(schema::problems(&schema, &document), Vec::<String>::new());
        document
    }
}

fn starved() -> Job {
    Job { loader: vec![100, 30_000], ..Job::default() }
}

#[test]
fn a_starved_loader_is_the_first_sentence_and_the_account_adds_up() {
    let place = Place::new();
    place.record("run", &starved());
    place.file("run/notes.bin", "\u{0}\u{1}\u{2}");
    place.file("run/empty.log", "");
    let (text, _) = place.ends(&["diagnose", "run"], 0);
    let first = text.lines().next().expect("a sentence");
    assert!(first.contains("waiting for the data loader"), "{text}");
    for line in ["Left out: empty.log (not recognised: empty)", "Left out: notes.bin (not "] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(sums_on_screen(&text), 2, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");

    let document = place.json(&["diagnose", "run", "--json"]);
    assert_eq!(document["verdict"]["finding"], "data.loader_starved");
    assert_eq!(document["findings"][0]["ranks"], serde_json::json!([1]));
    for device in document["devices"].as_array().expect("devices") {
        let leaves = device["account"].as_object().expect("an account").values();
        let sum: i64 = leaves.map(|time| time.as_i64().expect("whole nanoseconds")).sum();
        assert_eq!(sum, device["window_ns"].as_i64().expect("a window"));
    }

    // The same from single files in another order, and from standard input as far as one rank goes.
    let other = place.json(&["diagnose", "run/r1.json", "run/r0.json", "--json"]);
    assert_eq!(other["devices"], document["devices"]);
    let own = fs::read_to_string(place.path("run/r1.json")).expect("reads");
    let output = place.run(&["diagnose", "-", "--json"], Some(&own));
    let alone: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(alone["inputs"][0]["file"], "-");
    assert_eq!(alone["verdict"]["finding"], "data.loader_starved");
}

/// Checks that the rows of each rank add up as they are printed, and yields how many ranks there are.
fn sums_on_screen(text: &str) -> usize {
    let (mut ranks, mut sum) = (0, (0.0, 0.0));
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(ms) = words.iter().position(|word| *word == "ms") else { continue };
        let figure = |at: usize| words.get(at)?.parse::<f64>().ok();
        let (Some(time), Some(share)) = (figure(ms - 1), figure(ms + 1)) else { continue };
        if words[0] == "=" {
            assert!((sum.0 - time).abs() < 1e-6 && (sum.1 - share).abs() < 1e-6, "{line}: {sum:?}");
            (ranks, sum) = (ranks + 1, (0.0, 0.0));
        } else {
            sum = (sum.0 + time, sum.1 + share);
        }
    }
    ranks
}

#[test]
fn conditions_decide_the_exit_status() {
    let place = Place::new();
    place.record("healthy", &Job::default());
    place.record("starved", &starved());
    for (arguments, status) in [
        (&["healthy", "--fail-on", "data.loader_starved"][..], 0),
        (&["healthy", "--fail-on", "host>5%", "--fail-on", "comm>50 %"], 0),
        (&["starved", "--fail-on", "data.loader_starved"], 1),
        (&["starved", "--fail-on", "host.data>20%"], 1),
        (&["starved", "--fail-on", "computing>1%"], 1),
        (&["starved", "--fail-on", "host.data<20%"], 2),
        // One rank alone: waiting cannot be told apart from transfer.
        (&["starved/r0.json", "--fail-on", "comm.wait>5%"], 2),
        (&["starved/r0.json", "--fail-on", "compute>1%"], 1),
        (&["starved", "--fail-on", "data.loader_starvd"], 2),
        (&["starved", "--fail-on", "host.dota>5%"], 2),
        (&["starved", "--fail-on", "host.data>five"], 2),
        (&["nowhere", "--fail-on", "data.loader_starved"], 2),
    ] {
        let (_, err) = place.ends(&[&["diagnose"], arguments].concat(), status);
        assert_eq!(err.is_empty(), status == 0, "{arguments:?}: {err}");
    }
    let (_, err) = place.ends(&["diagnose", "starved", "--fail-on", "data.loader_starvd"], 2);
    assert_eq!(
        err,
        "error: --fail-on data.loader_starvd: no such id; nearest: data.loader_starved; expected one that `counterpoint explain` lists, or 'LEAF>PERCENT%'\n"
    );
    let (_, err) = place.ends(&["diagnose", "starved", "--fail-on", "host.dota>5%"], 2);
    assert_eq!(
        err,
        "error: --fail-on host.dota>5%: no leaf \"host.dota\" in the account; nearest: host.data\n"
    );
}

#[test]
fn only_nothing_readable_is_an_error() {
    let place = Place::new();
    place.file("junk/empty", "");
    place.file("junk/bytes", "\u{0}\u{1}\u{2}\u{3}");
    place.file("junk/cut.json", "{\"traceEvents\": [{\"ph\": \"X\", \"na");
    let (out, err) = place.ends(&["diagnose", "junk", "nowhere.json"], 2);
    assert_eq!(out, "");
    assert!(err.starts_with("error: nothing readable\n"), "{err}");
    for name in ["junk/empty", "junk/bytes", "junk/cut.json", "nowhere.json"] {
        assert!(err.contains(&format!("error: {name}: ")), "{err}");
    }
    // A damaged rank does not spoil the other.
    place.record("run", &Job::default());
    let whole = fs::read_to_string(place.path("run/r1.json")).expect("reads");
    place.file("run/r1.json", &whole[..whole.len() / 2]);
    let document = place.json(&["diagnose", "run", "--json"]);
    assert_eq!(document["devices"].as_array().map(Vec::len), Some(2));
    assert!(document["skipped"].to_string().contains("cut off"), "{}", document["skipped"]);
    let told = || {
        let (text, _) = place.ends(&["diagnose", "run"], 0);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(told().contains("Used in part: r1.json (cut off after "), "{}", told());
    for (bytes, reason) in [
        ("", "Left out: r1.json (not recognised: empty)"),
        ("\u{0}\u{1}", "Left out: r1.json (not recognised: no known format)"),
        (&whole[..whole.len() / 50], "with no operation of a device before that)"),
    ] {
        place.file("run/r1.json", bytes);
        let text = told();
        assert!(text.contains("Missing: rank 1 of 2") && text.contains(reason), "{text}");
    }
}

#[test]
fn what_cannot_be_written_or_read_is_one_line() {
    let place = Place::new();
    place.record("run", &starved());
    fs::create_dir(place.path("empty")).expect("creates");
    for index in 0..300 {
        place.file(&format!("junk/f{index}.txt"), "nothing");
    }
    place.file("new\nline\u{1b}[31m.txt", "nothing");
    for (arguments, line) in [
        (
            &["run", "--html", "none/page.html"][..],
            "--html none/page.html: its folder does not exist",
        ),
        (&["run", "--html", "run"], "--html run: a folder, expected the name of a file"),
        (
            &["run", "--perfetto", "-"],
            "--perfetto -: expected the name of a file; text and --json go to standard output",
        ),
        (
            &["run", "--html", "x", "--perfetto", "x"],
            "--perfetto x: an input or another output already, and would be written over",
        ),
        (
            &["run/r0.json", "--perfetto", "run/../run/r0.json"],
            "--perfetto run/../run/r0.json: an input or another output already, and would be written over",
        ),
        (&["empty"], "empty: no file inside"),
        (&["junk"], "junk/f0.txt and 299 more: not recognised: text of no known format"),
        (
            &["new\nline\u{1b}[31m.txt"],
            "new line [31m.txt: not recognised: text of no known format",
        ),
    ] {
        let (out, err) = place.ends(&[&["diagnose"], arguments].concat(), 2);
        assert_eq!((out.as_str(), err), ("", format!("error: {line}\n")));
    }
    // Reports of ours beside the recordings are no recordings.
    let outputs = ["--html", "run/page.html", "--perfetto", "run/joined.json", "--json"];
    let (document, _) = place.ends(&[&["diagnose", "run"], &outputs[..]].concat(), 0);
    place.file("run/saved.json", &document);
    let (text, _) = place.ends(&["diagnose", "run"], 0);
    let told = "Read: 2 kineto\nLeft out: joined.json and 2 more (not recognised: a report of counterpoint";
    assert!(text.contains(told), "{text}");
}

#[test]
fn ranks_of_many_kinds_stay_on_one_screen() {
    let place = Place::new();
    let loader: Vec<i64> = (0..12).map(|rank| 14_000 + 1_500 * rank).collect();
    place.record("run", &Job { ranks: 12, loader, ..Job::default() });
    let (text, _) = place.ends(&["diagnose", "run", "--html", "page.html"], 0);
    assert!(text.lines().count() <= 50, "{text}");
    assert_eq!(sums_on_screen(&text), 3, "{text}");
    assert!(text.contains("  and 2 ranks of other kinds (--html, --json)"), "{text}");
    // The one at fault is among them.
    assert!(text.contains("  rank 11\n"), "{text}");
}

#[test]
fn lines_keep_to_the_columns() {
    let place = Place::new();
    place.record("run", &starved());
    place.file(
        "run/long.log",
        &format!(
            "gpu-a7:700:712 [0] init.cc:1 NCCL WARN {}\n",
            "Connection \u{1b}[31mrefused ".repeat(40)
        ),
    );
    for columns in ["40", "80", "100", "200"] {
        let (text, _) = place.ends(&["diagnose", "run", "--width", columns], 0);
        let most = columns.parse().expect("a number");
        for line in text.lines() {
            assert!(line.chars().count() <= most, "{columns}: {line}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn explanations_are_listed_and_the_nearest_id_is_named() {
    let place = Place::new();
    let (list, _) = place.ends(&["explain"], 0);
    for id in ["data.loader_starved", "comm.slow_transport", "misconceptions"] {
        assert!(list.contains(id), "{list}");
    }
    let (text, _) = place.ends(&["explain", "data.loader_starved"], 0);
    for part in ["What happens: The ", "Why it costs: ", "What helps: Raise ", "Wrong if: The "] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.trim_end().ends_with('.'), "{text}");
    let (text, _) = place.ends(&["explain", "comm.wait"], 0);
    assert!(text.contains("What it is: Collectives wait for another rank."), "{text}");
    let (text, _) = place.ends(&["explain", "misconceptions"], 0);
    assert_eq!(text.lines().filter(|line| line.starts_with('"')).count(), 4);
    let (_, err) = place.ends(&["explain", "data.loader_starvation"], 2);
    assert!(err.contains("no such id; nearest: data.loader_starved"), "{err}");
}

#[test]
fn a_change_is_credited_only_alone() {
    let place = Place::new();
    place.record("before", &starved());
    place.record("after", &Job::default());
    let compared =
        place.json(&["compare", "before", "after", "--changed", "num_workers 2 -> 8", "--json"]);
    assert_eq!(compared["credited"], "code");
    let throughput = compared["indicators"]["throughput"]["after"].as_f64().expect("a number");
    assert!(throughput > 1.5, "{compared:#}");
    assert_eq!(compared["leaves"][0]["significant"], true);
    let line = fs::read_to_string(place.path("after/experiments.jsonl")).expect("a line");
    let experiment: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(experiment["predicted"]["finding"], "data.loader_starved");
    let predicted = experiment["predicted"]["saves_ms"].as_f64().expect("a number");
    let measured = experiment["measured"]["saves_ms"].as_f64().expect("a number");
    assert!((predicted / measured - 1.0).abs() < 0.15, "{line}");

    // From saved documents, with two changes.
    for side in ["before", "after"] {
        let (text, _) = place.ends(&["diagnose", side, "--json"], 0);
        place.file(&format!("{side}.json"), &text);
    }
    let saved = place.json(&[
        "compare",
        "before.json",
        "after.json",
        "--changed",
        "a",
        "--changed",
        "b",
        "--json",
    ]);
    assert_eq!(saved["credited"], Value::Null);
    assert_eq!(saved["leaves"], compared["leaves"]);
    let (text, _) = place
        .ends(&["compare", "before.json", "after.json", "--changed", "a", "--changed", "b"], 0);
    assert!(text.contains("2 things changed (a; b): no one of them is credited."), "{text}");

    let (text, _) = place.ends(&["compare", "--scaling", "after", "before.json"], 0);
    assert!(text.contains("100 %"), "{text}");
    let scaling = place.json(&["compare", "--scaling", "after", "before.json", "--json"]);
    assert!(scaling["runs"][1]["efficiency"].as_f64().expect("a share") < 0.5, "{scaling}");
    let (_, err) = place.ends(&["compare", "before", "after", "before.json"], 2);
    assert_eq!(
        err,
        "error: compare: found 3 runs, expected BEFORE and AFTER; --scaling takes more\n"
    );
}

#[test]
fn pages_and_traces_are_whole_and_private_names_can_be_replaced() {
    let place = Place::new();
    place.record("zlab/zbigniew", &starved());
    place.file(
        "zlab/zbigniew/gpu-a7.log",
        "gpu-a7:700:712 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\n\
         gpu-a7:700:712 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>\n\
         gpu-a7:700:712 [0] NCCL INFO NCCL_CONF_FILE set by environment to /home/zbigniew/nccl.conf\n\
         gpu-a7:700:712 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n",
    );
    let arguments = [
        "diagnose",
        "zlab/zbigniew",
        "--html",
        "page.html",
        "--perfetto",
        "joined.json",
        "--redact",
    ];
    let (text, _) = place.ends(&arguments, 0);
    let (json, _) = place.ends(&["diagnose", "zlab/zbigniew", "--redact", "--json"], 0);
    let page = fs::read_to_string(place.path("page.html")).expect("a page");
    let joined = fs::read_to_string(place.path("joined.json")).expect("a trace");
    for output in [&text, &json, &page, &joined] {
        for private in ["gpu-a7", "10.1.2.3", "zbigniew", "zlab"] {
            assert!(!output.contains(private), "{private} in {output}");
        }
    }

    // The page needs nothing from elsewhere and holds the document.
    for reference in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
    let data = page.split("<script id=\"data\" type=\"application/json\">").nth(1).expect("data");
    let data = data.split("</script>").next().expect("an end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let sentence = data["document"]["verdict"]["sentence"].as_str().expect("a sentence");
    assert!(text.starts_with(sentence), "{sentence}\n{text}");

    let trace: Value = serde_json::from_str(&joined).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let names: Vec<&str> =
        events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert!(names.contains(&"findings"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("data.loader_starved: ")), "{names:?}");
}

#[test]
fn ranks_on_the_host_have_an_account_of_their_own() {
    let place = Place::new();
    for (folder, loader) in [("starved", [100, 30_000]), ("healthy", [100, 100])] {
        for (rank, text) in kineto::host_traces(&loader, 7).into_iter().enumerate() {
            place.file(&format!("{folder}/r{rank}.json"), &text);
        }
    }
    let (text, _) = place.ends(&["diagnose", "starved"], 0);
    assert!(text.starts_with("29.9 ms of every step go to waiting for the data loader"), "{text}");
    assert!(text.contains("2 host processes, 5 of 7 steps each (engine)"), "{text}");
    let document = place.json(&["diagnose", "starved", "--json"]);
    assert_eq!(document["findings"][0]["ranks"], serde_json::json!([1]));
    assert_eq!(document["devices"][1]["account"]["host.data"], 5 * 30_000_000);
    assert_eq!(document["abstained"][0]["question"], "account");
    place.ends(&["diagnose", "starved", "--html", "page.html", "--perfetto", "joined.json"], 0);

    let healthy = place.json(&["diagnose", "healthy", "--json"]);
    assert_eq!(healthy["findings"], serde_json::json!([]));
    let sentence = healthy["verdict"]["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("The input holds no operations of a device; on the host"),
        "{sentence}"
    );
}
