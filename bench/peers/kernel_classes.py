"""Which class of work a kernel of the peer belongs to, and the exact account of one step by class.

Input: the kernels of a step as (name, phase, start, duration) in nanoseconds, phase one of forward, backward, update
(the range of the host that launched them). Every nanosecond of the step belongs to one class; what no kernel covers is
`gaps`, so the classes sum to the step. Knows nothing of PyTorch's API.

Matmul roles are read from the transposition letters at the end of cuBLASLt's kernel names: row-major y = x W^T is TN,
dx = dy W is NN, dW = dy^T x is NT. In eager traces with recorded operators every forward matmul of GPT-2 and of
ResNet-50 is TN, every backward one NN or NT, and GPT-2 has as many NN as NT. A split-K reduction belongs to the matmul
before it.
"""
import re
from statistics import median

ORDER = [
    "matmul forward", "head forward", "matmul data gradient", "head data gradient", "matmul weight gradient",
    "head weight gradient", "convolution forward", "convolution data gradient", "convolution weight gradient",
    "convolution auxiliary", "attention forward", "attention backward", "normalisation forward",
    "normalisation backward", "activation forward", "activation backward", "residual and other elementwise",
    "bias gradient and sums", "pooling", "loss", "embedding", "copies", "casts forward", "casts backward", "optimizer", "communication", "fills",
    "gaps",
]
ROLE = {"TN": "forward", "NN": "data gradient", "NT": "weight gradient"}


def has(name, *words):
    return any(w in name for w in words)


def matmul(name, phase):
    """The matmul or convolution class of a library kernel, or None."""
    low = name.lower()
    conv = has(low, "implicit_gemm", "implicitgemm", "conv", "fprop", "dgrad", "wgrad", "cudnn")
    if has(low, "nhwctonchw", "nchwtonhwc", "nhwcaddpadding", "init_device_workspace", "computeoffsets"):
        return "convolution auxiliary"
    if "triton_tem" in low:
        conv = "conv" in low
    elif not has(low, "nvjet", "xmma", "cutlass", "gemm", "splitk", "wgrad", "dgrad", "fprop", "convolve"):
        return None
    kind = "convolution" if conv else "matmul"
    letters = re.search(r"nvjet.*_([TN])([TN])[TN]$", name)
    if letters:
        role = ROLE.get(letters[1] + letters[2])
        if role:
            return f"{kind} {role}"
    if has(low, "wgrad"):
        return f"{kind} weight gradient"
    if has(low, "dgrad"):
        return f"{kind} data gradient"
    if re.search(r"(_|gemm_.*_)nt(_|$)", low):
        return f"{kind} weight gradient"
    if re.search(r"(_|gemm_.*_)nn(_|$)", low) and phase == "backward":
        return f"{kind} data gradient"
    if phase == "forward":
        return f"{kind} forward"
    return f"{kind} data gradient"


def classify(name, phase):
    """Class of one kernel."""
    low = name.lower()
    back = phase == "backward"
    if "nccl" in low:
        return "communication"
    if has(low, "multi_tensor", "fusedadam", "fusedoptimizer", "fused_adam", "fused_sgd", "amp_", "unscale"):
        return "optimizer"
    if has(low, "sdpa", "flash", "fmha", "compute_dot_do_o", "convert_dq", "attention"):
        return "attention backward" if back else "attention forward"
    if low.startswith("memset"):
        return "fills"
    if low.startswith("memcpy"):
        return "copies"
    if not low.startswith("triton_") or "triton_tem" in low:
        role = matmul(name, phase)
        if role:
            return role
    if "layer_norm" in low and "log_softmax" not in low:
        return "normalisation backward" if back else "normalisation forward"
    if "embedding" in low and "log_softmax" not in low:
        return "embedding"
    if "reduce_kernel" in low and back:  # the two sums of each layer norm's parameters, after Inductor's partial sums
        return "normalisation backward"
    if has(low, "log_softmax", "nll_loss", "cunn_softmax", "logsumexp"):
        return "loss"
    if has(low, "embedding", "compute_grad_weight", "sum_and_scatter", "radix_sort", "unique_by_key", "segment"):
        return "embedding"
    if has(low, "layer_norm", "batch_norm", "layernorm", "gammabeta", "bn_fw", "bn_bw", "native_norm", "rsqrt"):
        return "normalisation backward" if back else "normalisation forward"
    if "max_pool" in low:
        return "pooling"
    if "gelu_backward_sum" in low:
        return "bias gradient and sums"
    if has(low, "gelu"):
        return "activation backward" if has(low, "gelu_backward", "gelubackward") or back else "activation forward"
    if has(low, "relu", "threshold", "clamp"):
        return "activation backward" if back else "activation forward"
    if "softmax" in low:
        return "attention backward" if back else "attention forward"
    if phase == "update":
        return "optimizer"
    if has(low, "fused_sum", "_sum_", "reduce_kernel") or low.startswith(("triton_red", "triton_per")):
        return "bias gradient and sums"
    if has(low, "fillfunctor", "fused_zeros", "fused_full"):
        return "fills"
    if "add" in low or has(low, "mean", "_mul", "div"):
        return "residual and other elementwise"
    if has(low, "clone", "cat", "transpose", "permute", "stack", "roll", "direct_copy"):
        return "copies"
    if has(low, "_to_copy", "copy", "convert"):  # forward: of parameters and inputs; backward: of gradients
        return "casts backward" if back else "casts forward"
    return "residual and other elementwise"


