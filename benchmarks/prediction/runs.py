"""lib/Software/PublishedRuns.csv: what galvatron-plan says of published runs, as
benchmarks/prediction/published prices them."""

import hashlib
import pathlib
import sys

import software
from software import ROOT

# Columns of the table that the tools have.
COLUMNS = ("execution", "source", "id", "device", "devices", "parameters", "tokens",
           "batch", "micro-batch", "tensor", "pipeline", "context", "strategy",
           "seconds", "predicted")


def parameters(row):
    """Of matrices of the blocks, embedding and head, as the tools count them."""
    shape = row["model_shape"]
    h = shape["hidden"]
    width = shape.get("head_width") or h // shape["heads"]
    kv = width * (shape.get("kv_heads") or shape["heads"])
    block = (2 * h * width * shape["heads"] + 2 * h * kv
             + h * shape["ffn"] * (3 if shape.get("gated_mlp") else 2))
    return shape["layers"] * block + 2 * h * shape["vocab"]


def constants_hash():
    """Of what is fitted in Executions.yaml, without comments."""
    text = (ROOT / "lib" / "Software" / "Executions.yaml").read_text()
    part = text[text.index("constants:"):text.index("executions:")]
    lines = [line.split("#")[0].rstrip() for line in part.splitlines()]
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()[:16]


def write(path, results, device, strategy):
    """What the tools say of published runs, a line each; `device`, `strategy`: of
    a row."""
    lines = ["# Published runs as benchmarks/prediction/published --table prices "
             "them. Constants: " + constants_hash(), ",".join(COLUMNS)]
    for r in results:
        row = r["row"]
        lines.append(",".join(map(str, (
            software.EXECUTIONS.get(r["source"], "fused"), r["source"], row["id"],
            device(row), row["gpus"], parameters(row), row["seq_len"],
            row["gbs"], row["mbs"], row["tp"], row["pp"], row.get("cp") or 1,
            strategy(row),
            f"{r['published'] / 1e3:.6g}", f"{r['predicted'] / 1e3:.6g}"))))
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def check(path):
    """Exits with an error where constants are not those of the table."""
    first = pathlib.Path(path).read_text().splitlines()[0]
    if not first.endswith(" " + constants_hash()):
        sys.exit(f"published: constants of Executions.yaml are {constants_hash()}, "
                 f"{path} was priced by others: write it again with --table")
