"""Speed of recipes/tiny-gpt.toml against PyTorch on the CPU, run alternately on the same two threads.

Usage: python bench/peers/tiny_gpt.py [--rounds 3] [--steps 150]
Needs target/release/counterpoint (cargo build --release), or its path in COUNTERPOINT. Prints tokens/s per round, medians and their ratio.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 3, 96, 3, 64, 32, 256
PROGRAM = os.environ.get("COUNTERPOINT", ROOT / "target/release/counterpoint")
SKIP = 20  # steps before the clock starts


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)

    def forward(self, x):
        h = self.wte(x) + self.wpe.weight
        for block in self.h:
            h = block(h)
        return self.ln_f(h) @ self.wte.weight.T


def torch_rate(steps):
    """Tokens/s of eager PyTorch with fused AdamW and clipping, 2 threads."""
    torch.manual_seed(1)
    torch.set_num_threads(2)
    text = torch.from_numpy(np.frombuffer((ROOT / "data/shakespeare.txt").read_bytes(), np.uint8).astype(np.int64))
    model = Model()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99), fused=True)
    samples = (len(text) - 1) // CONTEXT
    for step in range(steps):
        if step == SKIP:
            begin = time.perf_counter()
        index = torch.randint(0, samples, (BATCH,)) * CONTEXT
        x = torch.stack([text[i : i + CONTEXT] for i in index])
        y = torch.stack([text[i + 1 : i + CONTEXT + 1] for i in index])
        loss = F.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert math.isfinite(loss.item())
    return (steps - SKIP) * BATCH * CONTEXT / (time.perf_counter() - begin)


def own_rate(steps):
    """Tokens/s of the recipe on two in-process ranks, from the run's metrics."""
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "train", ROOT / "recipes/tiny-gpt.toml", "--out", folder]
        sets = [f"train.steps={steps}", "validation.every=0", "validation.batches=1", "output.sample_tokens=0"]
        for one in sets:
            command += ["--set", one]
        environment = os.environ | {"RAYON_NUM_THREADS": "2"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        events = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    timed = [event for event in events if event["event"] == "step"][SKIP:]
    return sum(event["tokens"] for event in timed) / sum(event["seconds"] for event in timed)


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()
rates = {"torch": [], "counterpoint": []}
for round_ in range(args.rounds):
    rates["torch"].append(torch_rate(args.steps))
    rates["counterpoint"].append(own_rate(args.steps))
    print(f"round {round_ + 1}: torch {rates['torch'][-1]:,.0f}, counterpoint {rates['counterpoint'][-1]:,.0f} tokens/s", flush=True)
medians = {name: statistics.median(values) for name, values in rates.items()}
ratio = medians["counterpoint"] / medians["torch"]
print(f"median: torch {torch.__version__} {medians['torch']:,.0f}, counterpoint {medians['counterpoint']:,.0f} tokens/s, ratio {ratio:.2f}")
