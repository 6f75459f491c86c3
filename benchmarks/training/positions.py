#!/usr/bin/python3
"""Long samples, trained under strategies that divide their positions.

    benchmarks/training/positions.py [--tokens=N,..] [--steps=N]
                                     [--strategies=LIST] [--build=DIR]

CPU ranks train a LLaMA of two layers (grouped heads, dropout in attention, f32)
on samples of so many tokens, one a step. Some spans of tokens alone count as
labels, so ranks count different numbers. Printed are, a strategy a row, the
largest distance of a loss from that of one rank, relative to it; the memory of a
rank as it was planned and as it was measured; and the processor time of a rank
in a step, which other work on the machine and cores that ranks share do not
change, in relation to one rank and beside the predicted relation of steps; and
the bytes that a rank has of a sample until backward, its tokens and labels
included: by how much three micro-batches in flight take more than two, as
planned and as measured (GPipe, one step), and as a part of those of one rank.
The command fails if a loss is further away than 1e-5, or memory, or kept bytes,
above what was planned or below 95% of it.
"""

import argparse
import json
import math
import pathlib
import random
import re
import resource
import sys
import tempfile

from cpu_ranks import ROOT, tool

STRATEGIES = ("single,cp2,up2,ring2,cp4,up4,ring4,tsp4,tp2.cp2,tp2.up2,tp2.ring2,"
              "cp2.tsp2")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.1, "hidden_act": "silu", "hidden_size": 64,
    "initializer_range": 0.02, "intermediate_size": 160, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_scaling": None,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "use_cache": True,
    "torch_dtype": "float32", "vocab_size": 256}
MOST_APART = 1e-5
LEAST_FILLED = 0.95
LEAST_FREE = 256 << 10  # bytes that a small arena may have besides


def bytes_tokenizer():
    """A tokenizer.json whose tokens are bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    of = {b: chr(b) for b in kept} | {
        b: chr(256 + i) for i, b in enumerate(others)}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                          "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False,
                    "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "merges": [],
                  "vocab": {of[b]: b for b in range(256)}}}


def shards(build, folder, tokens):
    """A folder of shards with at least so many tokens, of which spans count."""
    text = (ROOT / "docs" / "architecture.md").read_text().encode("ascii",
                                                                  "ignore")
    generator = random.Random(7)
    lines, length = [], 0
    while length < tokens:
        size = generator.randrange(500, 3000)
        begin = generator.randrange(len(text) - size)
        part = text[begin:begin + size].decode("ascii")
        first = generator.randrange(1, size - 100)
        last = generator.randrange(first + 50, size)
        lines.append(json.dumps({"text": part, "labels": [[first, last]]}))
        length += size
    (folder / "text.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(bytes_tokenizer()))
    tool(build, "galvatron-data", "tokenize", str(folder / "text.jsonl"),
         "--labels-key=labels", f"--tokenizer={folder / 'tokenizer.json'}",
         "-o", str(folder / "shards"))
    return folder / "shards" / "00000.u16"


def losses(log):
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()
            if '"loss"' in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="4096,4080")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--strategies", default=STRATEGIES)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    strategies = options.strategies.split(",")
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for tokens in map(int, options.tokens.split(",")):
            config = folder / "config.json"
            config.write_text(json.dumps(
                CONFIG | {"max_position_embeddings": tokens}))
            place = folder / str(tokens)
            place.mkdir()
            data = shards(options.build, place, (options.steps + 3) * tokens)
            rows = {}
            for strategy in strategies:
                rows[strategy] = train(options, place, config, data, strategy,
                                       tokens)
            first = rows[strategies[0]]
            print(f"\n{tokens} tokens, {options.steps} steps\n\n| strategy | "
                  "loss apart | planned, MiB | measured, MiB | kept, MiB "
                  "| measured | to one rank | ms of a rank | to one rank "
                  "| predicted |\n|" + "---|" * 10)
            for strategy, row in rows.items():
                apart = max(abs(a - b) / b
                            for a, b in zip(row["losses"], first["losses"]))
                print(f"| `{strategy}` | {apart:.1e} | "
                      f"{row['planned'] / 2**20:.2f} | "
                      f"{row['used'] / 2**20:.2f} | "
                      f"{row['keeps'] / 2**20:.3f} | "
                      f"{row['kept'] / 2**20:.3f} | "
                      f"{row['kept'] / first['kept']:.3f} | {row['ms']:.0f} | "
                      f"{row['ms'] / first['ms']:.2f} | "
                      f"{row['predicted'] / first['predicted']:.2f} |",
                      flush=True)
                if len(row["losses"]) != options.steps or apart > MOST_APART:
                    failures.append(f"{strategy}, {tokens}: losses")
                if not (row["used"] <= row["planned"] and
                        (row["used"] >= LEAST_FILLED * row["planned"] or
                         row["planned"] - row["used"] <= LEAST_FREE)):
                    failures.append(f"{strategy}, {tokens}: memory")
                if not (LEAST_FILLED * row["keeps"] <= row["kept"] <=
                        row["keeps"]):
                    failures.append(f"{strategy}, {tokens}: kept bytes")
    for failure in failures:
        print(failure, file=sys.stderr)
    return bool(failures)


def train(options, folder, config, data, strategy, tokens):
    """Compiles and runs a strategy; what it took, and its losses."""
    log = folder / "log.json"
    log.unlink(missing_ok=True)
    plan, read, taken = run(options, folder, config, data, strategy, tokens,
                            options.steps, f"--log={log}")
    two, three = (run(options, folder, config, data, strategy, tokens, 1,
                      micro_batches=count)[:2] for count in (2, 3))
    return {"losses": losses(log),
            "ms": 1e3 * taken / options.steps / devices(strategy),
            "predicted": plan["iteration-ms"],
            "keeps": peak(three[1], "planned") - peak(two[1], "planned"),
            "kept": peak(three[1], "measured") - peak(two[1], "measured"),
            "planned": peak(read, "planned"), "used": peak(read, "measured")}


def run(options, folder, config, data, strategy, tokens, steps, *more,
        micro_batches=1):
    """Trains with samples that are all in flight: plan, summary and processor
    seconds."""
    program, plan = folder / f"{strategy}.gvx", folder / "plan.json"
    summary = folder / "summary.json"
    tool(options.build, "galvatron-compile", str(config),
         f"--cluster={devices(strategy)}xcpu", f"--seq-len={tokens}",
         f"--batch={micro_batches}", f"--micro-batches={micro_batches}",
         "--pipeline-degree=1", "--schedule=gpipe", f"--strategy={strategy}",
         f"--json={plan}", "-o", str(program))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    tool(options.build, "galvatron-run", str(program), f"--data={data}",
         f"--steps={steps}", f"--summary={summary}", "--threads-per-rank=1",
         *more)
    taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return (json.loads(plan.read_text()), json.loads(summary.read_text()),
            taken)


def peak(summary, which):
    return max(rank[f"{which}-peak-bytes"] for rank in summary["ranks"])


def devices(strategy):
    """The product of a strategy's degrees."""
    return math.prod(int(degree) for degree in re.findall(r"[a-z](\d+)",
                                                          strategy))


if __name__ == "__main__":
    sys.exit(main())
