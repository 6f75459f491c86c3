# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes IR that the tools print, one place at a time, and compiles it on.

    ir_changes.py --each=N [--seed=N] [--phases=plan,schedule] [--keep=FOLDER]

Of every model and phase, in MLIR's generic form, N changes of each kind are
drawn: an operation dropped, an attribute dropped, an integer one larger, a symbol
that is not there. Changed IR is accepted or refused with a diagnostic: a signal,
a failed assertion or a hang is an error, and its IR is kept. Prints how many of
each kind were accepted.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

MODELS = {
    "gpt2": ({"model_type": "gpt2", "vocab_size": 64, "n_positions": 16,
              "n_embd": 32, "n_layer": 2, "n_head": 4},
             ["--strategy=tp2.sdp2"]),
    "llama": ({"model_type": "llama", "vocab_size": 64, "hidden_size": 32,
               "max_position_embeddings": 16, "intermediate_size": 48,
               "num_hidden_layers": 2, "num_attention_heads": 4,
               "num_key_value_heads": 2, "tie_word_embeddings": True},
              ["--strategy=tp2.ckpt", "--pipeline-degree=2",
               "--micro-batches=2"]),
    "t5": ({"model_type": "t5", "vocab_size": 65, "d_model": 32, "d_kv": 8,
            "d_ff": 48, "num_layers": 2, "num_heads": 4, "n_positions": 16},
           ["--strategy=dp2", "--pipeline-degree=2", "--micro-batches=4",
            "--schedule=zb-h1"]),
}
PHASES = ["plan", "split", "differentiate", "partition", "bufferize",
          "schedule", "allocate"]
KINDS = ["operation", "attribute", "integer", "symbol"]


def run(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True,
                          errors="replace", timeout=120)


def entries(line):
    """Spans of `name = value` in the dictionaries of a line, each with a comma."""
    spans = []
    for match in re.finditer(r'[{<,(] ?("?[\w.]+"?) = ', line):
        begin, at = match.start(1), match.end()
        depth, quoted = 0, False
        while at < len(line):
            letter = line[at]
            if quoted:
                at += letter == "\\"
                quoted = letter != '"'
            elif letter == '"':
                quoted = True
            elif line.startswith("->", at):
                at += 1
            elif letter in "{[(<":
                depth += 1
            elif letter in "}])>":
                if depth == 0:
                    break
                depth -= 1
            elif letter == "," and depth == 0:
                break
            at += 1
        if line.startswith(", ", at):
            spans.append((begin, at + 2))
        else:
            spans.append((begin - 2 * line.startswith(", ", begin - 2), at))
    return spans


def changes(lines):
    """(kind, line number, changed line or None) of every place."""
    for number, line in enumerate(lines):
        if re.search(r'"\w+\.\w+"\(', line) and not line.rstrip().endswith("({"):
            yield "operation", number, None
        for begin, end in entries(line):
            yield "attribute", number, line[:begin] + line[end:]
        for match in re.finditer(r"(?<![\w.#])(\d+) : i64", line):
            yield ("integer", number, line[:match.start(1)] +
                   str(int(match[1]) + 1) + line[match.end(1):])
        for match in re.finditer(r'@[\w."]+', line):
            yield ("symbol", number,
                   line[:match.start()] + "@nothing" + line[match.end():])


class Folder:
    """A model's IR after a phase, and what becomes of changes to it."""

    def __init__(self, path):
        self.path = path

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="utf-8") as file:
            file.write(text)

    def lines(self, fields, plan, phase):
        """The IR, in the generic form, which compiles."""
        self.write("config.json", json.dumps(fields))
        made = run("galvatron-compile", self.file("config.json"), "--cluster=4xcpu",
                   "--batch=8", *plan, "--compile-to=" + phase, "-o",
                   self.file("ir.mlir"))
        assert made.returncode == 0, made.stderr
        printed = run("galvatron-opt", self.file("ir.mlir"),
                      "--mlir-print-op-generic")
        assert printed.returncode == 0, printed.stderr
        self.write("changed.mlir", printed.stdout)
        whole = self.compile_on(phase)
        assert whole.returncode == 0, whole.stderr
        return printed.stdout.split("\n")

    def compile_on(self, phase):
        return run("galvatron-compile", self.file("changed.mlir"),
                   "--cluster=4xcpu", "--compile-from=" + phase, "-o",
                   self.file("program.gvx"))

    def outcome(self, phase):
        """'accepted', 'refused', or what went wrong."""
        try:
            result = self.compile_on(phase)
        except subprocess.TimeoutExpired:
            return "no end in 120 s"
        if result.returncode == 0:
            return "accepted"
        if (result.returncode in (1, 2) and "error" in result.stderr and
                "Assertion" not in result.stderr):
            return "refused"
        return f"exit {result.returncode}: {result.stderr[-600:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--keep", default=".")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    tried, accepted, broken = collections.Counter(), collections.Counter(), 0
    folder = Folder(tempfile.mkdtemp())
    phases = options.phases.split(",")
    for name, (fields, plan) in MODELS.items():
        for phase in phases:
            lines = folder.lines(fields, plan, phase)
            places = list(changes(lines))
            draw.shuffle(places)
            for kind in KINDS:
                for _, number, line in [place for place in places
                                        if place[0] == kind][:options.each]:
                    folder.write("changed.mlir", "\n".join(
                        lines[:number] + ([] if line is None else [line]) +
                        lines[number + 1:]))
                    outcome = folder.outcome(phase)
                    tried[phase, kind] += 1
                    accepted[phase, kind] += outcome == "accepted"
                    if outcome in ("accepted", "refused"):
                        continue
                    broken += 1
                    kept = os.path.join(options.keep, f"broken-{broken}.mlir")
                    shutil.copy(folder.file("changed.mlir"), kept)
                    print(f"{name} after phase {phase}, {kind} in line {number}"
                          f", kept as {kept}: {outcome}")
    shutil.rmtree(folder.path)
    for phase in phases:
        print(phase + ":", ", ".join(
            f"{accepted[phase, kind]} of {tried[phase, kind]} {kind} changes "
            "accepted" for kind in KINDS))
    print(f"{sum(tried.values())} changes, {broken} not refused as they should "
          "be")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
