#!/usr/bin/python3
"""Steps at every point of what layers keep, beside their predictions.

    benchmarks/training/kept.py [--points=N] [--rounds=N] [--steps=N]
                                [--cluster=FILE] [--processor] [--build=DIR]

One CPU rank with one core trains the same model with layers that keep all
values, those of a point, or none. Points are sets without one or two of the
block's large products, so that every step is predicted to take some percent
longer than the one before; with --points the first N that a search would have,
of which some are nearer to each other than such measurements tell. The cluster file is measured first, unless it
is given (galvatron-profile). Programs run in turn, round by round; printed are
medians of the rounds, their ratio to keeping all, the predicted ratio, and how
far the two are apart. With --processor it is the processor time of a step that
counts, for machines that do other work too: that of a run of 2 N steps less
that of one of N. The last line says whether the order is the predicted one.
"""

import argparse
import json
import pathlib
import resource
import statistics
import tempfile

from cpu_ranks import MODEL, ROOT, tool


#: By name: the options of --keep beside `single`.
SETS = {"without attn.c_attn": "-attn.c_attn",
        "without mlp.c_fc": "-mlp.c_fc",
        "without both": "-attn.c_attn,-mlp.c_fc"}


def compiled(build, folder, cluster, point, batch):
    """The program at a point, what it is predicted to take, and what a layer
    keeps."""
    how = (["--strategy=single", f"--keep={SETS[point]}"] if point in SETS
           else [f"--strategy={point}"])
    point = point.replace(" ", "-")
    config = folder / "config.json"
    config.write_text(json.dumps(MODEL))
    program, plan = folder / f"{point}.gvx", folder / f"{point}.json"
    tool(build, "galvatron-compile", str(config), f"--cluster={cluster}",
         f"--batch={batch}", "--micro-batches=1", *how, f"--json={plan}",
         "-o", str(program))
    read = json.loads(plan.read_text())
    return program, read


def activations(plan):
    return sum(stage["ledger"]["activations"] for stage in plan["stages"])


def wall_step(build, folder, program, steps):
    summary = folder / "summary.json"
    tool(build, "galvatron-run", str(program), f"--summary={summary}",
         f"--data={ROOT / 'docs' / 'architecture.md'}", "--data-format=text",
         f"--steps={steps}", "--threads-per-rank=1")
    return json.loads(summary.read_text())["median-step-ms"]


def processor_step(build, folder, program, steps):
    def taken(count):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall_step(build, folder, program, count)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime
    return (taken(2 * steps) - taken(steps)) / steps * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=0,
                        help="between all and none; default: the sets")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cluster", help="default: measured")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    step = processor_step if options.processor else wall_step
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = options.cluster
        if not cluster:
            cluster = folder / "cluster.yaml"
            tool(options.build, "galvatron-profile", "--ranks=1", "--seconds=20",
                 "-o", str(cluster))
        points = [f"single.ckpt{i + 1}" for i in range(options.points)]
        strategies = ["single", *(points or SETS), "single.ckpt"]
        programs = {s: compiled(options.build, folder, cluster, s,
                                options.batch) for s in strategies}
        times = {s: [] for s in strategies}
        for _ in range(options.rounds):
            for strategy, (program, _) in programs.items():
                times[strategy].append(step(options.build, folder, program,
                                            options.steps))
    medians = {s: statistics.median(t) for s, t in times.items()}
    first = strategies[0]
    predicted = {s: plan["iteration-ms"] for s, (_, plan) in programs.items()}
    print("| strategy | activations, KiB | ms a step | to all kept | "
          "predicted | apart |\n|---|---|---|---|---|---|")
    for strategy, (_, plan) in programs.items():
        ratio = medians[strategy] / medians[first]
        told = predicted[strategy] / predicted[first]
        print(f"| {strategy} | {activations(plan) / 1024:.0f} | "
              f"{medians[strategy]:.2f} | {ratio:.3f} | {told:.3f} | "
              f"{(ratio / told - 1) * 100:+.1f}% |")
    order = sorted(strategies, key=lambda s: predicted[s])
    same = order == sorted(strategies, key=lambda s: medians[s])
    print(f"order as predicted: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
