"""benchmarks/planner/a100_pure on rows that are made up: one that fits and is
faster in TF32, and one that does not fit; one that does not fit in the least batch
that its table tried, though a sample would; one that fits in a budget beside which
contexts are. Over a slower network a row takes longer."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = {"cluster": "2x8xa100-40gb", "strategy": "dp", "model": "bert-huge-32"}
ROWS = [dict(ROW, memory="32GiB", batch=16, **{"samples-per-second": 30}),
        dict(ROW, memory="8GiB", batch=None, **{"samples-per-second": None}),
        dict(ROW, strategy="tp", memory="16GiB", batch=16,
             **{"samples-per-second": 20}),
        dict(ROW, strategy="tp", memory="8GiB", batch=None,
             **{"samples-per-second": None}),
        {"cluster": "8x8xa100-40gb", "strategy": "tp", "model": "vit-xhuge",
         "memory": "16GiB", "batch": 12, "samples-per-second": 2}]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        published = pathlib.Path(folder) / "published"
        published.mkdir()
        (published / "galvatron_pure.json").write_text(json.dumps({"rows": ROWS}))
        text, networks = (subprocess.run(
            [sys.executable, ROOT / "benchmarks" / "planner" / "a100_pure",
             "--oracles=" + folder, "--bin=" + options.bin, *more],
            capture_output=True, text=True, check=True).stdout
            for more in (["--types=f32,tf32"], ["--types=tf32", "--networks"]))
    line = next(line for line in text.splitlines() if "| dp |" in line)
    single, faster = (float(cell.split()[-1]) for cell in line.split("|")[3:5])
    if not single < faster:
        sys.exit(f"expected more samples a second in tf32, found\n{text}")
    for cells in ("4 of 4", "1 of 1"):
        if text.count("memory right in " + cells) != 2:
            sys.exit(f"expected all cells right, found\n{text}")
    rates = [float(line.split("|")[2].split()[0])
             for line in networks.splitlines()[2:]]
    if len(rates) != 4 or rates != sorted(rates, reverse=True):
        sys.exit(f"expected fewer samples a second by the network, found\n{networks}")


if __name__ == "__main__":
    main()
