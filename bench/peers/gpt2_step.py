"""One GPT-2 training step here and in PyTorch: same weights and batches, losses and gradients compared, times taken in turn.

    python3 bench/peers/gpt2_step.py --ours "target/release/bench gpt2-step" --check --time --out OUT

Writes the initial weights and the batches to files that both sides read, starts our program as a child and talks to it over its
standard input, one JSON object a line each way. Prints tables and writes OUT/gpt2_step.json.

--check compares every gradient of the first step, and the losses of --steps steps, with PyTorch in fp32 (the reference) and in bf16
autocast (what rounding alone costs). --time lets both run blocks of steps in turn. Peers: `fp32` keeps autocast's fp32 residual stream,
`bf16` casts the embedding so that the residual stream is bf16. Padded vocabulary columns are masked in the check, and in our step always;
the timed peer does not mask them, which costs it nothing.
"""
import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

RATE, BETAS, DECAY, EPSILON = 3e-4, (0.9, 0.95), 0.1, 1e-8


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with a tied output layer. `classes`: columns that take part in the loss; None for all."""

    def __init__(self, size, bf16_residual=False, classes=None):
        super().__init__()
        self.bf16_residual, self.classes = bf16_residual, classes
        self.wte, self.wpe = nn.Embedding(size.columns, size.width), nn.Embedding(size.seq, size.width)
        self.h = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        if self.bf16_residual:
            x = x.bfloat16()
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        if self.classes is not None:
            logits = logits[..., : self.classes]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.view(-1))


def names(size):
    """(our name, PyTorch module path) of every parameter."""
    yield "wte.weight", "wte.weight"
    yield "wpe.weight", "wpe.weight"
    for i in range(size.layers):
        for ours, theirs in (("ln_1", "ln_1"), ("attn.c_attn", "c_attn"), ("attn.c_proj", "c_proj"), ("ln_2", "ln_2"),
                             ("mlp.c_fc", "c_fc"), ("mlp.c_proj", "down")):
            for kind in ("weight", "bias"):
                yield f"h.{i}.{ours}.{kind}", f"h.{i}.{theirs}.{kind}"
    yield "ln_f.weight", "ln_f.weight"
    yield "ln_f.bias", "ln_f.bias"


def initial_weights(size):
    """GPT-2's scales, with biases and gains moved off 0 and 1 so that every parameter matters in the comparison."""
    torch.manual_seed(20)
    model = Gpt(size)
    weights = {}
    for ours, theirs in names(size):
        p = model.get_parameter(theirs)
        if p.dim() == 2:
            scale = 0.02 / (math.sqrt(2 * size.layers) if ours.endswith("c_proj.weight") else 1.0)
            value = torch.randn(p.shape) * scale
        else:
            gain = ".ln_" in "." + ours and ours.endswith("weight")
            value = (1.0 if gain else 0.0) + torch.randn(p.shape) * (0.1 if gain else 0.01)
        if ours == "wte.weight":
            value[size.vocabulary :] = 0
        weights[ours] = value
    return weights


def batches_of(size):
    """Tokens by a power law, each the next token's cause half of the time, so that losses fall and rows repeat."""
    g = torch.Generator().manual_seed(21)
    shape = (size.batches, size.batch, size.seq + 1)
    tokens = (torch.rand(shape, generator=g) ** 4 * size.vocabulary).long()
    copied = torch.rand(shape, generator=g) < 0.5
    for t in range(1, size.seq + 1):
        follow = (tokens[..., t - 1] * 7 + 3) % size.vocabulary
        tokens[..., t] = torch.where(copied[..., t], follow, tokens[..., t])
    return tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()


def build(size, weights, device, **options):
    model = Gpt(size, **options).to(device)
    with torch.no_grad():
        for ours, theirs in names(size):
            model.get_parameter(theirs).copy_(weights[ours])
    return model


def optimizer(model, device):
    return torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY, fused=device == "cuda")


