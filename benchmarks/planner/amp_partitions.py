#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer assignments of AMP's experiments, solved by AMP's table and by ours.

    amp_partitions.py --bin=build/bin [--oracles=FOLDER] [--sample=N]

Every candidate with stages to fill is an instance: its published layer times
and the boundaries that the public code charges. Prints a line an experiment:
instances, those where the table's answer costs more, by how much at most, and
seconds of both. The table is plain Python, as the published one is, and ours is
what galvatron-solve says of its search; starting the tool is not in it. Fails
if ours ever costs more. --sample=N takes every N-th instance.
"""

import argparse
import json
import subprocess
import sys
import time

import amp_published as amp

#: The solver counts whole picoseconds, and these are sums of 30 layers.
ROUNDING = 1e-9


def solve(tool, times, cuts, stages, micro_batches):
    problem = {"problem": "pipeline-partition", "stages": stages,
               "micro-batches": micro_batches,
               "layer-ms": [1e3 * t for t in times],
               "cut-ms": [[1e3 * c for c in row] for row in cuts]}
    done = subprocess.run([tool], input=json.dumps(problem), text=True,
                          capture_output=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", required=True)
    amp.add_oracles(parser)
    parser.add_argument("--sample", type=int, default=1)
    arguments = parser.parse_args()
    published = amp.published_times(arguments.oracles)
    above = 0
    print("experiment      instances  table worse  by at most  table s  "
          "ours s  times faster")
    for experiment in amp.EXPERIMENTS:
        instances = worse = 0
        ratio, table_seconds, own_seconds = 1.0, 0.0, 0.0
        candidates = [c for c in experiment.candidates()
                      if c[2] > 1 and experiment.batch // c[1] // c[3] > 1]
        for tp, dp, pp, size in candidates[::arguments.sample]:
            micro_batches = experiment.batch // dp // size
            times = amp.layer_times(experiment, published, tp, size)
            cuts = amp.cut_times(experiment, tp, dp, pp, size)
            begin = time.perf_counter()
            sizes = amp.table_partition(times, cuts, pp, micro_batches)
            table_seconds += time.perf_counter() - begin
            theirs = amp.pipeline_cost(times, cuts, sizes, micro_batches)
            answer = solve(f"{arguments.bin}/galvatron-solve", times, cuts, pp,
                           micro_batches)
            own_seconds += answer["search-ms"] / 1e3
            ours = amp.pipeline_cost(times, cuts, answer["layers-per-stage"],
                                     micro_batches)
            instances += 1
            worse += theirs > ours * (1 + ROUNDING)
            ratio = max(ratio, theirs / ours)
            above += ours > theirs * (1 + ROUNDING)
        print(f"{experiment.name:15} {instances:9}  {worse:11}  "
              f"{100 * (ratio - 1):9.2f}%  {table_seconds:7.2f}  "
              f"{own_seconds:.4f}  {table_seconds / own_seconds:12.0f}")
    if above:
        sys.exit(f"{above} assignments cost more than the table's")


if __name__ == "__main__":
    main()
