#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMP's three experiments from its published layer times: the first plans in
order, by the paper's estimate and by ours.

    amp.py --bin=build/bin [--oracles=FOLDER] [--first=10] [--only=NAME]
           [--placement=NAME] [--check] [-o FOLDER]

Writes each experiment as a layer profile (with the published times of every
device type and tensor degree) and a cluster file, plans it with --space=amp and
--space=megatron-heuristic, and sets the candidates beside those of the public
estimate (amp_published.py). Devices get as much memory as anything takes, since
AMP has no memory model and its layers come without sizes of activations; updates
take no time, as there. Half a minute an experiment goes into the published table;
--check leaves it out and compares our first three with docs/amp.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import amp_published as amp

#: What device types are called in AMP's files, and here.
TYPES = {"G4": "t4", "P3": "v100"}
VALUE = 4  # bytes
#: (tp, dp, pp, size) that AMP measured to be the fastest, where it says so.
BEST_MEASURED = {"homogeneous": (1, 4, 4, 1), "mixed cluster": (1, 2, 8, 1)}
#: What --check expects of our estimate: the first three.
FIRST = {"homogeneous": [(1, 8, 2, 1), (1, 4, 4, 1), (1, 16, 1, 2)],
         "mixed cluster": [(1, 1, 16, 1), (1, 4, 4, 1), (1, 2, 8, 1)],
         "uneven model": [(1, 4, 4, 1), (1, 4, 4, 2), (1, 2, 8, 1)]}


def profile(experiment, times):
    layers = []
    values = amp.TOKENS  # of the first layer's input
    for index, (at, out, parameters, _, _) in enumerate(experiment.layers):
        measured = []
        for kind, _ in experiment.mix:
            for tp in (1, 2, 4):
                forward = 1e3 * times[experiment.key, kind, tp][at]
                measured.append({"device-type": TYPES[kind], "tp": tp,
                                 "forward-ms": forward,
                                 "backward-ms": 2 * forward})
        layers.append({"name": f"layer{index}", "times": measured,
                       "parameter-bytes": VALUE * parameters,
                       "boundary-bytes": VALUE * values,
                       "intermediate-bytes": 0})
        values = out
    return {"version": 1, "dtype": "f32", "layers": layers}


def cluster(experiment):
    """Nodes of four, of the type that the estimate averages in their place."""
    kinds = [kind for kind, share in experiment.mix
             for _ in range(round(4 * share))]
    types = [{"name": TYPES[kind], "backend": "cuda", "memory": "8TiB",
              # Times are measured; FLOP/s and bandwidth decide nothing.
              "flops": {"f32": "10TFLOPS"}, "memory-bandwidth": "500GB/s",
              "overlap-slowdown": 2, "optimizer-bandwidth": "0B/s"}
             for kind, _ in experiment.mix]
    rate = lambda bits: f"{bits / 8e9}GB/s"
    nodes = [{"count": 1, "device-type": TYPES[kind], "devices": 4,
              "link": {"bandwidth": rate(inside), "latency": "0us"},
              "network": {"bandwidth": rate(outside), "latency": "0us"}}
             for kind, (outside, inside) in zip(kinds, experiment.rates)]
    return {"name": experiment.name.replace(" ", "-"), "device-types": types,
            "nodes": nodes}


def planned(arguments, folder, experiment, space, *options):
    name = os.path.join(folder, experiment.name.replace(" ", "-"))
    done = subprocess.run(
        [f"{arguments.bin}/galvatron-plan", name + ".json",
         f"--cluster={name}.yaml", f"--batch={experiment.batch}",
         f"--space={space}", "--json=-", *options],
        capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def shape(candidate):
    return tuple(candidate[key] for key in (
        "tensor-degree", "data-degree", "pipeline-degree", "micro-batch-size"))


def text(candidate):
    tp, dp, pp, size = candidate
    return f"pp{pp} dp{dp} tp{tp} size {size}"


def show(experiment, theirs, plan, baseline, first):
    ours = [c for c in plan["candidates"] if not c["recompute"]]
    print(f"\n{experiment.name}: {experiment.figures}")
    print("| place | AMP's estimate | s | layers | ours | estimate, s | "
          "simulated, s | layers |\n|---|---|---|---|---|---|---|---|")
    for place in range(first):
        seconds, sizes, candidate = theirs[place]
        own = ours[place]
        simulated = own.get("simulated-ms")
        print(f"| {place + 1} | {text(candidate)} | {seconds:.3f} | "
              f"{' '.join(map(str, sizes))} | {text(shape(own))} | "
              f"{own['estimate-ms'] / 1e3:.3f} | "
              f"{f'{simulated / 1e3:.3f}' if simulated else '-'} | "
              f"{' '.join(map(str, own['layers-per-stage']))} |")
    print(f"planned: pp{plan['pipeline-degree']} with "
          f"{plan['micro-batches']} micro-batches, "
          f"{plan['iteration-ms'] / 1e3:.3f} s simulated; "
          f"{len(theirs)} candidates; megatron-heuristic "
          f"{baseline['iteration-ms'] / 1e3:.3f} s simulated "
          f"({baseline['iteration-ms'] / plan['iteration-ms']:.2f}x)")
    for what in filter(None, [BEST_MEASURED.get(experiment.name),
                              (1, 16, 1, 1)]):
        print(f"{text(what)}: place "
              f"{[c for _, _, c in theirs].index(what) + 1} of the public "
              f"estimate, {[shape(c) for c in ours].index(what) + 1} of ours")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", required=True)
    amp.add_oracles(parser)
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--only")
    parser.add_argument("--placement", default="heuristic")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("-o", dest="folder")
    arguments = parser.parse_args()
    times = amp.published_times(arguments.oracles)
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        os.makedirs(folder, exist_ok=True)
        for experiment in amp.EXPERIMENTS:
            if arguments.only and experiment.name != arguments.only:
                continue
            name = os.path.join(folder, experiment.name.replace(" ", "-"))
            for suffix, content in (("json", profile(experiment, times)),
                                    ("yaml", cluster(experiment))):
                with open(f"{name}.{suffix}", "w") as file:
                    json.dump(content, file, indent=1)
            plan = planned(arguments, folder, experiment, "amp",
                           f"--placement={arguments.placement}")
            if arguments.check:
                found = [shape(c) for c in plan["candidates"]
                         if not c["recompute"]][:3]
                if found != FIRST[experiment.name]:
                    failures.append(f"{experiment.name}: expected "
                                    f"{FIRST[experiment.name]}, found {found}")
                continue
            baseline = planned(arguments, folder, experiment,
                               "megatron-heuristic")
            theirs = amp.estimates(experiment, times)
            show(experiment, theirs, plan, baseline, arguments.first)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
