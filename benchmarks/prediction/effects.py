"""Effects: how a step's time changes where two published rows differ in one thing.

A pair is two rows of one source that are alike but for that thing; its effect is
the second's time over the first's, for the same samples. Measurements of the same
thing differ by 1 to 4%, so only pairs that differ by more than 5% count."""

import collections
import itertools
import math
import statistics

# What makes two rows alike, besides what an effect says.
KEYS = ("model", "gpu", "gpus", "seq_len", "precision", "gbs", "mbs", "tp", "pp",
        "dp", "dp_mode", "recompute", "schedule", "vpp", "options", "uneven_stages",
        "pp_partition", "fsdp_mode", "framework")
SMALLEST = 1.05


def within(row):
    return row["tp"] <= row["gpus_per_node"]


def first_is_less(key):
    return lambda a, b: a[key] < b[key]


# What of KEYS may differ, and which pairs are of the effect: from a to b.
EFFECTS = {
    "a larger micro-batch": (("mbs",), first_is_less("mbs")),
    "micro-batch and batch doubled": (
        ("mbs", "gbs"), lambda a, b: 2 * a["mbs"] == b["mbs"]
        and 2 * a["gbs"] == b["gbs"]),
    "more micro-batches": (("gbs",), first_is_less("gbs")),
    "more TP for DP in a node": (
        ("tp", "dp", "dp_mode"),
        lambda a, b: a["tp"] < b["tp"] and within(b) and a["pp"] == b["pp"]),
    "TP across nodes for DP": (
        ("tp", "dp", "dp_mode"),
        lambda a, b: within(a) and not within(b)),
    "stages for DP": (
        ("pp", "dp", "dp_mode", "schedule"),
        lambda a, b: a["pp"] < b["pp"]
        and {a["schedule"], b["schedule"]} <= {"none", "1f1b"}),
    "stages for TP": (
        ("pp", "tp", "schedule"),
        lambda a, b: a["pp"] < b["pp"]
        and {a["schedule"], b["schedule"]} <= {"none", "1f1b"}),
    "ZeRO-3 for TP and stages": (
        ("dp", "tp", "pp", "dp_mode", "mbs", "schedule", "vpp", "framework"),
        lambda a, b: a["tp"] * a["pp"] > 1 and b["dp_mode"] == "zero3"
        and a["dp_mode"] != "zero3"),
    "full recomputation": (
        ("recompute",),
        lambda a, b: a["recompute"] == "none" and b["recompute"] == "full"),
    "another schedule than 1F1B": (
        ("schedule", "vpp"),
        lambda a, b: a["schedule"] == "1f1b" and b["schedule"] != "1f1b"),
}


def alike(a, b, but):
    return all(a.get(key) == b.get(key) for key in KEYS if key not in but)


def pairs(results):
    """By effect and source: published and predicted ratios of every pair."""
    found = collections.defaultdict(list)
    for x, y in itertools.permutations(results, 2):
        if x["source"] != y["source"]:
            continue
        a, b = x["row"], y["row"]
        for name, (but, of_effect) in EFFECTS.items():
            if not alike(a, b, but) or not of_effect(a, b):
                continue
            samples = a["gbs"] / b["gbs"]
            found[name, x["source"]].append(
                (y["published"] / x["published"] * samples,
                 y["predicted"] / x["predicted"] * samples))
    return found


def judge(ratios):
    """Of (published, predicted) pairs: how many are large enough to count, how
    many of these go the published way, how many within a third of its size."""
    counted = [(math.log(published), math.log(predicted))
               for published, predicted in ratios
               if max(published, 1 / published) > SMALLEST]
    way = sum(published * predicted > 0 for published, predicted in counted)
    close = sum(abs(predicted - published) <= abs(published) / 3
                for published, predicted in counted)
    return len(counted), way, close


def table(results):
    """The effects as lines of a table."""
    lines = ["", "Effects: pairs of rows of one source that differ in one thing, "
             "by the time of a sample; of those that differ by more than 5%, how "
             "many are predicted in that direction, and within a third of the "
             "size.", "",
             "| effect | source | pairs | over 5% | direction | within a third "
             "| published, median | predicted, median |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    sums = [0, 0, 0]
    for (name, source), ratios in sorted(pairs(results).items()):
        counts = judge(ratios)
        sums = [total + count for total, count in zip(sums, counts)]
        large = [pair for pair in ratios if max(pair[0], 1 / pair[0]) > SMALLEST]
        if not large:
            lines.append(f"| {name} | {source} | {len(ratios)} | 0 | | | | |")
            continue
        published, predicted = (statistics.median(side) for side in zip(*large))
        lines.append(f"| {name} | {source} | {len(ratios)} | {counts[0]} | "
                     f"{counts[1]} | {counts[2]} | {published:.2f} | "
                     f"{predicted:.2f} |")
    lines.append(f"| all | | | {sums[0]} | {sums[1]} | {sums[2]} | | |")
    return lines
