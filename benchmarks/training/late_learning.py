#!/usr/bin/python3
"""What gradients that are one batch late cost in learning.

    benchmarks/training/late_learning.py --text=FILE [--seeds=LIST]
        [--steps=N] [--batch=N] [--lr=X] [--build=DIR]
        [--svg=FILE]

Trains examples/gpt2-tiny from several seeds on one text,
with as many tokens under 1f1b and under 2bw: four stages of a rank each, the
same batches in the same order. Printed is the validation loss behind the same
steps, the mean over seeds and the least and largest of them; --svg draws both
curves. Curves of one seed begin with the same weights.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

from cpu_ranks import tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEDULES = {
    "1f1b": ([], []),
    "2bw": (["--schedule=2bw"], ["--on-nan=late"]),
}
COLORS = {"1f1b": "#1b6ca8", "2bw": "#c8553d"}


def curve(options, folder, schedule, seed):
    """Validation losses by step."""
    compiling, running = SCHEDULES[schedule]
    program = folder / f"{schedule}.gvx"
    if not program.exists():
        tool(options.build, "galvatron-compile",
             str(ROOT / "examples" / "gpt2-tiny" / "config.json"),
             "--cluster=4xcpu", f"--batch={options.batch}",
             "--micro-batches=8", "--pipeline-degree=4", "--strategy=single",
             "--clip=off", *compiling, "-o", str(program))
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    tool(options.build, "galvatron-run", str(program),
         f"--data={options.text}", "--data-format=text",
         f"--steps={options.steps}", f"--lr={options.lr}", "--warmup-steps=20",
         "--lr-schedule=cosine", f"--seed={seed}", "--validation-fraction=0.05",
         f"--validate-every={options.every}", "--validation-batches=8",
         "--threads-per-rank=1", f"--log={metrics}", *running)
    losses = {}
    for line in metrics.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("validation-loss") is not None:
            losses[entry["step"]] = entry["validation-loss"]
    return losses


def draw(path, steps, curves):
    width, height, left, bottom = 640, 320, 48, 32
    values = [loss for runs in curves.values() for run in runs
              for loss in run.values()]
    low, high = min(values) * 0.98, max(values) * 1.02
    x = lambda step: left + (width - left - 12) * step / steps[-1]
    y = lambda loss: 12 + (height - bottom - 12) * (high - loss) / (high - low)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
             f'height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for tick in range(5):
        loss = low + (high - low) * tick / 4
        lines.append(f'<path d="M{left} {y(loss):.1f}H{width - 12}" '
                     f'stroke="#ddd"/><text x="{left - 6}" '
                     f'y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}'
                     '</text>')
    for step in steps[::max(1, len(steps) // 6)]:
        lines.append(f'<text x="{x(step):.1f}" y="{height - 10}" '
                     f'text-anchor="middle">{step}</text>')
    for number, (schedule, runs) in enumerate(curves.items()):
        for run in runs:
            points = " ".join(f"{x(step):.1f},{y(run[step]):.1f}"
                              for step in steps)
            lines.append(f'<polyline points="{points}" fill="none" '
                         f'stroke="{COLORS[schedule]}" stroke-width="1.2"/>')
        lines.append(f'<text x="{width - 120}" y="{30 + 16 * number}" '
                     f'fill="{COLORS[schedule]}">{schedule}, '
                     f'{len(runs)} seeds</text>')
    lines.append("</svg>")
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", default="2e-3")
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    curves = {schedule: [] for schedule in SCHEDULES}
    with tempfile.TemporaryDirectory() as name:
        for seed in options.seeds.split(","):
            for schedule, runs in curves.items():
                runs.append(curve(options, pathlib.Path(name), schedule, seed))
    steps = sorted(curves["1f1b"][0])
    print("| step | 1f1b | 2bw | difference |\n|---|---|---|---|")
    for step in steps:
        cells = []
        for runs in curves.values():
            losses = [run[step] for run in runs]
            cells.append(f"{statistics.mean(losses):.3f} "
                         f"({min(losses):.3f} to {max(losses):.3f})")
        difference = statistics.mean(
            late[step] - other[step]
            for late, other in zip(curves["2bw"], curves["1f1b"]))
        print(f"| {step} | {cells[0]} | {cells[1]} | {difference:+.3f} |")
    if options.svg:
        draw(options.svg, steps, curves)


if __name__ == "__main__":
    main()
