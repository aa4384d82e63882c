"""Where the peer (PyTorch) spends its time: profiles one training step of each job by class of kernel.

    python3 bench/peers/step_profile.py measure --out FOLDER [--budget SECONDS] [--jobs NAME,NAME]
    python3 bench/peers/step_profile.py report FOLDER/peer-raw.json.gz --to bench/results/peer-profile-DATE

`measure` compiles the jobs beside each other, one process each, as far as the card's memory allows, and measures them
one after the other with all other processes stopped, in order of readiness. Kernel choices (Triton's autotuner,
cuDNN's benchmark) are timed under a lock. Each finished job is written at once; what the budget did not reach is named.
`report` needs no GPU: it makes the tables from what `measure` recorded.
"""
import argparse
import contextlib
import datetime
import fcntl
import gzip
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

# name: model, batch, autocast dtype, residual dtype, compile mode, attention back end, GiB to reserve
JOBS = {
    "gpt2-124m b32": ("gpt2-124m", 32, "bf16", "float32", "reduce-overhead", "cudnn", 17),
    "resnet-50 b256": ("resnet-50", 256, "fp16", "-", "reduce-overhead", "-", 24),
    "gpt2-355m b16": ("gpt2-355m", 16, "bf16", "float32", "reduce-overhead", "cudnn", 22),
    "gpt-1.3b b8": ("gpt-1.3b", 8, "bf16", "float32", "reduce-overhead", "cudnn", 36),
    "gpt2-124m b32 bf16 residual": ("gpt2-124m", 32, "bf16", "bfloat16", "reduce-overhead", "cudnn", 16),
    "resnet-50 b400": ("resnet-50", 400, "fp16", "-", "reduce-overhead", "-", 36),
    "vit-b b256": ("vit-b", 256, "bf16", "-", "reduce-overhead", "cudnn", 20),
    "swin-l b128": ("swin-l", 128, "bf16", "-", "reduce-overhead", "-", 29),
    "resnet-50 b256 compile": ("resnet-50", 256, "fp16", "-", "default", "-", 24),
    "gpt-1.3b b8 bf16 residual": ("gpt-1.3b", 8, "bf16", "bfloat16", "reduce-overhead", "cudnn", 34),
    "gpt2-355m b16 bf16 residual": ("gpt2-355m", 16, "bf16", "bfloat16", "reduce-overhead", "cudnn", 20),
    "resnet-50 b400 compile": ("resnet-50", 400, "fp16", "-", "default", "-", 36),
    "resnet-50 b256 max-autotune": ("resnet-50", 256, "fp16", "-", "max-autotune", "-", 24),
    "resnet-50 b400 max-autotune": ("resnet-50", 400, "fp16", "-", "max-autotune", "-", 36),
}
CARD_GIB = 124  # of the card's memory, what is shared out to jobs
ALONE = ("max-autotune",)  # modes whose tuning must not share the card


# ---------------------------------------------------------------- one job, in its own process


@contextlib.contextmanager
def tuning_lock(path):
    """Only one process times kernels at once."""
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def lock_the_autotuner(path):
    from torch._inductor.runtime import triton_heuristics

    plain = triton_heuristics.CachingAutotuner.benchmark_all_configs

    def benchmark_all_configs(self, *args, **kwargs):
        with tuning_lock(path):
            return plain(self, *args, **kwargs)

    triton_heuristics.CachingAutotuner.benchmark_all_configs = benchmark_all_configs


