#!/usr/bin/env python3
"""Prints the gap of the answer and the time of the search, for plans of all kinds.

    benchmarks/planner/gaps.py --bin=build/bin/galvatron-plan [--only=REGEX] [--runs=N]

A row has the step's time in ms, the gap in percent (of the question that was asked: "-" where there is none), the wall
seconds from the start of the tool to its end, those of its processor time, and the most memory that it had, in MiB; of
several runs the median times. Aims stand beside: a gap of 2% on equal devices, 5% on devices of several types, with
chunks and with homes on the host, and the seconds that docs/search.md names.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

GPT2 = "examples/gpt2-124m/config.json"
LARGE = "examples/gpt-70b/config.json"
SWIN = "benchmarks/models/swin-huge-32.json"
SWIN48 = "benchmarks/models/swin-huge-48.json"
T5 = "benchmarks/models/t5-large-48.json"
CLUSTERS = "examples/clusters"
BF16 = "--dtype=bf16"


def cases():
    """Yields a name, a model, a cluster, options, and the aims of gap and seconds; 0: none."""
    for batch, name in ((32768, "70B"), (4096, "70B, batch 4,096")):
        yield f"{name}, 16,384 H100", LARGE, "2048x8xh100", [f"--batch={batch}", BF16], 2, 10
    yield "70B, 65,536 H100", LARGE, "8192x8xh100", ["--batch=65536", BF16], 0, 0
    yield "70B, 1,024 H100", LARGE, "128x8xh100", ["--batch=1024", BF16], 2, 1
    yield "70B, 64 H100", LARGE, "8x8xh100", ["--batch=256", BF16], 2, 0.06
    yield "70B, 64 H100, any schedule", LARGE, "8x8xh100", ["--batch=256", BF16, "--schedule=any"], 2, 1
    yield "Swin-Huge-32, 8 RTX Titan, 16 GiB", SWIN, "8xrtx-titan", ["--batch=64", "--memory=16GiB"], 2, 0
    yield "GPT-2, 8 RTX Titan, 8 GiB", GPT2, "8xrtx-titan", ["--batch=64", "--memory=8GiB"], 2, 0.004
    yield "GPT-2, 64 V100", GPT2, "8x8xv100-32gb", ["--batch=512"], 2, 0.06
    yield "GPT-2, two types of devices", GPT2, f"{CLUSTERS}/two-kinds.yaml", ["--batch=64"], 5, 0.15
    yield "GPT-2, mixed nodes", GPT2, f"{CLUSTERS}/mixed-nodes.yaml", ["--batch=64"], 5, 0.15
    yield "T5-48, 8 RTX Titan, 16 GiB", T5, "8xrtx-titan", ["--batch=64", "--memory=16GiB"], 2, 0.1
    yield "Swin-48, 8 RTX Titan, 16 GiB", SWIN48, "8xrtx-titan", ["--batch=64", "--memory=16GiB"], 2, 0.1
    for schedule in ("interleaved", "zb-v"):
        chunks = [f"--schedule={schedule}"]
        yield f"GPT-2, 8 V100, {schedule}", GPT2, "8xv100-32gb", ["--batch=64", *chunks], 5, 0
        yield f"70B, 64 H100, {schedule}", LARGE, "8x8xh100", ["--batch=256", BF16, *chunks], 5, 0
        yield f"GPT-2, 8 RTX Titan, 4 GiB, {schedule}", GPT2, "8xrtx-titan", ["--batch=64", "--memory=4GiB", *chunks], 5, 0
        yield f"Swin-Huge-32, 16 GiB, {schedule}", SWIN, "8xrtx-titan", ["--batch=64", "--memory=16GiB", *chunks], 5, 0
    for home in ("any", "all", "layers"):
        yield (f"GPT-2, 8 RTX Titan, 2 GiB, homes '{home}'", GPT2, "8xrtx-titan",
               ["--batch=64", "--memory=2GiB", f"--offload={home}"], 5, 0)
    for devices in (4, 5, 6, 7, 8, 12, 13):
        yield f"GPT-2, {devices} H100, batch 24", GPT2, f"{devices}xh100", ["--batch=24", BF16], 2, 0
    for devices in (5, 7, 13):
        yield (f"the same, {devices} H100 of which some may be idle", GPT2, f"{devices}xh100",
               ["--batch=24", BF16, "--devices=any"], 2, 0)


def run(binary, case):
    """Plans a case; the plan or the reason why there is none, and what it took."""
    _, model, cluster, options, *_ = case
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.json"
        start = time.time()
        child = subprocess.Popen([binary, model, f"--cluster={cluster}", *options, f"--json={out}"], cwd=ROOT,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        error = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.time() - start
        figures = (seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
        if status:
            return (error.strip().splitlines() or ["failed"])[0], figures
        return json.loads(out.read_text()), figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=lambda name: str(pathlib.Path(name).resolve()))
    parser.add_argument("--only", default="", help="cases whose names have this regular expression")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    print("| | step, ms | gap | aim | s | of the processor | aim | MiB |\n|---|---|---|---|---|---|---|---|")
    for case in cases():
        if not re.search(options.only, case[0]):
            continue
        runs = [run(options.bin, case) for _ in range(options.runs)]
        plan = runs[0][0]
        wall, processor, memory = (statistics.median(figures[i] for _, figures in runs) for i in range(3))
        aims = [f"{aim}{unit}" if aim else "" for aim, unit in zip(case[4:], ("%", ""))]
        if isinstance(plan, str):
            print(f"| {case[0]} | {plan} | | | {wall:.2f} | {processor:.2f} | | {memory:.0f} |", flush=True)
            continue
        gap = plan.get("gap-percent")
        print(f"| {case[0]} | {plan['iteration-ms']:,.2f} | {'-' if gap is None else f'{gap:.1f}%'} | {aims[0]} | "
              f"{wall:.2f} | {processor:.2f} | {aims[1]} | {memory:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
