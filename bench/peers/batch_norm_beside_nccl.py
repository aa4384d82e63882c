"""Whether batch norm stalls beside NCCL: cuDNN's (persistent, NHWC), PyTorch's own, and plain kernels for comparison.

    torchrun --nproc-per-node 2 bench/peers/batch_norm_beside_nccl.py --out FOLDER [--ctas 0,4]

A sample times a batch of calls of one operation alone, and the same beside all-reduces that are in flight for longer
than the batch; alone and beside alternate. A kernel whose blocks must all be resident at once cannot start while a
collective holds multiprocessors that it counts on: its calls then take as long as the collective. `longest` is the
slowest single call.
"""
import argparse
import datetime
import json
import os
from statistics import median

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--ctas", default="0,4", help="most blocks of the communicator; 0 is NCCL's choice")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--calls", type=int, default=12)
a = parser.parse_args()

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if os.environ.get("NCCL_NVLS_ENABLE") != "0":
    raise SystemExit("NCCL_NVLS_ENABLE is not 0: NVLink multicast must be off")
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", device_id=device)

SHAPES = [(256, 64, 56, 56), (256, 256, 56, 56), (256, 512, 28, 28), (256, 2048, 7, 7)]
rows = []


def operations(shape):
    """{name: call} on one set of tensors."""
    x = torch.randn(shape, device=device, dtype=torch.float16).to(memory_format=torch.channels_last)
    dy = torch.randn_like(x)
    c = shape[1]
    weight, bias = (torch.rand(c, device=device) for _ in range(2))
    mean, var = torch.zeros(c, device=device), torch.ones(c, device=device)
    args = (x, weight, bias, mean, var, True, 0.1, 1e-5)
    y, save_mean, save_var, reserve = torch.ops.aten.cudnn_batch_norm(*args)
    native = torch.ops.aten.native_batch_norm(*args)
    out = torch.empty_like(x)
    return {
        "cuDNN batch norm forward": lambda: torch.ops.aten.cudnn_batch_norm(*args),
        "cuDNN batch norm backward": lambda: torch.ops.aten.cudnn_batch_norm_backward(
            x, dy, weight, mean, var, save_mean, save_var, 1e-5, reserve),
        "PyTorch batch norm forward": lambda: torch.ops.aten.native_batch_norm(*args),
        "PyTorch batch norm backward": lambda: torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, mean, var, native[1], native[2], True, 1e-5, [True, True, True]),
        "elementwise add": lambda: torch.add(x, dy, out=out),
    }


def kernels_of(call):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        call()
        torch.cuda.synchronize()
    return sorted({e.key[:80] for e in recorded.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA})


for ctas in map(int, a.ctas.split(",")):
    options = dist.ProcessGroupNCCL.Options()
    if ctas:
        options.config.max_ctas = ctas
    group = dist.new_group(ranks=list(range(world)), pg_options=options, backend="nccl")
    gradients = torch.randn(64 << 20, device=device)
    side = torch.cuda.Stream(priority=-1)
    for _ in range(3):
        dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=group)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=group)
    end.record()
    torch.cuda.synchronize()
    one = torch.tensor([begin.elapsed_time(end)], device=device)
    dist.all_reduce(one, op=dist.ReduceOp.MAX)
    one = one.item()
    for shape in SHAPES:
        for name, call in operations(shape).items():
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(a.calls + 1)]

            def sample(collectives):
                dist.barrier(group=group)
                torch.cuda.synchronize()
                pending = []
                if collectives:
                    with torch.cuda.stream(side):
                        for _ in range(collectives):
                            pending.append(dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=group, async_op=True))
                    torch.cuda._sleep(200_000)  # the collective is resident before the first call
                marks[0].record()
                for i in range(a.calls):
                    call()
                    marks[i + 1].record()
                torch.cuda.synchronize()
                each = [marks[i].elapsed_time(marks[i + 1]) for i in range(a.calls)]
                return sum(each) / a.calls, max(each)

            alone_once = torch.tensor([sample(0)[0]], device=device)
            dist.all_reduce(alone_once, op=dist.ReduceOp.MAX)
            count = max(1, round(2.5 * alone_once.item() * a.calls / one) + 1)
            taken = {0: [], count: []}
            for _ in range(a.rounds):
                for collectives in taken:
                    taken[collectives].append(sample(collectives))
            mine = torch.tensor([[m for m, _ in taken[0]], [m for m, _ in taken[count]], [x for _, x in taken[0]], [x for _, x in taken[count]]], device=device, dtype=torch.float64)
            dist.all_reduce(mine, op=dist.ReduceOp.MAX)
            alone, beside, alone_longest, longest = ([v * 1e3 for v in row] for row in mine.tolist())
            kernels = kernels_of(call) if ctas == int(a.ctas.split(",")[0]) else []
            if rank == 0:
                row = dict(ctas=ctas, shape=list(shape), operation=name, alone_us=median(alone), alone_least=min(alone),
                           alone_greatest=max(alone), beside_us=median(beside), beside_least=min(beside),
                           beside_greatest=max(beside), slower=median(beside) / median(alone), longest_alone_us=median(alone_longest),
                           longest_beside_us=median(longest), all_reduce_us=one * 1e3, kernels=kernels)
                rows.append(row)
                print(f"ctas {ctas} {shape} {name}: alone {row['alone_us']:.1f} us, beside {row['beside_us']:.1f} us ({row['slower']:.3f}x), longest call {row['longest_beside_us']:.0f} us; an all-reduce of 256 MiB takes {one * 1e3:.0f} us", flush=True)
    del gradients
if rank == 0:
    header = dict(date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), card=torch.cuda.get_device_name(0), ranks=world,
                  torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), nccl=".".join(map(str, torch.cuda.nccl.version())),
                  command="torchrun --nproc-per-node 2 bench/peers/batch_norm_beside_nccl.py")
    os.makedirs(a.out, exist_ok=True)
    lines = ["# Batch norm beside NCCL", ""] + [f"- {k}: {v}" for k, v in header.items()] + ["", "Medians of 9 samples; the slower rank counts.", "",
             "| most CTAs | shape | operation | alone us | least | greatest | beside us | least | greatest | slower | longest call beside us | all-reduce us |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['ctas'] or 'NCCL'} | {'x'.join(map(str, r['shape']))} | {r['operation']} | {r['alone_us']:.1f} | {r['alone_least']:.1f} | {r['alone_greatest']:.1f} | {r['beside_us']:.1f} | {r['beside_least']:.1f} | {r['beside_greatest']:.1f} | {r['slower']:.3f} | {r['longest_beside_us']:.0f} | {r['all_reduce_us']:.0f} |")
    lines += ["", "Kernels:", ""] + [f"- {r['operation']} {'x'.join(map(str, r['shape']))}: " + "; ".join(f"`{k}`" for k in r["kernels"]) for r in rows if r["ctas"] == rows[0]["ctas"]]
    for name, text in (("batch_norm_beside_nccl.md", "\n".join(lines) + "\n"), ("batch_norm_beside_nccl.json", json.dumps(dict(header=header, rows=rows), indent=1) + "\n")):
        with open(os.path.join(a.out, name + ".part"), "w") as f:
            f.write(text)
        os.replace(os.path.join(a.out, name + ".part"), os.path.join(a.out, name))
dist.destroy_process_group()
