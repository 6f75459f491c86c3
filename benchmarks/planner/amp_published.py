# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The three experiments of AMP (NeurIPS 2022), as its public code prices them.

Layer times are the published ones (seconds of a forward pass of one sample on
one device type, for tensor parallelism of 1, 2 and 4; three times that for
both passes). The rest restates the public estimate: device types are averaged,
a boundary is paid once, gradients are summed over the link that closes the
ring, and the layer assignment is a table over (layers, stages, tolerance) that
compares cuts with their cost and stores them without it.
"""

import itertools
import json
import os
import sys

WIDTH, TOKENS, VOCABULARY = 1024, 1024, 52256
#: Bits of a value: rates are given in bits.
BITS = 32


class Experiment:
    """A model on 4 nodes of 4 devices."""

    def __init__(self, name, key, batch, rates, mix, layers, figures):
        self.name = name
        self.key = key          # of the published times
        self.batch = batch
        self.rates = rates      # bits/s of each node: to others, inside
        self.mix = mix          # (device type, share) that the code averages
        #: Of each layer: index into the published times, values that it passes
        #: on per sample, parameters, whether tensor parallelism splits the
        #: values, and whether the parameters are the embedding, which a stage
        #: has once.
        self.layers = layers
        self.figures = figures  # of the paper

    def candidates(self):
        """(tp, dp, pp, micro-batch size), all of Algorithm 1."""
        for tp in (1, 2, 4):
            for dp in divisors(16 // tp):
                for size in divisors(self.batch // dp):
                    yield tp, dp, 16 // (tp * dp), size


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def gpt2():
    values = TOKENS * WIDTH
    block = 12 * WIDTH**2
    embedding = VOCABULARY * WIDTH
    # Layers without parameters pass on what they get.
    kinds = [(values, embedding, False, True), (values, 0, False, False)]
    kinds += [(values, block, False, False)] * 24
    kinds += [(values, 0, False, False)] * 2
    kinds += [(TOKENS * VOCABULARY, embedding, True, True),
              (TOKENS * VOCABULARY, 0, True, False)]
    return [(i, *kind) for i, kind in enumerate(kinds)]


def transgan():
    # The first layer, 12 wide blocks and 12 narrow ones; what is between them
    # the public code leaves out. All boundaries count as the first one's.
    values = WIDTH * 9**2
    return ([(0, values, 0, False, False)] +
            [(3 + i, values, 12 * WIDTH**2, False, False) for i in range(12)] +
            [(41 + i, values, 12 * 16**2, False, False) for i in range(12)])


G = 1e9
EXPERIMENTS = [
    Experiment("homogeneous", "gpt2", 32, [(50 * G, 50 * G)] * 4,
               [("G4", 1.0)], gpt2(),
               "best measured dp4 pp4 size 1, third by AMP's estimate; "
               "1.32 s Megatron's heuristic, 1.20 s AMP"),
    Experiment("mixed cluster", "gpt2", 32,
               [(10 * G, 170 * G)] * 3 + [(50 * G, 50 * G)],
               [("P3", 0.75), ("G4", 0.25)], gpt2(),
               "best measured dp2 pp8 size 1, second by AMP's estimate; dp16 "
               "is 21st; 1.97 s Megatron's heuristic, 1.28 s AMP"),
    Experiment("uneven model", "transgan", 64, [(10 * G, 170 * G)] * 4,
               [("P3", 1.0)], transgan(),
               "the best measured is first by AMP's estimate; 1.89 s "
               "Megatron's heuristic, 1.07 s AMP"),
]


#: What a test exits with where the published times are not at hand.
SKIPPED = 77


def add_oracles(parser):
    parser.add_argument("--oracles", metavar="FOLDER",
                        default=os.environ.get("GALVATRON_ORACLES"),
                        help="folder with amp/known_cost.json; from "
                        "GALVATRON_ORACLES if not given")


def published_times(oracles):
    """By (model, device type, tp): seconds of a sample's forward pass."""
    if not oracles:
        print("skipped: neither --oracles nor GALVATRON_ORACLES is given")
        sys.exit(SKIPPED)
    with open(os.path.join(oracles, "amp", "known_cost.json")) as file:
        known = json.load(file)
    times = {}
    for name, entry in known.items():
        model, kind, tp = name.split("_")
        times[model, kind, int(tp)] = entry["values"]
    return times


def rate_between(experiment, a, b):
    """Values per second between devices."""
    node, other = a // 4, b // 4
    if node == other:
        return experiment.rates[node][1] / BITS
    return min(experiment.rates[node][0], experiment.rates[other][0]) / BITS


