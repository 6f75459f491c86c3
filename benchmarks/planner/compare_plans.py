#!/usr/bin/env python3
"""Compares the plans of two builds of galvatron-plan.

    benchmarks/planner/compare_plans.py --base=OLD/galvatron-plan --bin=build/bin/galvatron-plan [--only=REGEX] [--json=FILE]

Every case is planned by both binaries; the plan of the first is priced again by the second (`--plan`), so that both times
are the same simulator's. Printed are both times in ms, by how many percent the second plan is slower (negative: faster),
both gaps in percent ("-": none), and the wall seconds of both tools. The exit code is 1 if a plan is more than
0.2% slower.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED_PERCENT = 0.2

GPT2 = "examples/gpt2-124m/config.json"
TINY = "examples/gpt2-tiny/config.json"
LARGE = "examples/gpt-70b/config.json"
SWIN = "benchmarks/models/swin-huge-32.json"
T5 = "benchmarks/models/t5-large-48.json"
CLUSTERS = "examples/clusters"


def cases():
    for devices in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 16):
        yield GPT2, f"{devices}xh100", 24, ["--dtype=bf16"]
    for batch in (4, 8, 64):
        yield GPT2, "8xh100", batch, ["--dtype=bf16"]
    for batch in (8, 24):
        yield GPT2, "2x8xh100", batch, ["--dtype=bf16"]
    for memory in ("2GiB", "4GiB", "8GiB", "16GiB"):
        yield GPT2, "8xrtx-titan", 64, [f"--memory={memory}"]
    yield GPT2, "8x8xv100-32gb", 512, []
    yield LARGE, "8x8xh100", 256, ["--dtype=bf16"]
    yield LARGE, "8x8xh100", 256, ["--dtype=bf16", "--schedule=any"]
    yield LARGE, "128x8xh100", 1024, ["--dtype=bf16"]
    yield TINY, "4xcpu", 8, []
    yield TINY, "64xcpu", 64, []
    for name in ("two-kinds.yaml", "mixed-nodes.yaml"):
        yield GPT2, f"{CLUSTERS}/{name}", 64, []
    for model in (SWIN, T5):
        yield model, "8xrtx-titan", 64, ["--memory=16GiB"]
    for schedule in ("interleaved", "zb-v", "zb-h1", "zb-h2", "any"):
        yield GPT2, "8xv100-32gb", 64, [f"--schedule={schedule}"]
        yield TINY, "4xcpu", 8, [f"--schedule={schedule}"]
    for schedule in ("interleaved", "zb-v"):
        yield GPT2, "8xrtx-titan", 64, ["--memory=4GiB", f"--schedule={schedule}"]
        yield LARGE, "8x8xh100", 256, ["--dtype=bf16", f"--schedule={schedule}"]
        yield SWIN, "8xrtx-titan", 64, ["--memory=16GiB", f"--schedule={schedule}"]
        yield GPT2, "8xh100", 24, ["--dtype=bf16", f"--schedule={schedule}", "--pipeline-degree=4"]
    for offload in ("any", "all", "layers"):
        yield GPT2, "8xrtx-titan", 64, ["--memory=2GiB", f"--offload={offload}"]


def wide_cases():
    """Yields more of them, of --wide: other clusters, batches and budgets."""
    for cluster in ("4xa100-40gb", "8xa100-40gb", "2x4xv100-32gb", "8xh100", "2x8xa100-40gb", "8xrtx-4090", "4xt4"):
        for batch in (16, 64):
            for memory in ("2GiB", "3GiB", "6GiB", "14GiB"):
                yield GPT2, cluster, batch, [f"--memory={memory}"]
    for cluster in ("8xrtx-titan", "8xa100-40gb", "2x8xv100-32gb"):
        for model in (SWIN, T5):
            for memory in ("8GiB", "12GiB", "15GiB"):
                yield model, cluster, 64, [f"--memory={memory}"]
    for cluster in ("8x8xa100-80gb", "4x8xh100", "16x8xh100"):
        yield LARGE, cluster, 128, ["--dtype=bf16"]
    for schedule in ("zb-h1", "gpipe", "2bw"):
        for cluster in ("8xa100-40gb", "2x4xv100-32gb"):
            yield GPT2, cluster, 32, ["--memory=4GiB", f"--schedule={schedule}", "--clip=off"]


def split_cases():
    """Yields those of --split: schedules that split backward passes."""
    mixed = f"{CLUSTERS}/mixed-nodes.yaml"
    for schedule in ("zb-h1", "zb-h2"):
        for cluster in ("8xa100-40gb", "2x4xv100-32gb", "8xh100", "2x8xh100", "8xrtx-titan", mixed):
            dtype = ["--dtype=bf16"] if "h100" in cluster else []
            for batch in (16, 64):
                for memory in ("3GiB", "8GiB"):
                    yield GPT2, cluster, batch, [f"--memory={memory}", f"--schedule={schedule}", *dtype]
        for cluster in ("8xrtx-titan", "8xa100-40gb"):
            for model in (SWIN, T5):
                for memory in ("10GiB", "16GiB"):
                    yield model, cluster, 64, [f"--memory={memory}", f"--schedule={schedule}"]
        for cluster in ("8x8xh100", "4x8xh100"):
            yield LARGE, cluster, 128, ["--dtype=bf16", f"--schedule={schedule}"]


def planned(binary, case, extra=()):
    model, cluster, batch, options = case
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.json"
        # A plan file says everything else itself.
        asked = [option for option in options if not extra or option.startswith(("--memory", "--dtype", "--clip"))]
        place = [f"--cluster={cluster}", f"--json={out}"] + ([] if extra else [f"--batch={batch}"])
        start = time.time()
        done = subprocess.run([binary, model, *place, *asked, *extra], cwd=ROOT, capture_output=True, text=True)
        seconds = time.time() - start
        if done.returncode:
            return done.stderr.strip().splitlines()[0] if done.stderr else "failed", seconds, ""
        text = out.read_text()
        return json.loads(text), seconds, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, type=pathlib.Path)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--wide", action="store_true", help="compare other cases: more clusters, batches and budgets")
    parser.add_argument("--split", action="store_true", help="compare schedules that split backward passes")
    options = parser.parse_args()
    base, new = options.base.resolve(), options.bin.resolve()
    rows, slower = [], 0
    for case in wide_cases() if options.wide else split_cases() if options.split else cases():
        name = " ".join([pathlib.Path(case[0]).parent.name if "config" in case[0] else pathlib.Path(case[0]).stem,
                         pathlib.Path(case[1]).name, str(case[2]), *case[3]])
        if not re.search(options.only, name):
            continue
        before, before_seconds, text = planned(base, case)
        after, after_seconds, _ = planned(new, case)
        if isinstance(before, str) or isinstance(after, str):
            print(f"{name:70} {before if isinstance(before, str) else ''} | {after if isinstance(after, str) else ''}")
            slower += isinstance(after, str) and not isinstance(before, str)
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            again, _, _ = planned(new, case, [f"--plan={file.name}"])
        old_ms = before["iteration-ms"] if isinstance(again, str) else again["iteration-ms"]
        new_ms = after["iteration-ms"]
        percent = 100 * (new_ms / old_ms - 1)
        slower += percent > ALLOWED_PERCENT
        gaps = ["-" if plan.get("gap-percent") is None else f"{plan['gap-percent']:.2f}" for plan in (before, after)]
        rows.append({"case": name, "before-ms": old_ms, "after-ms": new_ms, "slower-percent": percent,
                     "gap-before": before.get("gap-percent"), "gap-after": after.get("gap-percent"),
                     "seconds-before": before_seconds, "seconds-after": after_seconds})
        print(f"{name:70} {old_ms:10.3f} {new_ms:10.3f} {percent:+7.2f}%  gap {gaps[0]:>6} {gaps[1]:>6}"
              f"  {before_seconds:5.2f} s {after_seconds:5.2f} s" + ("  SLOWER" if percent > ALLOWED_PERCENT else ""),
              flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} cases, {slower} slower by more than {ALLOWED_PERCENT}%")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
