//! What kernels and host calls are, by their names. Knows names of CUDA and ROCm libraries; nothing of time.

use crate::leaf::Leaf;

/// The computing leaf of a kernel. Checked in order of precedence: a fused attention kernel built on a matrix
/// template counts as attention.
pub fn kernel(name: &str) -> Leaf {
    let lower = name.to_lowercase().replace("(anonymous namespace)::", "");
    let own = lower.strip_prefix("void ").unwrap_or(&lower);
    // These launch everything through a few templates: what a kernel does is in the arguments.
    let outer =
        match ["at::native::", "cutlass", "ck_tile::"].iter().any(|start| own.starts_with(start)) {
            true => own,
            false => own.split(['(', '<']).next().unwrap_or(own),
        };
    let has = |texts: &[&str]| texts.iter().any(|text| outer.contains(text));
    // Inductor names its kernels after the operators around them: a convolution's epilogue is no convolution.
    let fused = ["triton_poi_", "triton_red_", "triton_per_"];
    if fused.iter().any(|start| outer.starts_with(start)) {
        return if outer.contains("norm") { Leaf::Norm } else { Leaf::Elementwise };
    }
    // The sums and conversions around cuDNN's attention are part of it.
    if has(&["flash", "fmha", "attention", "sdpa", "attn", "compute_dot_do_o", "convert_dq"]) {
        Leaf::Attention
    } else if (outer.contains("conv") && !outer.contains("convert"))
        || has(&["dgrad", "wgrad", "fprop", "implicit_gemm", "winograd", "miopen", "scudnn"])
        || (has(&["init_device_workspace", "cask_", "fft2d_"]) && !outer.contains("cublas"))
    {
        Leaf::Convolution
    } else if own.contains("gemvx::kernel")
        || has(&[
            "gemm",
            "matmul",
            "epilogue::impl",
            "cutlass",
            "nvjet",
            "cublas",
            "splitk",
            "cijk_",
            "gemv",
            "wmma",
            "triton_tem_",
        ])
    {
        Leaf::Matmul
    } else if (outer.contains("norm") && !has(&["normtwoops", "normoneops", "normops"]))
        || has(&["bn_fw", "bn_bw", "bnfw", "bnbw", "gammabetabackward", "rowwisemoments"])
    {
        // The ops are those of a vector's norm, as clipping takes it of gradients.
        Leaf::Norm
    } else if has(&["multi_tensor", "adam", "fusedsgd", "lamb_"]) {
        Leaf::Optimizer
    } else if has(&[
        "elementwise",
        "reduce",
        "softmax",
        "copy",
        "cast",
        "fill",
        "index",
        "gather",
        "scatter",
        "catarray",
        "dropout",
        "transpose",
        "tonhwc",
        "tonchw",
        "addpadding",
        "pool",
        "embedding",
        "compute_grad_weight",
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

/// Whether a copy goes from the host to a device, by CUDA's or ROCm's name.
pub fn is_upload(name: &str) -> bool {
    name.contains("HtoD") || name.contains("HostToDevice")
}

/// Whether a copy goes from a device to the host, by CUDA's or ROCm's name.
pub fn is_download(name: &str) -> bool {
    name.contains("DtoH") || name.contains("DeviceToHost")
}

/// Whether a copy crosses the link between host and device.
pub fn is_host_copy(name: &str) -> bool {
    is_upload(name) || is_download(name)
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
            // Closures are no LAMB.
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda\
                 (at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
                Leaf::Elementwise,
            ),
            ("lamb_cuda_kernel_part1(float*)", Leaf::Optimizer),
            (
                "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)",
                Leaf::Elementwise,
            ),
            (
                "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >",
                Leaf::Attention,
            ),
            (
                "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>",
                Leaf::Matmul,
            ),
            ("void ck_tile::kentry<1, ck_tile::FmhaFwdKernel<int> >(int)", Leaf::Attention),
            (
                "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u>(long)",
                Leaf::Norm,
            ),
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float> > >(int)",
                Leaf::Elementwise,
            ),
            (
                "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)",
                Leaf::Attention,
            ),
            ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*)", Leaf::Attention),
            ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", Leaf::Convolution),
            ("void cudnn::ops::nchwToNhwcKernel<float, float>(float const*)", Leaf::Elementwise),
            ("void nhwcAddPaddingKernel<__nv_bfloat16>(int)", Leaf::Elementwise),
            (
                "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, float>(int)",
                Leaf::Elementwise,
            ),
            (
                "void epilogue::impl::globalKernel<float, float, float, true, true>(int)",
                Leaf::Matmul,
            ),
            ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", Leaf::Matmul),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(int)",
                Leaf::Matmul,
            ),
            ("triton_poi_fused_add_0", Leaf::Elementwise),
            ("triton_poi_fused_convolution_relu_5", Leaf::Elementwise),
            ("triton_per_fused_native_layer_norm_2", Leaf::Norm),
            ("triton_tem_fused_addmm_1", Leaf::Matmul),
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