def layer_times(experiment, times, tp, size):
    """Of a micro-batch, both passes, averaged over the device types."""
    return [3 * size * sum(share * times[experiment.key, kind, tp][layer[0]]
                           for kind, share in experiment.mix)
            for layer in experiment.layers]


def cut_times(experiment, tp, dp, pp, size):
    """By layer and cut: the slowest pair of a replica, averaged over them."""
    def inverse(cut):
        return sum(
            1 / min(rate_between(experiment, (cut * dp + i) * tp + k,
                                 ((cut + 1) * dp + i) * tp + k)
                    for k in range(tp))
            for i in range(dp)) / dp
    rates = [inverse(cut) for cut in range(pp - 1)]
    return [[size * layer[1] / (tp if layer[3] else 1) * rate
             for rate in rates] for layer in experiment.layers[:-1]]


def even_partition(layers, stages):
    return [layers // stages + (s < layers % stages) for s in range(stages)]


def table_partition(times, cuts, stages, micro_batches):
    """The public code's assignment; None where it finds none."""
    sums = [0, *itertools.accumulate(times)]
    count = len(times)
    spans = {(a, b): sums[b] - sums[a]
             for a in range(count) for b in range(a + 1, count + 1)}
    tolerances = sorted({0, *spans.values()})
    index = {span: i for i, span in enumerate(tolerances)}
    weight = micro_batches - 1
    # By number of layers: for every tolerance the cost, and the partition.
    former = [None] + [
        [(weight * max(0, sums[end] - most), (end,)) for most in tolerances]
        for end in range(1, count + 1)]
    for stage in range(1, stages):
        latter = [None] * (count + 1)
        for end in range(stage + 1, count + 1):
            row = []
            for m, most in enumerate(tolerances):
                best, chosen = float("inf"), None
                for begin in range(stage, end):
                    span = spans[begin, end]
                    cost, head = former[begin][max(m, index[span])]
                    cost += weight * max(0, span - most)
                    cut = cuts[begin - 1][stage - 1]
                    if cost + cut < best:
                        best, chosen = cost, (*head, end - begin)
                row.append((best, chosen))
            latter[end] = row
        former = latter
    return former[count][0][1]


def assignment(experiment, times, cuts, pp, micro_batches):
    """Layers per stage as the public code chooses them."""
    if micro_batches > 1:
        return table_partition(times, cuts, pp, micro_batches)
    # A single micro-batch: blocks in equal parts, with what is before them and
    # behind them.
    blocks = 24
    sizes = even_partition(blocks, pp)
    sizes[0] += 2 if experiment.key == "gpt2" else 1
    sizes[-1] += 4 if experiment.key == "gpt2" else 0
    return sizes


def pipeline_cost(times, cuts, sizes, micro_batches):
    """Eq. 5."""
    ends = list(itertools.accumulate(sizes))
    stages = [sum(times[end - size:end]) for end, size in zip(ends, sizes)]
    return ((micro_batches - 1) * max(stages) + sum(stages) +
            sum(cuts[end - 1][s] for s, end in enumerate(ends[:-1])))


def gradient_cost(experiment, sizes, tp, dp):
    """The slowest stage's sum of gradients."""
    worst, begin = 0, 0
    for stage, size in enumerate(sizes):
        layers = experiment.layers[begin:begin + size]
        begin += size
        parameters = sum(layer[2] for layer in layers if not layer[4])
        parameters += max((layer[2] for layer in layers if layer[4]), default=0)
        last = (stage * dp + dp - 1) * tp
        rate = rate_between(experiment, last, stage * dp * tp)
        worst = max(worst, 2 * (dp - 1) / dp * parameters / tp / rate)
    return worst


def estimates(experiment, times, assign=assignment):
    """Seconds, layers per stage and candidate; the fastest first."""
    found = []
    for tp, dp, pp, size in experiment.candidates():
        micro_batches = experiment.batch // dp // size
        own = layer_times(experiment, times, tp, size)
        cuts = cut_times(experiment, tp, dp, pp, size)
        if pp > len(own):
            continue
        sizes = list(assign(experiment, own, cuts, pp, micro_batches))
        seconds = (pipeline_cost(own, cuts, sizes, micro_batches) +
                   gradient_cost(experiment, sizes, tp, dp))
        found.append((seconds, sizes, (tp, dp, pp, size)))
    return sorted(found)
