#!/usr/bin/python3
"""Idle share of pipelines of equal stages, by schedule, beside its ideal.

    benchmarks/planner/bubbles.py [--stages=LIST] [--build=DIR]

Layers that are all alike (backward twice as long as forward), messages and
updates that take next to no time: what is idle is the schedule's. One row for
every number of stages P and of micro-batches m = P, 2P, 4P. The ideal is
(P-1)/(m+P-1) for GPipe and 1F1B, (P-1)/(Vm+P-1) for V chunks where P divides m
(Narayanan et al., SC 2021, Sec. 2.2), (P-1)/(3m+P-1) for ZB-H1 with three equal
parts (Qi et al., ICLR 2024, Table 2), the same for ZB-H2 where stages meet for a
norm behind every step, and nothing for ZB-H2 without ("late") and for 2BW.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORWARD_MS, CHUNKS = 10.0, 4
CLUSTER = """name: equal
device-types:
  - name: device
    backend: cpu
    memory: 64GiB
    flops: {{f32: 10TFLOPS}}
    memory-bandwidth: 1TB/s
    optimizer-bandwidth: 1000TB/s
nodes:
  - {{count: 1, device-type: device, devices: {devices},
      link: {{bandwidth: 1000GB/s, latency: 0us}}}}
"""
SCHEDULES = {
    "gpipe": (["--schedule=gpipe"], lambda p, m: (p - 1) / (m + p - 1)),
    "1f1b": (["--schedule=1f1b"], lambda p, m: (p - 1) / (m + p - 1)),
    "interleaved, V = 2": (["--schedule=interleaved", "--chunks=2"],
                           lambda p, m: (p - 1) / (2 * m + p - 1)),
    "interleaved, V = 4": (["--schedule=interleaved", "--chunks=4"],
                           lambda p, m: (p - 1) / (4 * m + p - 1)),
    "zb-h1": (["--schedule=zb-h1"],
              lambda p, m: (p - 1) / (3 * m + p - 1)),
    "zb-h2": (["--schedule=zb-h2"],
              lambda p, m: (p - 1) / (3 * m + p - 1)),
    "zb-h2, late": (["--schedule=zb-h2", "--simulate"], lambda p, m: 0.0),
    "2bw": (["--schedule=2bw", "--clip=off"], lambda p, m: 0.0),
}


def idle(build, folder, stages, count, options):
    layers = stages * CHUNKS
    # Unequal stages can be better than equal ones; the ideal is of equal ones.
    chunks = next((int(o.split("=")[1]) for o in options if "chunks" in o), 1)
    even = ",".join([str(CHUNKS // chunks)] * stages * chunks)
    profile, cluster = folder / "profile.json", folder / "cluster.yaml"
    profile.write_text(json.dumps({
        "version": 1, "dtype": "f32",
        "layers": [{"name": "layer", "count": layers, "forward-ms": FORWARD_MS,
                    "backward-ms": 2 * FORWARD_MS, "weight-ms": FORWARD_MS,
                    "parameter-bytes": 4096,
                    "boundary-bytes": 64, "intermediate-bytes": 4096}]}))
    cluster.write_text(CLUSTER.format(devices=stages))
    plan = folder / "plan.json"
    done = subprocess.run(
        [str(build / "bin" / "galvatron-plan"), str(profile),
         f"--cluster={cluster}", f"--batch={count}", "--strategy=single",
         f"--pipeline-degree={stages}", f"--micro-batches={count}",
         f"--partition={even}", "--clip=off", f"--json={plan}", *options],
        capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bubbles.py: {done.stderr}")
    busy = 3 * FORWARD_MS * CHUNKS * count
    step = json.loads(plan.read_text())["iteration-ms"]
    if "--simulate" in options:
        step = float(re.search(r"--on-nan=late: ([0-9.]+) ms",
                               done.stdout)[1])
    return 1 - busy / step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", default="4,8,16")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    print("| P | m | " + " | ".join(SCHEDULES) + " |")
    print("|---" * (2 + len(SCHEDULES)) + "|")
    with tempfile.TemporaryDirectory() as name:
        for stages in map(int, options.stages.split(",")):
            for count in (stages, 2 * stages, 4 * stages):
                cells = []
                for chosen, ideal in SCHEDULES.values():
                    share = idle(options.build, pathlib.Path(name), stages,
                                 count, chosen)
                    cells.append(f"{100 * share:.1f}% "
                                 f"({100 * ideal(stages, count):.1f}%)")
                print(f"| {stages} | {count} | " + " | ".join(cells) + " |",
                      flush=True)


if __name__ == "__main__":
    main()
