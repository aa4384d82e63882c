//! Checkpoints: what is saved comes back, broken ones give one line, a failed write loses nothing.

use std::{collections::BTreeMap, fs, path::Path};

use graph::{DType, Type};
use serde_json::json;
use train::{
    checkpoint::{Manifest, Snapshot, find, list, load, save},
    metrics::Metrics,
    weights::{self, StoredTensor, StoredTensors},
};

fn tensors(names: &[&str]) -> StoredTensors {
    let tensor = |index: usize| StoredTensor {
        ty: Type::new(DType::F32, [2, 3]),
        bytes: (0..24).map(|byte| byte * (index as u8 + 1)).collect(),
    };
    names.iter().enumerate().map(|(index, name)| ((*name).to_owned(), tensor(index))).collect()
}

fn snapshot(step: u64) -> Snapshot {
    let model =
        BTreeMap::from([("family".to_owned(), json!("gpt2")), ("width".to_owned(), json!(64))]);
    let mut state = tensors(&["wte.weight#exp_avg"]);
    state.insert(
        "applied_steps".to_owned(),
        StoredTensor { ty: Type::scalar(DType::I64), bytes: vec![7; 8] },
    );
    Snapshot {
        manifest: Manifest::new(step, step * 32, 1337, model),
        parameters: tensors(&["wte.weight", "h.0.ln_1.bias"]),
        state,
    }
}

#[test]
fn the_newest_checkpoints_are_kept_and_come_back_equal() {
    let run = tempfile::tempdir().expect("a folder");
    for step in [5, 10, 15] {
        save(run.path(), &snapshot(step), 2).expect("saves");
    }
    assert_eq!(list(run.path()).iter().map(|(step, _)| *step).collect::<Vec<_>>(), [10, 15]);
    let mut back = load(run.path()).expect("loads");
    assert_eq!(back.manifest.files.len(), 2);
    back.manifest.files.clear();
    assert_eq!(back, snapshot(15));
    assert_eq!(
        back,
        Snapshot {
            manifest: back.manifest.clone(),
            ..load(&find(run.path()).expect("found")).expect("loads")
        }
    );
}

#[test]
fn broken_checkpoints_give_one_line() {
    type Damage = fn(&Path);
    let breakages: &[(&str, Damage, &str)] = &[
        (
            "cut off",
            |folder| cut(&folder.join("model.safetensors")),
            "model.safetensors: found 100 bytes, expected 224: cut off",
        ),
        (
            "changed",
            |folder| change(&folder.join("state.safetensors")),
            "state.safetensors: its SHA-256 is not the manifest's: changed after it was written",
        ),
        (
            "no state",
            |folder| fs::remove_file(folder.join("state.safetensors")).expect("removes"),
            "state.safetensors: cannot read: No such file or directory (os error 2)",
        ),
        (
            "half a manifest",
            |folder| cut(&folder.join("manifest.json")),
            "manifest.json: not a manifest: EOF while parsing",
        ),
        (
            "another format",
            |folder| replace(&folder.join("manifest.json"), "\"format\": 1", "\"format\": 2"),
            "manifest.json: found format 2, expected 1",
        ),
        (
            "no manifest",
            |folder| fs::remove_file(folder.join("manifest.json")).expect("removes"),
            ": no checkpoint: neither manifest.json nor checkpoints/step-* in it",
        ),
    ];
    for (name, damage, expected) in breakages {
        let run = tempfile::tempdir().expect("a folder");
        let folder = save(run.path(), &snapshot(3), 1).expect("saves");
        damage(&folder);
        let found = load(&folder).expect_err("broken").to_string();
        let found =
            found.replace(&format!("{}", folder.display()), "").trim_start_matches('/').to_owned();
        assert!(found.starts_with(expected) && !found.contains('\n'), "{name}: {found}");
    }
    assert_eq!(
        load(Path::new("/nowhere")).expect_err("missing").to_string(),
        "/nowhere: no such folder"
    );
}

fn cut(path: &Path) {
    let bytes = fs::read(path).expect("reads");
    fs::write(path, &bytes[..100]).expect("writes");
}

fn change(path: &Path) {
    let mut bytes = fs::read(path).expect("reads");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(path, bytes).expect("writes");
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("reads");
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).expect("writes");
}

#[test]
fn a_checkpoint_of_another_model_names_the_first_difference() {
    let manifest = snapshot(1).manifest;
    assert_eq!(manifest.difference(&manifest.model), None);
    let mut other = manifest.model.clone();
    other.insert("width".to_owned(), json!(128));
    assert_eq!(
        manifest.difference(&other).as_deref(),
        Some("made with model.width = 64, the recipe says 128")
    );
}

#[test]
fn a_write_that_fails_leaves_the_old_checkpoint() {
    let run = tempfile::tempdir().expect("a folder");
    save(run.path(), &snapshot(5), 1).expect("saves");
    // A file where the temporary folder goes stands in for a disk that takes no more.
    let partial = run.path().join("checkpoints/.step-00000006.partial");
    fs::write(&partial, "").expect("writes");
    let error = save(run.path(), &snapshot(6), 1).expect_err("cannot write").to_string();
    assert!(error.contains("step-00000006: cannot write the checkpoint: "), "{error}");
    assert_eq!(load(run.path()).expect("the old one").manifest.step, 5);
}

#[test]
fn broken_safetensors_give_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.safetensors");
    weights::write(&path, &tensors(&["a", "b"]), &BTreeMap::new()).expect("writes");
    assert_eq!(weights::read(&path).expect("reads"), tensors(&["a", "b"]));
    let bytes = fs::read(&path).expect("reads");
    for (bytes, expected) in [
        (&bytes[..4], "found 4 bytes, expected a safetensors file: cut off"),
        (&bytes[..20], "found 20 bytes, its header alone has"),
        (
            &bytes[..bytes.len() - 1],
            "found 191 bytes, its header promises another number: cut off or overwritten",
        ),
        (b"hello world, this is no file", "not a safetensors file: "),
    ] {
        let found = weights::parse(bytes).expect_err("broken");
        assert!(found.starts_with(expected) && !found.contains('\n'), "{found}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn metrics_go_on_where_the_checkpoint_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("metrics.jsonl");
    let mut metrics = Metrics::open(&path, None).expect("opens");
    for step in 1..=4 {
        metrics.write(&json!({ "step": step, "loss": 0.5 })).expect("writes");
    }
    let mut metrics = Metrics::open(&path, Some(2)).expect("opens");
    metrics.write(&json!({ "step": 3, "loss": 0.25 })).expect("writes");
    let text = fs::read_to_string(&path).expect("reads");
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [r#"{"step":1,"loss":0.5}"#, r#"{"step":2,"loss":0.5}"#, r#"{"step":3,"loss":0.25}"#,]
    );
}
