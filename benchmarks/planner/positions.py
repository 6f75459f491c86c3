#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that cut positions against plans that do not, by length and link.

    benchmarks/planner/positions.py [--bin=DIR] [--batch=N] [--model=CONFIG]
                                    [--lengths=N,..] [--all]

Eight H100 with one of three links between them, and LLaMA-3-8B in bf16 with one
batch of N samples (default: 1). Each row is a length and a link: the time of the
best plan without strategies that cut positions, how much faster the best plans
are with tensor and sequence parallelism (tsp) and with context parallelism as
well, and the strategy that most layers of the latter have. With --all a line
for every batch up to 32 says instead whether the planner cuts positions unasked
and what that loses or gains. Predicted, all of it; nothing depends on the
machine.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

from kept import LLAMA

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINKS = ("340GB/s", "50GB/s", "5GB/s")
WITHOUT = "dp,zdp,sdp,tp"
TSP = WITHOUT + ",tsp"
CONTEXT = TSP + ",cp,scp,zcp,up,sup,ring,sring"
DECISION = "positions are cut as well"


class Planner:
    def __init__(self, binaries, folder, config):
        self.tool = binaries / "galvatron-plan"
        self.folder = folder
        self.config = config
        node = subprocess.run([self.tool, "--print-cluster=8xh100"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        for number, link in enumerate(LINKS):
            cluster = node.replace("bandwidth: 340GB/s", f"bandwidth: {link}")
            assert link in cluster, "8xh100 has another link"
            (folder / f"{number}.yaml").write_text(cluster)

    def plan(self, length, link, batch, paradigms=None):
        """Milliseconds of a step, the most frequent strategy, whether positions
        were cut unasked; nothing if no plan fits."""
        cluster = self.folder / f"{LINKS.index(link)}.yaml"
        out = self.folder / "plan.json"
        command = [self.tool, self.config, f"--cluster={cluster}",
                   "--dtype=bf16", f"--seq-len={length}", f"--batch={batch}",
                   f"--json={out}", "--decisions"]
        if paradigms:
            command.append(f"--paradigms={paradigms}")
        out.unlink(missing_ok=True)
        done = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0 or not out.exists():
            return None
        plan = json.loads(out.read_text())
        layers = collections.Counter(
            layer["strategy"] for layer in plan["layers"])
        return (plan["iteration-ms"], layers.most_common(1)[0][0],
                DECISION in done.stdout)


def percent(before, after):
    """By how much the second time is the lesser one."""
    return "" if not (before and after) else f"{100 * (before[0] / after[0] - 1):.1f}%"


def milliseconds(plan):
    return f"{plan[0]:,.0f} ms" if plan else "does not fit"


def table(planner, lengths, batch):
    print("| tokens | link | without | `tsp` | context parallelism | most layers |")
    print("|---:|---:|---:|---:|---:|---|")
    for length in lengths:
        for link in LINKS:
            without = planner.plan(length, link, batch, WITHOUT)
            tsp = planner.plan(length, link, batch, TSP)
            best = planner.plan(length, link, batch, CONTEXT)
            fastest = min((plan for plan in (without, tsp, best) if plan),
                          default=None)
            print(f"| {length:,} | {link.replace('GB/s', ' GB/s')} "
                  f"| {milliseconds(without)} | {percent(without, tsp)} "
                  f"| {percent(without, best)} "
                  f"| {f'`{fastest[1]}`' if fastest else ''} |", flush=True)


def every(planner, lengths):
    print("| tokens | link | samples | without | unasked | cut unasked | all |")
    print("|---:|---:|---:|---:|---:|---|---:|")
    for length in lengths:
        for link in LINKS:
            for batch in (1, 2, 4, 8, 32):
                without = planner.plan(length, link, batch, WITHOUT)
                unasked = planner.plan(length, link, batch)
                best = planner.plan(length, link, batch, CONTEXT)
                print(f"| {length:,} | {link.replace('GB/s', ' GB/s')} "
                      f"| {batch} | {milliseconds(without)} "
                      f"| {percent(without, unasked)} "
                      f"| {'yes' if unasked and unasked[2] else 'no'} "
                      f"| {percent(without, best)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--lengths", default="4096,8192,16384,32768,131072")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    lengths = [int(length) for length in arguments.lengths.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = arguments.model
        if not config:
            config = folder / "config.json"
            config.write_text(json.dumps(LLAMA))
        planner = Planner(arguments.bin.resolve(), folder, config)
        if arguments.all:
            every(planner, lengths)
        else:
            table(planner, lengths, arguments.batch)


if __name__ == "__main__":
    main()
