#!/usr/bin/env python3
"""Our diagnosis and HolisticTraceAnalysis on the same recording, each in a process of its own.

usage: hta.py BINARY TRACE.json [RUNS]
BINARY is target/release/examples/diagnose (crate report). HTA is the PyPI package HolisticTraceAnalysis of the Python that
runs this script: load, temporal breakdown, idle times, overlap, kernel breakdown, queue lengths; no critical path.
Prints one JSON line a run: wall and processor seconds, peak memory. RUNS (3) is how often ours runs; HTA runs once.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
ranks = list(analysis.t.get_all_traces().keys())
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=ranks, visualize=False, show_idle_interval_stats=True)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=5)
analysis.get_queue_length_summary(ranks=ranks)
"""


def measured(name, command):
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read().decode("utf-8", "replace")
    _, status, usage = os.wait4(process.pid, 0)
    print(
        json.dumps(
            {
                "tool": name,
                "wall_s": round(time.perf_counter() - began, 3),
                "processor_s": round(usage.ru_utime + usage.ru_stime, 3),
                "peak_mib": round(usage.ru_maxrss / 1024, 1),
                "exit": os.waitstatus_to_exitcode(status),
                "load": os.getloadavg()[0],
                "last_line": (errors.strip().splitlines() or [""])[-1][:200],
            }
        ),
        flush=True,
    )


def main():
    binary, trace = sys.argv[1], Path(sys.argv[2]).resolve()
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    print(json.dumps({"trace": trace.name, "bytes": trace.stat().st_size, "cores": os.cpu_count()}), flush=True)
    for _ in range(runs):
        measured("counterpoint", [binary, str(trace)])
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(trace, Path(folder) / "rank0.json")
        measured("HolisticTraceAnalysis", [sys.executable, "-c", HTA, folder])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