def work(name, lock, out):
    """Compile the job, wait for the word, measure, write."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.profiler import ProfilerActivity, profile, record_function

    import models

    model, batch, dtype, residual, mode, attention, _ = JOBS[name]
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = torch.device("cuda", 0)
    if mode not in ALONE:
        lock_the_autotuner(lock)
    chosen = sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if attention == "cudnn" else contextlib.nullcontext()
    chosen.__enter__()  # for the life of the process
    stream_dtype = getattr(torch, residual) if residual != "-" else torch.float32
    network, data, optimizer, units = models.build(model, batch, stream_dtype, device)
    cast = torch.bfloat16 if dtype == "bf16" else torch.float16
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == "fp16")
    began = time.time()
    compiled = torch.compile(network, mode=mode)

    def step(forward):
        with record_function("forward"), torch.autocast("cuda", cast):
            loss = forward(*data)
        with record_function("backward"):
            scaler.scale(loss).backward()
        with record_function("update"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        return loss

    if model == "resnet-50" and mode not in ALONE:
        with tuning_lock(lock):  # cuDNN's benchmark of every convolution
            step(network)
            torch.cuda.synchronize()
        torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step(compiled)
    torch.cuda.synchronize()
    with tuning_lock(lock):
        for _ in range(2):
            loss = step(compiled)
        torch.cuda.synchronize()
    compile_s = time.time() - began
    print("READY", flush=True)
    if sys.stdin.readline().strip() != "GO":
        return

    until = time.time() + 1.5
    while time.time() < until:
        step(compiled)
        torch.cuda.synchronize()
    count = 20
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for i in range(count):
        loss = step(compiled)
        marks[i + 1].record()
    torch.cuda.synchronize()
    step_ms = [marks[i].elapsed_time(marks[i + 1]) for i in range(count)]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for i in range(8):
            with record_function(f"counterpoint step {i}"):
                loss = step(compiled)
        torch.cuda.synchronize()
    trace = tempfile.mktemp(suffix=".json")
    recorded.export_chrome_trace(trace)
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    os.remove(trace)
    names, steps = steps_of_trace(events, first=2)
    properties = torch.cuda.get_device_properties(0)
    result = dict(
        job=name, model=model, batch=batch, dtype=dtype, residual=residual, mode=mode, attention=attention,
        units=units, unit="tok/s" if model.startswith("gpt") else "img/s", step_ms=step_ms, loss=loss.item(),
        peak_gib=torch.cuda.max_memory_allocated() / 2**30, compile_s=compile_s, card=properties.name,
        torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), names=names, steps=steps,
    )
    with gzip.open(out, "wt") as f:
        json.dump(result, f)
    print("DONE", flush=True)


def steps_of_trace(events, first):
    """Kernel names and, for each complete step from number `first` on, [name, phase, start, duration] in ns."""
    ranges, launches, kernels = {}, {}, []
    for e in events:
        kind = e.get("cat")
        if kind == "user_annotation":
            ranges.setdefault(e["name"], []).append((e["ts"], e["ts"] + e["dur"]))
        elif kind in ("cuda_runtime", "cuda_driver"):
            launches[e["args"].get("correlation")] = e["ts"]
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append(e)
    steps = []
    while f"counterpoint step {len(steps)}" in ranges:
        steps.append(ranges[f"counterpoint step {len(steps)}"][0])
    phases = [(a, b, p) for p, key in enumerate(("forward", "backward", "update")) for a, b in ranges.get(key, [])]
    origin = min(float(e["ts"]) for e in kernels)
    index, found = {}, [[] for _ in steps]
    for e in kernels:
        at = launches.get(e["args"].get("correlation"))
        if at is None:
            continue
        number = next((i for i, (a, b) in enumerate(steps) if a <= at <= b), None)
        if number is None:
            continue
        phase = next((p for a, b, p in phases if a <= at <= b), 2)
        start = round((float(e["ts"]) - origin) * 1000)
        name = index.setdefault(e["name"], len(index))
        found[number].append([name, phase, start, round(float(e["dur"]) * 1000)])
    out = []
    for i in range(first, len(found) - 1):
        if found[i] and found[i + 1]:
            start, end = (min(k[2] for k in found[j]) for j in (i, i + 1))
            out.append(dict(start=start, end=end, kernels=sorted(found[i], key=lambda k: k[2])))
    return list(index), out


# ---------------------------------------------------------------- all jobs


class Worker:
    def __init__(self, name, folder, events):
        self.name, self.gib = name, JOBS[name][6]
        self.out = os.path.join(folder, name.replace(" ", "_") + ".json.gz")
        self.log = open(os.path.join(folder, name.replace(" ", "_") + ".log"), "w+")
        command = [sys.executable, os.path.abspath(__file__), "work", name, os.path.join(folder, "lock"), self.out]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        threading.Thread(target=self.read, args=(events,), daemon=True).start()

    def read(self, events):
        for line in self.process.stdout:
            if line.strip() in ("READY", "DONE"):
                events.put((self, line.strip()))
        self.process.wait()
        events.put((self, "ENDED"))

    def send(self, number):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def last_error(self):
        self.log.flush()
        self.log.seek(0)
        lines = [x.strip() for x in self.log.read().splitlines() if x.strip()]
        return (lines or ["no message"])[-1][:300]


def driver_version():
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout.split()[0]
    except (OSError, IndexError):
        return "unknown"


def measure(out, budget, chosen):
    began = time.time()
    folder = tempfile.mkdtemp(prefix="peer-")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "inductor"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "3")
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    os.makedirs(out, exist_ok=True)
    driver = driver_version()
    events, running, waiting, results, failed = queue.Queue(), [], list(chosen), [], {}
    ready = []

    def write():
        meta = dict(driver=driver, budget_s=budget, spent_s=round(time.time() - began, 1), failed=failed,
                    not_measured=[n for n in chosen if n not in failed and all(r["job"] != n for r in results)])
        path = os.path.join(out, "peer-raw.json.gz")
        with gzip.open(path + ".part", "wt") as f:
            json.dump(dict(meta=meta, profiles=results), f)
        os.replace(path + ".part", path)

    def admit():
        for name in list(waiting):
            alone = JOBS[name][4] in ALONE
            used = sum(w.gib for w in running)
            if any(JOBS[w.name][4] in ALONE for w in running) or (alone and (running or name != waiting[0])):
                return
            if not running or used + JOBS[name][6] <= CARD_GIB:
                waiting.remove(name)
                running.append(Worker(name, folder, events))

    def one(worker):
        """Let one job measure while every other process stands still."""
        others = [w for w in running if w is not worker]
        for w in others:
            w.send(signal.SIGSTOP)
        time.sleep(0.3)
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.write("GO\n")
            worker.process.stdin.flush()
        try:
            worker.process.wait(timeout=max(1, min(60, budget - (time.time() - began))))
        except subprocess.TimeoutExpired:
            worker.process.kill()
        for w in others:
            w.send(signal.SIGCONT)

    while (waiting or running) and time.time() - began < budget:
        admit()
        try:
            worker, what = events.get(timeout=0.5)
        except queue.Empty:
            continue
        if what == "READY":
            print(f"{time.time() - began:6.1f} s  compiled  {worker.name}", flush=True)
            one(worker)
        elif what == "ENDED":
            running.remove(worker)
            if os.path.exists(worker.out):
                with gzip.open(worker.out, "rt") as f:
                    results.append(json.load(f))
                r = results[-1]
                ms = median(r["step_ms"])
                print(f"{time.time() - began:6.1f} s  measured  {worker.name}: {ms:.2f} ms, {r['units'] / ms * 1e3:.0f} {r['unit']}, {len(r['steps'])} steps recorded", flush=True)
            else:
                failed[worker.name] = worker.last_error()
                print(f"{time.time() - began:6.1f} s  failed    {worker.name}: {failed[worker.name]}", flush=True)
            write()
    for w in running:
        w.process.kill()
    write()


# ---------------------------------------------------------------- tables


def report(raws, to, command):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import kernel_classes as kc

    found, failed, metas = {}, {}, []
    for raw in raws:
        with gzip.open(raw, "rt") as f:
            recorded = json.load(f)
        found.update({p["job"]: p for p in recorded["profiles"]})
        failed.update(recorded["meta"]["failed"])
        metas.append(recorded["meta"])
    failed = {name: why for name, why in failed.items() if name not in found}
    missing = [name for m in metas for name in m["not_measured"] if name not in found and name not in failed]
    order = list(JOBS)
    profiles = sorted(found.values(), key=lambda p: order.index(p["job"]))
    if not profiles:
        sys.exit(f"{raws[0]}: no profile in it")
    one = profiles[0]
    lines = [f"# The peer's step by class of kernel, {one['date'][:10]}", "",
             f"Card {one['card']}, torch {one['torch']}, CUDA {one['cuda']}, cuDNN {one['cudnn']}, driver {metas[0]['driver']}. Command: `{command}`.",
             "Step without the profiler: median of 20 steps between events. Class tables: CUPTI records of complete steps;",
             "the column `median step` is the step with the median length and sums exactly to it.", "",
             "| job | mode | step ms | least | greatest | rate | peak GiB |", "|---|---|---|---|---|---|---|"]
    for p in profiles:
        ms = sorted(p["step_ms"])
        lines.append(f"| {p['job']} | {p['mode']} | {median(ms):.2f} | {ms[0]:.2f} | {ms[-1]:.2f} | {p['units'] / median(ms) * 1e3:,.0f} {p['unit']} | {p['peak_gib']:.1f} |")
    for name, why in failed.items():
        lines.append(f"| {name} | | failed: {why} | | | | |")
    for name in missing:
        lines.append(f"| {name} | | not measured | | | | |")
    data = dict(runs=metas, failed=failed, not_measured=missing, command=command, jobs=[])
    for p in profiles:
        rows, total = kc.table(p)
        lines += ["", f"## {p['job']} ({p['dtype']}, {p['mode']}, residual {p['residual']}, attention {p['attention']})", "",
                  f"{len(p['steps'])} recorded steps, {len(p['steps'][0]['kernels'])} device operations a step.", "",
                  "| class | median step ms | share | median ms | least | greatest |", "|---|---|---|---|---|---|"]
        for kind, exact, mid, low, high in rows:
            lines.append(f"| {kind} | {exact / 1e6:.3f} | {exact / total[0]:.1%} | {mid / 1e6:.3f} | {low / 1e6:.3f} | {high / 1e6:.3f} |")
        device = total[1] - next((r[2] for r in rows if r[0] == "gaps"), 0)
        lines.append(f"| **step** | {total[0] / 1e6:.3f} | 100 % | {total[1] / 1e6:.3f} | {total[2] / 1e6:.3f} | {total[3] / 1e6:.3f} |")
        lines += ["", f"Step without the profiler {median(p['step_ms']):.3f} ms; device work in the recorded steps {device / 1e6:.3f} ms (median)."]
        largest = kc.kernels_by_class(p)
        lines += ["", "| class | kernel | launches | ms |", "|---|---|---|---|"]
        lines += [f"| {kind} | `{name[:90]}` | {n} | {ns / 1e6:.3f} |" for kind, name, n, ns in largest[:18]]
        data["jobs"].append(dict({k: v for k, v in p.items() if k not in ("names", "steps")},
                                 classes={k: dict(exact_ns=e, median_ns=m, least_ns=lo, greatest_ns=hi) for k, e, m, lo, hi in rows},
                                 step_ns=dict(exact_ns=total[0], median_ns=total[1], least_ns=total[2], greatest_ns=total[3]),
                                 kernels=[dict(kind=k, name=n, launches=c, ns=ns) for k, n, c, ns in largest]))
    for path, text in ((to + ".md", "\n".join(lines) + "\n"), (to + ".json", json.dumps(data, indent=1) + "\n")):
        with open(path + ".part", "w") as f:
            f.write(text)
        os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    m = verbs.add_parser("measure")
    m.add_argument("--out", required=True)
    m.add_argument("--budget", type=float, default=600)
    m.add_argument("--jobs", default="")
    w = verbs.add_parser("work")
    w.add_argument("name"), w.add_argument("lock"), w.add_argument("out")
    r = verbs.add_parser("report")
    r.add_argument("raw", nargs="+"), r.add_argument("--to", required=True)
    r.add_argument("--command", default="python3 bench/peers/step_profile.py measure --out OUT")
    a = parser.parse_args()
    if a.verb == "work":
        work(a.name, a.lock, a.out)
    elif a.verb == "report":
        report(a.raw, a.to, a.command)
    else:
        chosen = a.jobs.split(",") if a.jobs else list(JOBS)
        unknown = [j for j in chosen if j not in JOBS]
        if unknown:
            sys.exit(f"--jobs: unknown job '{unknown[0]}'; known: {', '.join(JOBS)}")
        measure(a.out, a.budget, chosen)


if __name__ == "__main__":
    main()
