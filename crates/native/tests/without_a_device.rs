//! What works with no GPU: compiling kernels, cuDNN's graphs and heuristics, and errors that say what is missing.
//! Knows no device.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use native::{
    DataType, Error,
    cudnn::{
        AttentionShape, Convolution, DeviceProperties, Graph, Heuristic, Place, TensorDescription,
        Window,
    },
    library::Kind,
    nvrtc,
};

const KERNEL: &str = r#"
extern "C" __global__ void add(float* y, const float* x, float a, long long n) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
"#;

/// Whether a test that needs `kind` can run. With `COUNTERPOINT_STRICT` a missing NVRTC is a failure.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn available(kind: Kind) -> bool {
    match native::library::Library::open(kind) {
        Ok(_) => true,
        Err(error) => {
            let strict = std::env::var_os("COUNTERPOINT_STRICT").is_some_and(|v| v != "0");
            assert!(!(strict && kind == Kind::Nvrtc), "{error}");
            println!("skipped: {error}");
            false
        }
    }
}

#[test]
fn a_kernel_compiles_for_hopper() {
    if !available(Kind::Nvrtc) {
        return;
    }
    let compiled = nvrtc::compile("add.cu", KERNEL, "sm_90", &[]).unwrap();
    assert!(compiled.cubin.starts_with(b"\x7fELF"));
    assert_eq!(compiled.log, "");
    assert!(nvrtc::architectures().unwrap().contains(&90));
}

#[test]
fn a_wrong_kernel_says_where() {
    if !available(Kind::Nvrtc) {
        return;
    }
    let error =
        nvrtc::compile("bad.cu", "__global__ void k(int* p) { p[0] = unknown; }", "sm_90", &[])
            .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Compile { .. }));
    assert!(text.contains("bad.cu(1)") && text.contains("unknown"), "{text}");
}

#[test]
fn a_missing_library_is_an_error_that_names_the_search() {
    // The driver is the one library that wheels never hold.
    let Err(error) = native::driver::devices() else { return };
    let text = error.to_string();
    if error.is_missing_library() {
        assert!(text.contains("libcuda.so.1"), "{text}");
        assert!(text.contains("COUNTERPOINT_LIBRARY_PATH"), "{text}");
    }
}

#[test]
fn cudnn_proposes_engines_for_convolutions_with_no_device() {
    if !available(Kind::Cudnn) {
        return;
    }
    let properties = DeviceProperties::h200().unwrap();
    let place = Place::Properties(&properties);
    let mut g = Graph::new();
    let image = TensorDescription::channels_last(DataType::F16, [256, 64, 56, 56]);
    let filter = TensorDescription::channels_last(DataType::F16, [64, 64, 3, 3]);
    let channel = TensorDescription::per_channel(DataType::F32, 64);
    let (x, w) = (g.tensor(&image).unwrap(), g.tensor(&filter).unwrap());
    let y = g.tensor(&image).unwrap();
    let (sum, squares) = (g.tensor(&channel).unwrap(), g.tensor(&channel).unwrap());
    g.convolution(x, w, y, &Convolution::square(1, 1)).unwrap();
    g.statistics(y, sum, squares).unwrap();
    let graph = g.finish(place).unwrap();
    let configs = graph.propose(place, Heuristic::A).unwrap();
    let facts = configs[0].facts().unwrap();
    assert!(!facts.compiles_at_run_time, "{facts:?}");
    let plan = graph.plan(place, &configs[0]).unwrap();
    assert!(plan.json().unwrap().len() > 100);

    // The same engine with the same knobs, made by hand.
    let again = graph.configure(place, facts.engine, &facts.knobs).unwrap();
    let again_facts = again.facts().unwrap();
    assert_eq!((again_facts.engine, again_facts.knobs), (facts.engine, facts.knobs));
    assert_eq!(graph.plan(place, &again).unwrap().workspace(), plan.workspace());
}

#[test]
fn cudnn_proposes_engines_for_attention_on_packed_windows() {
    // Engines that are compiled at run time refuse where there is no driver.
    if !available(Kind::Cudnn) || !available(Kind::Driver) {
        return;
    }
    let properties = DeviceProperties::h200().unwrap();
    let place = Place::Properties(&properties);
    let shape = AttentionShape {
        data_type: DataType::Bf16,
        batch: 32,
        heads: 12,
        length: 1024,
        head: 64,
        causal: true,
        scale: 0.125,
    };
    let (qkv, o) = (Window::columns(&shape, 3 * 12 * 64), Window::dense(&shape));
    let (forward, _) = shape.forward(&qkv, &o).unwrap();
    let (backward, _) = shape.backward(&qkv, &o).unwrap();
    for graph in [forward, backward] {
        let graph = graph.finish(place).unwrap();
        assert!(!graph.propose(place, Heuristic::A).unwrap().is_empty());
    }
}

#[test]
fn a_tensor_of_another_graph_is_refused() {
    if !available(Kind::Cudnn) {
        return;
    }
    let mut g = Graph::new();
    let image = TensorDescription::channels_last(DataType::F16, [1, 8, 4, 4]);
    let (a, b) = (g.tensor(&image).unwrap(), g.tensor(&image).unwrap());
    let error = Graph::new().reshape(a, b).unwrap_err();
    assert!(error.to_string().contains("of another graph"), "{error}");
}

/// Runs in a process of its own, with the environment that the test below sets.
#[test]
#[ignore = "a part of the_newest_cudnn_wins_unless_a_folder_is_named"]
fn located_in_this_environment() {
    println!("located {:?}", native::library::locate(Kind::Cudnn));
}

fn located(home: &Path, system: &Path, explicit: Option<&Path>) -> String {
    let mut child = Command::new(env::current_exe().expect("the test knows its file"));
    child
        .args(["--ignored", "--exact", "--nocapture", "located_in_this_environment"])
        .env("HOME", home)
        .env("LD_LIBRARY_PATH", system)
        .env_remove("COUNTERPOINT_LIBRARY_PATH");
    if let Some(folder) = explicit {
        child.env("COUNTERPOINT_LIBRARY_PATH", folder);
    }
    let output = child.output().expect("the test can start itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.split("located ").last().unwrap_or_default();
    line.lines().next().unwrap_or_default().to_owned()
}

/// A system's library has its version in the real file's name, a wheel's in the metadata beside it. Neither is
/// opened to find out.
#[test]
fn the_newest_cudnn_wins_unless_a_folder_is_named() {
    let root = tempfile::tempdir().unwrap();
    let system = root.path().join("usr/lib");
    fs::create_dir_all(&system).unwrap();
    fs::write(system.join("libcudnn.so.9.998.0"), "").unwrap();
    symlink("libcudnn.so.9.998.0", system.join("libcudnn.so.9")).unwrap();
    let site = root.path().join(".local/lib/python3.12/site-packages");
    let wheel = site.join("nvidia/cudnn/lib");
    fs::create_dir_all(&wheel).unwrap();
    fs::create_dir_all(site.join("nvidia_cudnn_cu13-9.999.0.56.dist-info")).unwrap();
    fs::write(wheel.join("libcudnn.so.9"), "").unwrap();
    let file = |folder: &PathBuf| format!("{:?}", Some(folder.join("libcudnn.so.9")));
    assert_eq!(located(root.path(), &system, None), file(&wheel));
    assert_eq!(located(root.path(), &system, Some(&system)), file(&system));
}