def classes_of(kernels, model):
    """Class of each (name, phase) in order of time: what needs the model or a kernel's neighbours is settled here.

    A split-K reduction takes the class of the matmul before it. Every matmul of ResNet-50 but its last layer is a 1x1
    convolution, so all count as convolutions. The head of a language model is the last matmul forward and the first of
    each role backward.
    """
    classes, before = [], None
    for name, phase in kernels:
        kind = classify(name, phase)
        if model == "resnet-50" and kind.startswith("matmul"):
            kind = "convolution" + kind[len("matmul"):]
        if "splitkreduce" in name.lower() and before:
            kind = before
        elif kind.startswith(("matmul", "convolution")) and kind != "convolution auxiliary":
            before = kind
        classes.append(kind)
    if not model.startswith("gpt"):
        return classes
    first = {"data gradient": True, "weight gradient": True}
    last = None
    for i, name in enumerate(classes):
        if name == "matmul forward":
            last = i
        for role in first:
            if name == f"matmul {role}" and first[role] and kernels[i][1] == "backward":
                classes[i], first[role] = f"head {role}", False
    if last is not None:
        classes[last] = "head forward"
    return classes


def account(kernels, start, end, model):
    """{class: nanoseconds} of [start, end); kernels that overlap are charged in the order of their start."""
    kernels = sorted(kernels, key=lambda k: (k[2], k[2] + k[3]))
    classes = classes_of([(name, phase) for name, phase, _, _ in kernels], model)
    spent, covered = dict.fromkeys(ORDER, 0), start
    for (_, _, begin, length), kind in zip(kernels, classes):
        begin, stop = max(begin, covered), min(begin + length, end)
        if stop > begin:
            spent[kind] += stop - begin
            covered = stop
    spent["gaps"] = (end - start) - sum(spent.values())
    return spent


def steps_of(profile):
    """Accounts of a recorded profile: one {class: ns} for each complete step."""
    out = []
    for step in profile["steps"]:
        kernels = [(profile["names"][n], ("forward", "backward", "update")[p], s, d) for n, p, s, d in step["kernels"]]
        out.append(account(kernels, step["start"], step["end"], profile["model"]))
    return out


def table(profile):
    """Rows (class, ns in the median step, median, least, greatest) and the total; the first column sums exactly."""
    steps = steps_of(profile)
    totals = [sum(s.values()) for s in steps]
    chosen = steps[sorted(range(len(steps)), key=lambda i: totals[i])[len(steps) // 2]]
    rows = []
    for kind in ORDER:
        values = [s[kind] for s in steps]
        if any(values):
            rows.append((kind, chosen[kind], median(values), min(values), max(values)))
    return rows, (sum(chosen.values()), median(totals), min(totals), max(totals))


def kernels_by_class(profile, limit=40):
    """[(class, kernel name, launches a step, ns a step)] of one step, largest first."""
    found = {}
    step = profile["steps"][len(profile["steps"]) // 2]
    ordered = sorted(step["kernels"], key=lambda k: (k[2], k[2] + k[3]))
    phases = [("forward", "backward", "update")[p] for _, p, _, _ in ordered]
    names = [profile["names"][n] for n, _, _, _ in ordered]
    classes = classes_of(list(zip(names, phases)), profile["model"])
    for (_, _, _, length), name, kind in zip(ordered, names, classes):
        entry = found.setdefault((kind, name), [0, 0])
        entry[0] += 1
        entry[1] += length
    rows = [(kind, name, n, ns) for (kind, name), (n, ns) in found.items()]
    return sorted(rows, key=lambda r: -r[3])[:limit]
