//! What Nsight Compute's metrics of one kernel lead to.

use diagnose::{
    diagnosis::diagnose,
    job::{Input, Job},
};

/// The causes found in the metrics of one kernel.
fn found(kernel: &str, metrics: &[(&str, &str)]) -> Vec<&'static str> {
    let mut text =
        "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n".to_owned();
    for (metric, value) in metrics {
        text += &format!("\"0\",\"{kernel}\",\"{metric}\",\"%\",\"{value}\"\n");
    }
    let input = readers::Input::from_bytes("ncu.csv", text.into_bytes()).expect("bytes are read");
    let reading = readers::read(input).expect("a reader knows the text");
    let input = Input { name: reading.input, format: reading.format, timeline: reading.timeline };
    diagnose(&Job::new(vec![input], vec![])).findings.iter().map(|finding| finding.id).collect()
}

#[test]
fn metrics_name_what_bounds_a_kernel() {
    const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
    const MULTIPLY: &str = "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active";
    const MEMORY: &str = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
    const COMPUTE: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
    const WAVES: &str = "launch__waves_per_multiprocessor";
    let unaligned = "cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_tn_align1";
    type Metrics<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Metrics, &[&str]); 9] = [
        ("ampere_sgemm_128x64_tn", &[(TENSOR, "0"), (MULTIPLY, "88.1")], &["math.tf32_off"]),
        (unaligned, &[(TENSOR, "0.0"), (MULTIPLY, "62.0")], &["math.unaligned_dims"]),
        ("nvjet_sm90_tst_64x64", &[(TENSOR, "71.4"), (MULTIPLY, "4.0")], &[]),
        ("layer_norm_kernel", &[(TENSOR, "0"), (MULTIPLY, "50.0")], &[]),
        ("layer_norm_kernel", &[(MEMORY, "91.0"), (COMPUTE, "20.0")], &["kernel.memory_bound"]),
        ("layer_norm_kernel", &[(MEMORY, "41.0"), (COMPUTE, "20.0")], &[]),
        ("gemm", &[(WAVES, "0.3"), (COMPUTE, "9.0"), (MEMORY, "3.0")], &["kernel.small_grid"]),
        ("gemm", &[(WAVES, "2.5"), (COMPUTE, "9.0"), (MEMORY, "3.0")], &[]),
        ("gemm", &[(MEMORY, "n/a"), (COMPUTE, "-"), (WAVES, "")], &[]),
    ];
    for (kernel, metrics, expected) in cases {
        assert_eq!(found(kernel, metrics), expected, "{kernel} {metrics:?}");
    }
}