class Ours:
    """Our program as a child process."""

    def __init__(self, command, more, size, weights_file, batches_file):
        flags = ["--layers", size.layers, "--width", size.width, "--heads", size.heads, "--batch", size.batch, "--seq", size.seq,
                 "--vocabulary", size.vocabulary, "--columns", size.columns, "--weights", weights_file, "--batches", batches_file]
        self.child = subprocess.Popen(command.split() + more.split() + [str(f) for f in flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self.read()

    def read(self):
        while True:
            line = self.child.stdout.readline()
            if not line:
                raise SystemExit(f"our program ended with status {self.child.wait()}")
            if line.startswith("{"):
                return json.loads(line)
            print(line, end="", flush=True)

    def ask(self, **request):
        self.child.stdin.write(json.dumps(request) + "\n")
        self.child.stdin.flush()
        return self.read()

    def times(self, steps, variant=0):
        self.ask(do="reset")
        return self.ask(do="time", variant=variant, steps=steps)["ms"]

    def close(self):
        self.child.stdin.close()
        self.child.wait(30)


def attention(size, device):
    backends = [SDPBackend.CUDNN_ATTENTION] if device == "cuda" else [SDPBackend.MATH]
    return sdpa_kernel(backends)


def losses_of(model, size, data, device, steps, autocast, gradients=None):
    """Losses of `steps` steps; the first step's gradients go into `gradients`."""
    opt, found = optimizer(model, device), []
    for step in range(steps):
        tokens, targets = (x[step % size.batches] for x in data)
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = model(tokens, targets)
        loss.backward()
        if step == 0 and gradients is not None:
            gradients.update({ours: model.get_parameter(theirs).grad.detach().clone() for ours, theirs in names(size)})
        opt.step()
        opt.zero_grad(set_to_none=True)
        found.append(loss.detach())
    return [float(x) for x in found]


def relative(a, b):
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def check(a, size, ours, weights, data, device, report):
    first = ours.ask(do="train", steps=1)["losses"]
    path = os.path.join(a.scratch, "gradients.safetensors")
    ours.ask(do="gradients", path=path)
    curve = first + ours.ask(do="train", steps=a.steps - 1)["losses"]

    reference, rounded = {}, {}
    torch.backends.cuda.matmul.allow_tf32 = False
    model = build(size, weights, device, classes=size.vocabulary)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        exact = losses_of(model, size, data, device, 1 if a.quick else a.steps, False, reference)
    del model
    model = build(size, weights, device, classes=size.vocabulary)
    with attention(size, device):
        autocast = losses_of(model, size, data, device, a.steps, True, rounded)
    del model
    rows, worst = [], 0.0
    with safe_open(path, "pt") as f:
        for ours_name, _ in names(size):
            mine = f.get_tensor(ours_name).to(device).float()
            want, bf16 = reference[ours_name].float(), rounded[ours_name].float()
            cosine = F.cosine_similarity(mine.flatten().double(), want.flatten().double(), dim=0).item()
            row = dict(name=ours_name, cosine=cosine, ours=relative(mine, want), torch_bf16=relative(bf16, want),
                       norm=want.norm().item(), finite=bool(torch.isfinite(mine).all()))
            rows.append(row)
            worst = max(worst, row["ours"] / max(row["torch_bf16"], 1e-9))
    print("\ngradients of step 1: relative error against PyTorch fp32, ours and PyTorch bf16 autocast")
    rows.sort(key=lambda r: -r["ours"] / max(r["torch_bf16"], 1e-9))
    for r in rows[:14] + rows[-2:]:
        print(f"  {r['name']:<26} cosine {r['cosine']:.6f}  ours {r['ours']:.2e}  torch bf16 {r['torch_bf16']:.2e}  norm {r['norm']:.2e}"
              + ("" if r["finite"] else "  NOT FINITE"))
    print(f"  lowest cosine {min(r['cosine'] for r in rows):.6f}; largest ratio of errors ours / torch bf16 {worst:.2f}; median "
          f"{statistics.median(r['ours'] / max(r['torch_bf16'], 1e-9) for r in rows):.2f}")
    print("\nstep   ours      torch bf16  torch fp32   ours - bf16")
    for i, (x, y) in enumerate(zip(curve, autocast)):
        print(f"{i + 1:4}   {x:.5f}   {y:.5f}    {exact[i] if i < len(exact) else float('nan'):.5f}     {x - y:+.5f}")
    difference = max(abs(x - y) / y for x, y in zip(curve, autocast))
    print(f"largest relative difference of losses to bf16 autocast: {difference:.2e}"
          + (f"; to fp32 {max(abs(x - y) / y for x, y in zip(curve, exact)):.2e}; bf16 autocast to fp32 "
             f"{max(abs(x - y) / y for x, y in zip(autocast, exact)):.2e}" if len(exact) == len(curve) else ""))
    report["check"] = dict(gradients=rows, ours=curve, torch_bf16=autocast, torch_fp32=exact, loss_difference=difference, worst_error_ratio=worst)


class Peer:
    """PyTorch's best mode: compiled with reduce-overhead (CUDA graphs), cuDNN attention, fused AdamW."""

    def __init__(self, size, weights, data, device, bf16_residual):
        torch.backends.cuda.matmul.allow_tf32 = True
        self.size, self.data, self.device = size, data, device
        self.model = build(size, weights, device, bf16_residual=bf16_residual)
        self.run = torch.compile(self.model, mode="reduce-overhead")
        self.optimizer, self.count = optimizer(self.model, device), 0
        self.initial = [p.detach().clone() for p in self.model.parameters()]

    def reset(self):
        """Back to the initial weights, in place, since CUDA graphs hold the addresses."""
        self.count = 0
        with torch.no_grad():
            for p, initial in zip(self.model.parameters(), self.initial):
                p.copy_(initial)
            for state in self.optimizer.state.values():
                for x in state.values():
                    x.zero_()

    def step(self):
        tokens, targets = (x[self.count % self.size.batches] for x in self.data)
        self.count += 1
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.run(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def times(self, steps):
        self.reset()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for i in range(steps):
            self.step()
            events[i + 1].record()
        torch.cuda.synchronize()
        return [events[i].elapsed_time(events[i + 1]) for i in range(steps)]


class Meter:
    """Clock and power while something runs, as nvidia-smi sees them five times a second."""

    def __init__(self):
        self.running, self.samples = None, {}
        query = ["nvidia-smi", "--id=0", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "-lms", "200"]
        try:
            self.child = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self.read, daemon=True).start()
        except FileNotFoundError:
            self.child = None

    def read(self):
        for line in self.child.stdout:
            try:
                clock, power = (float(x) for x in line.split(","))
            except ValueError:
                continue
            if self.running:
                self.samples.setdefault(self.running, []).append((clock, power))

    def of(self, name):
        return [statistics.median(x) for x in zip(*self.samples.get(name, [(0, 0)]))]

    def close(self):
        if self.child:
            self.child.terminate()


def measure(a, size, contestants, weights, data, device, report):
    """`contestants`: name to a function that runs a number of steps from the initial weights and returns their milliseconds.

    Every block starts at the same weights: what the numbers are decides how much power the matmuls take, and so the clock."""
    for kind in filter(None, a.peers.split(",")):
        started = time.time()
        with attention(size, device):
            peer = Peer(size, weights, data, device, kind == "bf16")
            for _ in range(8):
                peer.step()
        torch.cuda.synchronize()
        print(f"torch with a {kind} residual stream: compiled in {time.time() - started:.0f} s", flush=True)
        contestants["torch " + kind] = peer.times
    times, meter = {name: [] for name in contestants}, Meter()
    with attention(size, device):
        for turn in range(a.rounds + 1):
            for name, run in contestants.items():
                meter.running = name if turn else None
                found = run(a.block if turn else 15)
                # The first turn warms the card up; in every block the first steps see another one's clocks.
                if turn:
                    times[name].append(found[3:])
    meter.close()
    tokens = size.batch * size.seq
    medians = {n: statistics.median(x for block in t for x in block) for n, t in times.items()}
    first = next(iter(medians))
    print(f"\n{'':<44} {'ms/step':>8} {'blocks from - to':>18} {'tokens/s':>9} {first + ' is faster by':>20} {'MHz':>6} {'W':>5}")
    for n, t in times.items():
        blocks = [statistics.median(block) for block in t]
        clock, power = meter.of(n)
        print(f"{n:<44} {medians[n]:8.3f} {min(blocks):8.3f} - {max(blocks):7.3f} {tokens / medians[n] * 1e3:9.0f} "
              f"{medians[n] / medians[first]:19.3f}x {clock:6.0f} {power:5.0f}", flush=True)
    report["time"] = dict(medians=medians, blocks=times, tokens=tokens, clock_and_power={n: meter.of(n) for n in times})


def markdown(report):
    """The report as tables for people."""
    ready, lines = report["ready"], ["# gpt2-step", ""]
    for name in ("date", "card", "driver", "CUDA of the driver", "cuBLASLt", "cuDNN", "NVRTC"):
        lines.append(f"- {name}: {ready[name]}")
    lines += [f"- torch: {report['torch']}, its cuDNN {report['cudnn']}", f"- command: {report['command']}",
              f"- ours: residual stream {ready['residual']}, gradient slots {ready['gradient']}"]

    def table(title, note, columns, rows):
        lines.extend(["", f"## {title}", "", *([note, ""] if note else []), "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)])
        lines.extend("| " + " | ".join(str(x) for x in row) + " |" for row in rows)

    if "time" in report:
        t = report["time"]
        rows, first = [], next(iter(t["medians"]))
        for name, ms in t["medians"].items():
            blocks = [statistics.median(b) for b in t["blocks"][name]]
            clock, power = t["clock_and_power"][name]
            rows.append([name, f"{ms:.2f}", f"{min(blocks):.2f}", f"{max(blocks):.2f}", f"{t['tokens'] / ms * 1e3:.0f}",
                         f"{ms / t['medians'][first]:.3f}", f"{clock:.0f}", f"{power:.0f}"])
        steps = [len(b) for b in next(iter(t["blocks"].values()))]
        table("Step times, in turn", f"{len(steps)} turns of {steps[0]} steps after 3 that are left out; median of all steps, least and greatest median of a turn.",
              ["step", "ms", "least", "greatest", "tokens/s", "times the first", "MHz", "W"], rows)
    for key, title in (("profile", "Time by class, before the timing"), ("profile_after", "Time by class, after the timing")):
        if key in report:
            p = report[key]
            rows = [[c["class"], f"{c['ms']:.2f}", f"{c['aim_ms']:.2f}", f"{c['ms'] - c['aim_ms']:+.2f}"] for c in p["classes"]]
            aims = sum(c["aim_ms"] for c in p["classes"])
            table(title, "Every task between two events, outside the graph.", ["class", "ms", "aim", "over"],
                  rows + [["sum", f"{p['sum_ms']:.2f}", f"{aims:.2f}", f"{p['sum_ms'] - aims:+.2f}"]])
    if "profile_after" in report:
        rows = [[t["task"], t["times"], f"{t['us']:.1f}", f"{t['ms']:.3f}", f"{t['tflops']:.0f}" if t["tflops"] else "", f"{t['tbs']:.2f}" if t["tbs"] else ""]
                for t in report["profile_after"]["tasks"]]
        table("Tasks, after the timing", "", ["task", "times", "us each", "ms all", "TFLOP/s", "TB/s"], rows)
    if "check" in report:
        c = report["check"]
        table("Losses", f"Largest relative difference to PyTorch's bf16 autocast: {c['loss_difference']:.1e}.", ["step", "ours", "torch bf16"],
              [[i + 1, f"{x:.5f}", f"{y:.5f}"] for i, (x, y) in enumerate(zip(c["ours"], c["torch_bf16"]))])
        ratios = [g["ours"] / max(g["torch_bf16"], 1e-9) for g in c["gradients"]]
        order = sorted(zip(ratios, c["gradients"]), key=lambda x: -x[0])
        table("Gradients of step 1 against PyTorch fp32", f"{len(ratios)} parameters; error of ours over error of PyTorch's bf16 autocast: median "
              f"{statistics.median(ratios):.2f}, largest {max(ratios):.2f}; lowest cosine {min(g['cosine'] for g in c['gradients']):.6f}. The ten largest:",
              ["parameter", "cosine", "ours", "torch bf16", "ratio"],
              [[g["name"], f"{g['cosine']:.6f}", f"{g['ours']:.2e}", f"{g['torch_bf16']:.2e}", f"{r:.2f}"] for r, g in order[:10]])
    rows = [[p["name"], f"{p['best_ms']:.4f}", f"{p['favourite_ms']:.4f}", p["pick"], f"{p['sustained_ms']:.4f}" if p.get("sustained_ms") else "",
             f"{p['sustained_ms_of_pick']:.4f}" if p.get("sustained_ms") else "", p.get("sustained_pick", p["pick"]), p["settings"]] for p in ready["products"]]
    table("Matrix products", "Interleaved: the fastest of the library's proposals and its first one, ms. Sustained: the chosen and the interleaved fastest, each alone under the power limit, ms.",
          ["product", "fastest", "first", "number", "chosen, sustained", "fastest, sustained", "chosen number", "settings"], rows)
    table("Attention engines, layer 0", "", ["direction", "engine", "knobs", "ms", "picked"],
          [[a["direction"], a["engine"], a["knobs"], f"{a['ms']:.4f}", "yes" if a["picked"] else ""] for a in ready["attention"]])
    lines += ["", "## Variants", ""] + [f"- `{v['variant'] or 'default'}`: {json.dumps({k: v[k] for k in v if k != 'variant'})}" for v in ready["variants"]]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ours", default="target/release/bench gpt2-step", help="command that starts our program")
    p.add_argument("--flags", default="", help="more flags of our program")
    p.add_argument("--variants", default="", help="variants of our step to compare, separated by ';'; the first is checked")
    p.add_argument("--also", action="append", default=[], help="'label: flags' of a further process of ours to time")
    p.add_argument("--scratch", default="/dev/shm/gpt2_step", help="folder for weights, batches and gradients")
    p.add_argument("--out", default=os.environ.get("OUT", "."))
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--vocabulary", type=int, default=50257)
    p.add_argument("--columns", type=int, default=50304, help="vocabulary with padding")
    p.add_argument("--batches", type=int, default=4)
    p.add_argument("--check", action="store_true")
    p.add_argument("--quick", action="store_true", help="one fp32 step instead of --steps")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--time", action="store_true")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--peers", default="fp32", help="residual streams of the timed peers: fp32, bf16 or fp32,bf16")
    p.add_argument("--block", type=int, default=30, help="steps of one turn")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--name", default="gpt2_step")
    a = p.parse_args()
    size, device = a, "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(a.scratch, exist_ok=True)

    weights = initial_weights(size)
    tokens, targets = batches_of(size)
    files = [os.path.join(a.scratch, f) for f in ("weights.safetensors", "batches.safetensors")]
    save_file(weights, files[0])
    save_file(dict(tokens=tokens.int(), targets=targets.int()), files[1])
    data = (tokens.to(device), targets.to(device))
    report = dict(command=" ".join(["bench/peers/gpt2_step.py", *map(shlex.quote, sys.argv[1:])]), arguments=vars(a), torch=torch.__version__, cudnn=torch.backends.cudnn.version())
    if device == "cuda":
        report["card"] = torch.cuda.get_device_name()

    def save():
        for ending, text in ((".json", json.dumps(report, indent=1)), (".md", markdown(report))):
            path = os.path.join(a.out, a.name + ending)
            with open(path + ".part", "w") as f:
                f.write(text)
                os.fsync(f.fileno())
            os.replace(path + ".part", path)

    started = time.time()
    variants = a.variants.split(";")
    ours = Ours(a.ours, a.flags + " " + " ".join("--variant=" + v for v in variants), size, *files)
    print(f"ours ready in {time.time() - started:.1f} s", flush=True)
    report["ready"] = ours.ready
    if a.check:
        check(a, size, ours, weights, data, device, report)
        save()
    if device == "cuda":
        torch.cuda.empty_cache()
    if a.profile:
        report["profile"] = ours.ask(do="profile", steps=5)
        print(report["profile"].pop("text"), flush=True)
        save()
    if a.time:
        contestants = {"ours " + v if v else "ours": lambda steps, i=i: ours.times(steps, i) for i, v in enumerate(variants)}
        others = []
        for label, flags in (x.split(":", 1) for x in a.also):
            others.append(Ours(a.ours, flags, size, *files))
            contestants["ours " + label] = others[-1].times
            report["ready " + label] = others[-1].ready
        measure(a, size, contestants, weights, data, device, report)
        save()
        if a.profile:
            report["profile_after"] = ours.ask(do="profile", steps=5)
            print(report["profile_after"].pop("text"), flush=True)
            save()
    ours.close()


if __name__ == "__main__":
    sys.exit(main())
