#!/usr/bin/python3
"""Schedules of a pipeline against each other, and against one rank.

    benchmarks/training/schedules.py [--stages=P] [--micro-batches=LIST]
                                     [--rounds=N] [--steps=N] [--build=DIR]
                                     [--limit]

Stages are ranks with a core each, so that P cores are needed. The same model
and batch is compiled under every schedule and for one rank with one core; the
programs run in turn, round by round. Printed are medians of the rounds' median
steps, their ratio to 1F1B, and P times their ratio to one rank: 1 would be P
times as fast as one rank. The order that the planner predicts stands beside it.
"zb-h2 late" is run with --on-nan=late, so that no stage waits behind a step for
the norm of all gradients, which the prediction counts.

With --limit 2BW alone, round by round, beside the least that its batch can take:
m max c + max u for m micro-batches, where c is what a stage computes for one
and u its sum of gradients and update, both as medians of the same run's tasks.
The head has weights of its own there (no tie), and m is P unless it is given.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from cpu_ranks import MODEL, ROOT, tool



def compiled(build, folder, name, batch, stages, options, tied=True):
    config = folder / "config.json"
    config.write_text(json.dumps({**MODEL, "tie_word_embeddings": tied}))
    program, plan = folder / f"{name}.gvx", folder / f"{name}.json"
    tool(build, "galvatron-compile", str(config), f"--cluster={stages}xcpu",
         f"--batch={batch}", "--strategy=single", f"--json={plan}", "-o",
         str(program), f"--pipeline-degree={stages}", "--clip=off", *options)
    return program, json.loads(plan.read_text())["iteration-ms"]


def median_step(build, folder, program, late, steps, more=()):
    summary = folder / "summary.json"
    tool(build, "galvatron-run", str(program), f"--summary={summary}",
         f"--data={ROOT / 'docs' / 'architecture.md'}", "--data-format=text",
         f"--steps={steps}", "--threads-per-rank=1",
         *(["--on-nan=late"] if late else []), *more)
    return json.loads(summary.read_text())["median-step-ms"]


def stage_times(trace, stages):
    """By stage what it computes for a micro-batch and at the end of a batch,
    ms: medians over the tasks of a trace."""
    tasks = [{} for _ in range(stages)]
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("cat") == "task":
            kind = event["name"].split()[0]
            tasks[event["pid"]].setdefault(kind, []).append(event["dur"] / 1e3)
    def median(of, *kinds):
        return sum(statistics.median(of[kind]) for kind in kinds)
    return ([median(of, "forward", "backward") for of in tasks],
            [median(of, "sync-gradients", "update") for of in tasks])


def run_limit(options):
    stages = options.stages
    print("| micro-batches | round | ms a batch | c, ms | u, ms | limit, ms | "
          "to the limit |\n|---|---|---|---|---|---|---|")
    for count in map(int, (options.micro_batches or str(stages)).split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            trace = folder / "trace.json"
            program, _ = compiled(
                options.build, folder, "2bw", count * options.samples, stages,
                ["--schedule=2bw", f"--micro-batches={count}"], tied=False)
            ratios = []
            for number in range(options.rounds):
                batch = median_step(
                    options.build, folder, program, True, options.steps,
                    [f"--trace={trace}", f"--trace-steps={options.steps - 2}"])
                passes, ends = stage_times(trace, stages)
                limit = count * max(passes) + max(ends)
                ratios.append(batch / limit)
                print(f"| {count} | {number + 1} | {batch:.1f} | "
                      f"{', '.join(f'{c:.1f}' for c in passes)} | "
                      f"{', '.join(f'{u:.1f}' for u in ends)} | {limit:.1f} | "
                      f"{batch / limit:.3f} |", flush=True)
        print(f"| {count} | median | | | | | {statistics.median(ratios):.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches",
                        help="default 2,4,8; P with --limit")
    parser.add_argument("--limit", action="store_true",
                        help="2BW beside the least that its batch can take")
    parser.add_argument("--samples", type=int, default=2,
                        help="of a micro-batch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    if cores < options.stages:
        sys.exit(f"schedules.py: expected a core for each of "
                 f"{options.stages} stages, found {cores}")
    if options.limit:
        run_limit(options)
        return
    print("| micro-batches | schedule | ms | to 1F1B | to one rank | predicted "
          "to 1F1B |\n|---|---|---|---|---|---|")
    for count in map(int, (options.micro_batches or "2,4,8").split(",")):
        run_count(options, count)


def run_count(options, count):
    build, stages = options.build, options.stages
    batch = count * options.samples
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        programs, predicted = {}, {}
        for schedule in ["one rank", "gpipe", "1f1b", "interleaved", "zb-h1",
                         "zb-h2", "zb-h2 late", "2bw"]:
            chosen = [f"--schedule={schedule.split()[0]}",
                      f"--micro-batches={count}"]
            ranks = stages
            if schedule == "one rank":
                chosen, ranks = [f"--micro-batches={count}"], 1
            programs[schedule], predicted[schedule] = compiled(
                build, folder, schedule.replace(" ", "-"), batch, ranks, chosen)
        times = {schedule: [] for schedule in programs}
        for _ in range(options.rounds):
            for schedule, program in programs.items():
                times[schedule].append(
                    median_step(build, folder, program,
                                schedule in ("zb-h2 late", "2bw"),
                                options.steps))
        medians = {s: statistics.median(t) for s, t in times.items()}
        for schedule, ms in medians.items():
            print(f"| {count} | {schedule} | {ms:.1f} | "
                  f"{ms / medians['1f1b']:.3f} | "
                  f"{stages * ms / medians['one rank']:.3f} | "
                  f"{predicted[schedule] / predicted['1f1b']:.3f} |",
                  flush=True)


if __name__ == "__main__":
    main()
