//! What works with no GPU: compiling kernels, and errors that say what is missing. Knows no device.

use native::{Error, library::Kind, nvrtc};

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
