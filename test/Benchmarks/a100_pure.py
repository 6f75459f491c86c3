"""benchmarks/planner/a100_pure on two rows that are made up: one that fits and is
faster in TF32, and one that does not fit."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = {"cluster": "2x8xa100-40gb", "strategy": "dp", "model": "bert-huge-32"}
ROWS = [dict(ROW, memory="32GiB", batch=16, **{"samples-per-second": 30}),
        dict(ROW, memory="8GiB", batch=None, **{"samples-per-second": None})]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        published = pathlib.Path(folder) / "published"
        published.mkdir()
        (published / "galvatron_pure.json").write_text(json.dumps({"rows": ROWS}))
        text = subprocess.run(
            [sys.executable, ROOT / "benchmarks" / "planner" / "a100_pure",
             "--oracles=" + folder, "--bin=" + options.bin, "--types=f32,tf32"],
            capture_output=True, text=True, check=True).stdout
    line = next(line for line in text.splitlines() if "| dp |" in line)
    single, faster = (float(cell.split()[-1]) for cell in line.split("|")[3:5])
    if not single < faster:
        sys.exit(f"expected more samples a second in tf32, found\n{text}")
    if text.count("memory right in 2 of 2") != 2:
        sys.exit(f"expected both cells right, found\n{text}")


if __name__ == "__main__":
    main()
