//! What kernels and host calls are, by their names. Knows names of CUDA and ROCm libraries; nothing of time.

use crate::leaf::Leaf;

/// The computing leaf of a kernel. Checked in order of precedence: a fused attention kernel built on a matrix
/// template counts as attention.
pub fn kernel(name: &str) -> Leaf {
    let lower = name.to_lowercase();
    // Template arguments of PyTorch's own elementwise kernels name functors of every sort: look at the outer name.
    let outer = match lower.strip_prefix("void ").unwrap_or(&lower) {
        own if own.starts_with("at::native::") => own,
        other => other.split(['(', '<']).next().unwrap_or(other),
    };
    let has = |texts: &[&str]| texts.iter().any(|text| outer.contains(text));
    if has(&["flash", "fmha", "attention", "sdpa", "attn"]) {
        Leaf::Attention
    } else if (outer.contains("conv") && !outer.contains("convert"))
        || has(&["dgrad", "wgrad", "fprop", "implicit_gemm", "winograd", "miopen"])
    {
        Leaf::Convolution
    } else if has(&["gemm", "cutlass", "nvjet", "cublas", "splitk", "cijk_", "gemv", "wmma"]) {
        Leaf::Matmul
    } else if has(&["norm", "bn_fw", "bn_bw", "bnfw", "bnbw", "batch_norm"]) {
        Leaf::Norm
    } else if has(&["multi_tensor", "adam", "fusedsgd", "lamb"]) {
        Leaf::Optimizer
    } else if has(&[
        "elementwise",
        "reduce",
        "softmax",
        "copy",
        "cast",
        "fill",
        "triton_poi",
        "triton_red",
        "triton_per",
        "index",
        "gather",
        "scatter",
        "catarray",
        "dropout",
        "transpose",
        "embedding",
    ]) {
        Leaf::Elementwise
    } else {
        Leaf::OtherCompute
    }
}

/// What a call of the runtime or driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// Starts a kernel or fill.
    Launch,
    /// Starts a whole graph.
    GraphLaunch,
    /// Waits for the device.
    Synchronise,
    /// Allocates memory of the device or pinned memory of the host, or maps it.
    Allocate,
    /// Frees memory of the device, after waiting for it.
    Free,
    /// Copies.
    Copy,
    /// Makes a stream wait for an event.
    StreamWait,
    /// Loads or compiles modules.
    Load,
    /// Anything else.
    Other,
}

/// What a call of the CUDA or HIP runtime or driver does.
pub fn call(name: &str) -> Call {
    let bare = name.trim_start_matches("cuda").trim_start_matches("hip").trim_start_matches("cu");
    let starts = |texts: &[&str]| texts.iter().any(|text| bare.starts_with(text));
    if starts(&["GraphLaunch"]) {
        Call::GraphLaunch
    } else if starts(&["StreamWaitEvent", "StreamWaitValue"]) {
        Call::StreamWait
    } else if starts(&[
        "StreamSynchronize",
        "EventSynchronize",
        "DeviceSynchronize",
        "CtxSynchronize",
        "ThreadSynchronize",
    ]) {
        Call::Synchronise
    } else if ["Free", "FreeHost", "MemFree", "MemFree_v2"].contains(&bare) {
        Call::Free
    } else if starts(&[
        "Malloc",
        "Free",
        "HostAlloc",
        "HostFree",
        "HostMalloc",
        "MemAlloc",
        "MemFree",
    ]) || starts(&[
        "MemCreate",
        "MemMap",
        "MemUnmap",
        "MemSetAccess",
        "MemRelease",
        "MemAddress",
    ]) {
        Call::Allocate
    } else if starts(&["Memcpy"]) {
        Call::Copy
    } else if starts(&[
        "LaunchKernel",
        "ExtModuleLaunchKernel",
        "ExtLaunchKernel",
        "ModuleLaunchKernel",
    ]) || starts(&["LaunchCooperative", "Memset", "LaunchHostFunc"])
    {
        Call::Launch
    } else if starts(&[
        "ModuleLoad",
        "LibraryLoad",
        "ModuleGetFunction",
        "LibraryGet",
        "LinkCreate",
    ]) {
        Call::Load
    } else {
        Call::Other
    }
}

/// Whether a mark or operator is the data loader's.
pub fn is_loader(name: &str) -> bool {
    name.contains("DataLoader") || name.contains("dataloader") || name == "counterpoint.data"
}

/// Whether a mark is an exchange between ranks that the host carries out.
pub fn is_host_exchange(name: &str) -> bool {
    ["gloo:", "mpi:", "ucc:"].iter().any(|backend| name.starts_with(backend))
}

/// Whether a mark is the writing of a checkpoint in the training thread.
pub fn is_save(name: &str) -> bool {
    name == "counterpoint.save"
}

/// Whether a mark is a garbage collection.
pub fn is_collection(name: &str) -> bool {
    name.contains("gc.collect") || name == "counterpoint.gc" || name == "Python GC"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_their_class() {
        let cases = [
            ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT", Leaf::Matmul),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", Leaf::Attention),
            ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", Leaf::Convolution),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>",
                Leaf::Elementwise,
            ),
            (
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>",
                Leaf::Norm,
            ),
            (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
                Leaf::Optimizer,
            ),
            ("Cijk_Alik_Bljk_BBS_BH_MT128x128", Leaf::Matmul),
            ("triton_poi_fused_add_0", Leaf::Elementwise),
            ("my_kernel(float*)", Leaf::OtherCompute),
        ];
        for (name, leaf) in cases {
            assert_eq!(kernel(name), leaf, "{name}");
        }
    }

    #[test]
    fn calls_have_their_class() {
        let cases = [
            ("cudaLaunchKernel", Call::Launch),
            ("cuLaunchKernelEx", Call::Launch),
            ("hipExtModuleLaunchKernel", Call::Launch),
            ("cudaGraphLaunch", Call::GraphLaunch),
            ("cudaStreamWaitEvent", Call::StreamWait),
            ("cudaDeviceSynchronize", Call::Synchronise),
            ("cudaFree", Call::Free),
            ("hipFree", Call::Free),
            ("cudaFreeAsync", Call::Allocate),
            ("cuMemMap", Call::Allocate),
            ("cudaMemcpyAsync", Call::Copy),
            ("cudaMemsetAsync", Call::Launch),
            ("cuModuleLoadData", Call::Load),
            ("cudaStreamIsCapturing", Call::Other),
            ("", Call::Other),
        ];
        for (name, class) in cases {
            assert_eq!(call(name), class, "{name}");
        }
    }
}
