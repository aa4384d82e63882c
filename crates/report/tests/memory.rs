//! Peak memory of a whole diagnosis: for each span that reading kept, at most this many bytes of heap at any time from
//! the end of reading on, the recording itself included.

use std::fmt::Write;

use diagnose::{
    diagnosis,
    job::{Input, Job},
};
use peak_alloc::PeakAlloc;
use report::diagnosis::json;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes of heap for each kept span. A process may take 150: its code, stacks and what reading left behind come on top.
const MOST: usize = 100;

/// A recording in which, as in real ones, half of the spans are operators of the framework, a third calls and a sixth
/// kernels; nothing joins with its neighbour.
fn recording(steps: usize, kernels: usize) -> String {
    let mut events = String::new();
    let mut span = |category: &str, name: &str, start: usize, length: usize, rest: &str| {
        let comma = if events.is_empty() { "" } else { ",\n" };
        let _ = write!(
            events,
            "{comma}{{\"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": 7, \"tid\": 1, \
             \"ts\": {start}, \"dur\": {length}{rest}}}"
        );
    };
    let step_length = 100 * kernels;
    for step in 0..steps {
        let begins = step * step_length;
        span("user_annotation", &format!("ProfilerStep#{step}"), begins, step_length - 10, "");
        for kernel in 0..kernels {
            let at = begins + 100 * kernel;
            let correlation = step * kernels + kernel + 1;
            let link = format!(", \"args\": {{\"correlation\": {correlation}}}");
            let device = format!(
                ", \"args\": {{\"device\": 0, \"stream\": 7, \"correlation\": {correlation}}}"
            );
            span("cpu_op", "aten::empty", at, 10, "");
            span("cpu_op", "aten::linear", at + 15, 60, "");
            span("cpu_op", "aten::mm", at + 20, 50, "");
            span("cuda_runtime", "cudaStreamIsCapturing", at + 25, 2, "");
            span("cuda_runtime", "cudaLaunchKernel", at + 30, 10, &link);
            span("kernel", "sm80_gemm", at + 50, 90, &device);
        }
    }
    format!("{{\"schemaVersion\": 1, \"traceEvents\": [\n{events}\n]}}\n")
}

#[test]
fn a_kept_span_costs_few_bytes() {
    let bytes = recording(20, 800).into_bytes();
    let input = readers::Input::from_bytes("trace.json", bytes).expect("bytes have a beginning");
    let reading = readers::read(input).expect("a trace");
    let kept = reading.timeline.spans.len();
    assert_eq!(kept, 20 * (6 * 800 + 1));
    HEAP.reset_peak_usage();
    let (name, format, timeline) = (reading.input, reading.format, reading.timeline);
    let job = Job::new(vec![Input { name, format, timeline }], vec![]);
    assert!(job.replay_is_usable(), "the replay is part of the figure");
    let found = diagnosis::diagnose(&job);
    json::document(&job, &found);
    let each = HEAP.peak_usage() / kept;
    assert!(each <= MOST, "{each} bytes for each of {kept} spans");
}
