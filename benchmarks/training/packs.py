#!/usr/bin/python3
"""Harmony's packs on CPU ranks: work of a step predicted and measured, ablations.

    benchmarks/training/packs.py [--devices=N] [--memory=SIZE] [--rounds=N]
                                 [--steps=N] [--cluster=NAME] [--build=DIR]
                                 [--copy-rate=BYTES]

The work of a step is what all ranks compute, copy and send, without waiting:
predicted by the simulator, measured as seconds of processors (the difference of
a long and a short run), so that other work on the machine matters little. Both
are given per sample and over as many ranks that have everything in their arenas
(zdpN), so that nominal figures matter little, too. Programs run in turn, round by round;
printed are medians. The steps' times by the clock stand beside.

The second table has what can be switched off in a program: packs by hand (of
one layer each, `single-layers` in docs/harmony.md), updates behind each pack,
and updates on the host, over the step that has them. Grouping, peer-to-peer and
copies ahead cannot: programs have the first two always and the last never.

With --copy-rate every rank copies so many bytes per second between its home and
its arena at most, a direction each (GRT_COPY_RATE, for which it sleeps), as over
a link of its own to the host. Copies are then a part of the step as they are
beside fast devices, and no work: both tables are of times by the clock,
predicted with a measured cluster file that has the link as `host-bandwidth`.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import tempfile

from cpu_ranks import MODEL, ROOT, tool

JUST_IN_TIME = "all,just-in-time"
THERE = "all,just-in-time,update-on-device"
UPDATES = {"off": "at the end", "all": "at the end",
           JUST_IN_TIME: "just in time", THERE: "on the device"}
ON_DEVICES = "on the devices"


def of_single_layers(plan):
    """The plan with packs of one layer in both directions."""
    layers = len(plan["layers"])
    plan["packs-f"] = list(range(layers - 1))
    plan["packs-b"] = list(range(layers))
    ranges = [[] for _ in plan["stages"]]
    for layer in range(layers):
        # Forward packs are bound to the stages in turn, and behind them
        # backward packs from the last one on.
        stage = (layers - 1 + layers - 1 - layer) % len(ranges)
        plan["layers"][layer]["stage"] = stage
        ranges[stage].append({"first-layer": layer, "layer-count": 1})
    for stage, chunks in zip(plan["stages"], ranges):
        stage.update(chunks[0])
        stage["chunks"] = chunks
    return plan


def compiled(options, folder, space, batch, offload, by_hand):
    """A program, its plan, and the seconds of work that are predicted."""
    config = folder / "config.json"
    config.write_text(json.dumps(MODEL))
    name = f"{space}-{batch}-{offload}-{by_hand}".replace(",", "-")
    program, plan = folder / f"{name}.gvx", folder / f"{name}.json"
    count = options.devices
    asked = [str(config), f"--cluster={options.file or f'{count}x{options.cluster}'}"]
    searched = [f"--batch={batch}", "--clip=off"]
    if space == ON_DEVICES:
        searched += [f"--strategy=zdp{count}" if count > 1 else
                     "--strategy=single", "--pipeline-degree=1",
                     f"--micro-batches={batch // (2 * count)}"]
    else:
        asked += [f"--memory={options.memory}"]
        searched += [f"--space={space}", f"--offload={offload}"]
    tool(options.build, "galvatron-plan", *asked, *searched, f"--json={plan}")
    if by_hand:
        made = of_single_layers(json.loads(plan.read_text()))
        plan.write_text(json.dumps(made))
    report = folder / f"{name}.report.json"
    tool(options.build, "galvatron-compile", *asked, f"--plan={plan}",
         f"--json={report}", "-o", str(program))
    text = tool(options.build, "galvatron-plan", *asked, f"--plan={plan}",
                "--simulate")
    chosen = json.loads(report.read_text())
    work = 0
    for stage, compute, alone in re.findall(
            r"^ +(\d+) +([\d.]+) ms +([\d.]+) ms +[\d.]+ ms ", text, re.M):
        ranks = len(chosen["stages"][int(stage)]["devices"])
        work += ranks * (float(compute) + float(alone)) / 1e3
    if options.copy_rate:
        work = float(re.search(r"^executed: ([\d.]+) ms", text, re.M)[1]) / 1e3
    return program, chosen, work


def with_link(options, folder):
    """A cluster file of this machine whose ranks have slow links to the host."""
    path = folder / "cluster.yaml"
    tool(options.build, "galvatron-profile", "--quick",
         f"--ranks={options.devices}", "-o", str(path))
    path.write_text(re.sub(
        r"^( +)(memory-bandwidth: .*)$",
        rf"\1\2\n\1host-bandwidth: {options.copy_rate:g}B/s",
        path.read_text(), count=1, flags=re.M))
    return path


def measured(options, folder, program, late):
    """Seconds of processors of a step, and its median time in milliseconds."""
    summary = folder / "summary.json"

    def run(steps):
        before = os.times()
        tool(options.build, "galvatron-run", str(program),
             f"--summary={summary}", f"--steps={steps}",
             f"--data={ROOT / 'docs' / 'architecture.md'}",
             "--data-format=text", "--threads-per-rank=1",
             *(["--on-nan=late"] if late else []))
        after = os.times()
        return (after.children_user - before.children_user +
                after.children_system - before.children_system)

    if options.copy_rate:
        run(1 + options.steps)
        clock = json.loads(summary.read_text())["median-step-ms"]
        return clock / 1e3, clock
    short = run(1)
    work = (run(1 + options.steps) - short) / options.steps
    return work, json.loads(summary.read_text())["median-step-ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--memory", default="28MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--cluster", default="cpu", metavar="TYPE",
                        help="device type of the prediction")
    parser.add_argument("--copy-rate", type=float, default=0, metavar="BYTES",
                        help="per second, between a rank's home and its arena")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    spaces = ["harmony-pp", "harmony-dp"]
    cases = [(ON_DEVICES, 8, "off", False)]
    for space in spaces:
        batches = (8,) if options.copy_rate else (4, 8, 16)
        cases += [(space, batch, JUST_IN_TIME, False) for batch in batches]
        cases += [(space, 8, "all", False), (space, 8, JUST_IN_TIME, True),
                  (space, 8, THERE, False)]
    options.file = None
    if options.copy_rate:
        os.environ["GRT_COPY_RATE"] = f"{options.copy_rate:.0f}"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.copy_rate:
            options.file = with_link(options, folder)
        programs = {case: compiled(options, folder, *case) for case in cases}
        found = {case: [] for case in cases}
        for _ in range(options.rounds):
            for case, (program, _, _) in programs.items():
                found[case].append(measured(options, folder, program,
                                            case[2] in (JUST_IN_TIME, THERE)))
    work = {case: statistics.median(w for w, _ in runs) / case[1]
            for case, runs in found.items()}
    clock = {case: statistics.median(ms for _, ms in runs)
             for case, runs in found.items()}
    expected = {case: seconds / case[1]
                for case, (_, _, seconds) in programs.items()}
    alone = cases[0]
    print("| space | batch | updates | micro-batches | packs forward, backward "
          "| predicted work | measured work | measured / predicted | step by "
          "the clock |\n|---|---|---|---|---|---|---|---|---|")
    for case, (_, plan, _) in programs.items():
        space, batch, offload, by_hand = case
        packs = "none"
        if space != ON_DEVICES:
            packs = f"{len(plan['packs-f'])}, {len(plan['packs-b'])}"
        predicted, seen = (w[case] / w[alone] for w in (expected, work))
        print(f"| {space} | {batch} | "
              f"{UPDATES[offload]} | {plan['micro-batches']} | "
              f"{packs}{' (by hand)' if by_hand else ''} | {predicted:.3f} | "
              f"{seen:.3f} | {seen / predicted:.2f} | {clock[case]:.0f} ms |")
    print(f"\nOn the devices, a sample: predicted {1e3 * expected[alone]:.2f} ms, "
          f"measured {1e3 * work[alone]:.2f} ms.\n\n"
          "| batch 8, over the step with both | harmony-pp, predicted work | "
          "measured | harmony-dp, predicted work | measured |\n"
          "|---|---|---|---|---|")
    for what, offload, by_hand in [("packs by hand", JUST_IN_TIME, True),
                                   ("just in time off", "all", False),
                                   ("update on the device", THERE, False)]:
        row = [what]
        for space in spaces:
            base = (space, 8, JUST_IN_TIME, False)
            case = (space, 8, offload, by_hand)
            row += [f"{w[case] / w[base]:.3f}" for w in (expected, work)]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
