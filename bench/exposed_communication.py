"""Exposed communication of recipes/tiny-gpt.toml with a modelled link, overlapped and with one bucket at the end, alternately.

Usage: python3 bench/exposed_communication.py [--rounds 3] [--steps 100] [--rate 2e8]
Needs target/release/counterpoint (cargo build --release), or its path in COUNTERPOINT. Prints milliseconds of exposed communication per step (mean over
ranks) per round, medians and their ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("COUNTERPOINT", str(ROOT / "target/release/counterpoint"))


def exposed(overlap, steps, rate):
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "train", str(ROOT / "recipes/tiny-gpt.toml"), "--out", folder, "--json"]
        sets = [f"train.steps={steps}", "validation.every=0", "validation.batches=1", "output.sample_tokens=0"]
        sets += [f"parallel.overlap={overlap}", f"parallel.link.bytes_per_second={rate}", "parallel.link.latency_us=50"]
        for one in sets:
            command += ["--set", one]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ranks = json.loads(result.stdout)["ranks"]
    parts = [rank["parts"]["exposed_communication_ns"] / rank["steps"] / 1e6 for rank in ranks]
    return sum(parts) / len(parts)


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--rate", type=float, default=2e8)
args = parser.parse_args()
found = {"true": [], "false": []}
for round_ in range(args.rounds):
    for overlap, values in found.items():
        values.append(exposed(overlap, args.steps, args.rate))
    print(f"round {round_ + 1}: overlapped {found['true'][-1]:.2f}, one bucket at the end {found['false'][-1]:.2f} ms per step", flush=True)
medians = {overlap: statistics.median(values) for overlap, values in found.items()}
print(f"median: overlapped {medians['true']:.2f}, at the end {medians['false']:.2f} ms per step, ratio {medians['true'] / medians['false']:.2f}")
