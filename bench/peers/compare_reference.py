#!/usr/bin/env python3
"""Holds the recordings' totals against an independent reference, to the nanosecond.

usage: compare_reference.py BINARY REFERENCE_FOLDER SAMPLES_FOLDER
BINARY is target/release/examples/diagnose (crate report); REFERENCE_FOLDER holds reference.py and nsys_reference.py, whose
interval arithmetic is imported; SAMPLES_FOLDER holds kineto/*.json.gz and nsys/*.sqlite.
Exit 1 where a total differs, or where a file without device operations does not abstain by name.
"""

import contextlib
import gzip
import importlib.util
import io
import json
import sqlite3
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path


def module(path):
    """The reference's functions; its own loop over arguments finds none."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()):
        arguments, sys.argv = sys.argv, [str(path)]
        spec.loader.exec_module(loaded)
        sys.argv = arguments
    return loaded


def totals(reference, compute, communication, copies):
    union = reference.union
    total = lambda parts: sum(end - start for start, end in parts)
    everything = union(compute + communication + copies)
    computed, communicated, copied = union(compute), union(communication), union(copies)
    exposed = reference.sub(communicated, computed)
    copies_exposed = reference.sub(reference.sub(copied, computed), communicated)
    busy = total(everything)
    return {
        "busy_ns": busy,
        "idle_ns": everything[-1][1] - everything[0][0] - busy,
        "compute_ns": total(computed),
        "comm_ns": total(communicated),
        "comm_exposed_ns": total(exposed),
        "copy_ns": total(copied),
        "copy_exposed_ns": total(copies_exposed),
    }


def kineto(reference, path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        document = json.loads(file.read().decode("utf-8", "replace"), parse_float=Decimal, strict=False)
    events = document if isinstance(document, list) else document["traceEvents"]
    kinds = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
    devices = defaultdict(lambda: ([], [], []))
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in kinds:
            continue
        start = Decimal(event["ts"]) * 1000
        interval = (start, start + Decimal(event["dur"]) * 1000)
        device = (event.get("args") or {}).get("device", event.get("pid"))
        place = 1 if "nccl" in event["name"].lower() else 2 if "mem" in event["cat"].lower() else 0
        devices[int(device)][place].append(interval)
    return {device: totals(reference, *lists) for device, lists in devices.items()}


def nsys(reference, path):
    database = sqlite3.connect(path)
    texts = dict(database.execute("select id, value from StringIds"))
    tables = {name for (name,) in database.execute("select name from sqlite_master")}
    devices = defaultdict(lambda: ([], [], []))
    columns = "select start, end, deviceId"
    for start, end, device, name in database.execute(f"{columns}, shortName from CUPTI_ACTIVITY_KIND_KERNEL"):
        devices[device][1 if "nccl" in texts.get(name, "").lower() else 0].append((start, end))
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        if table in tables:
            for start, end, device in database.execute(f"{columns} from {table}"):
                devices[device][2].append((start, end))
    return {device: totals(reference, *lists) for device, lists in devices.items()}


def main():
    binary, folder, samples = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    wrong = 0
    for name, pattern, expected_of, reference in (
        ("kineto", "*.json.gz", kineto, module(folder / "reference.py")),
        ("nsys", "*.sqlite", nsys, module(folder / "nsys_reference.py")),
    ):
        for path in sorted((samples / name).glob(pattern)):
            run = subprocess.run([binary, "--json", str(path)], capture_output=True, text=True, check=True)
            document = json.loads(run.stdout)
            expected = expected_of(reference, path)
            if not expected:
                named = [s for s in document["skipped"] if s["file"].endswith(path.name)]
                ok = not document["devices"] and document["abstained"] and named
                reason = named[0]["reason"] if named else "not named"
                print(f"{'abstains' if ok else 'WRONG   '} {path.name}: {reason}")
                wrong += not ok
                continue
            found = {d["device"]: d["recording"] for d in document["devices"]}
            for device, totals_of in sorted(expected.items()):
                own = found.get(device, {})
                different = {
                    key: (int(value.to_integral_value()) if isinstance(value, Decimal) else value, own.get(key))
                    for key, value in totals_of.items()
                    if own.get(key) is None or abs(own[key] - value) >= 1
                }
                print(f"{'WRONG   ' if different else 'equal   '} {path.name} device {device} {different or ''}")
                wrong += bool(different)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
