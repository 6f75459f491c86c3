#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains models that are larger than the arenas of all devices together.

    packs_learn.py --bin=build/bin [--steps=N] [--large]

The model of scripts/demo learns a text on four CPU ranks whose arenas together
hold less than half of its states, and on one rank that has everything: every
step has the same loss, up to rounding, and the text is learned. With --large
GPT-2 large (774M parameters, 11.5 GiB of states in f32) takes three steps of 128
tokens in four arenas of 1 GiB, which needs some 20 GiB of host memory, where
there are so many; how long a step took is printed beside the prediction.
GALVATRON_LONG=1 does both; without it and without an option nothing is done.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

DEMO = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 128,
        "n_embd": 320, "n_layer": 4, "n_head": 8,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.04, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attn_pdrop": 0.0}
LARGE = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
         "n_embd": 1280, "n_layer": 36, "n_head": 20,
         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
         "initializer_range": 0.02, "resid_pdrop": 0.1, "embd_pdrop": 0.1,
         "attn_pdrop": 0.1}


class Trainer:
    """Compiles and runs programs in one folder."""

    def __init__(self, tools, folder, model):
        self.tools, self.folder = pathlib.Path(tools), folder
        self.config = folder / "config.json"
        self.config.write_text(json.dumps(model))

    def compile(self, name, *options):
        """The program's plan, too."""
        program = self.folder / f"{name}.gvx"
        plan = self.folder / f"{name}.json"
        subprocess.run([self.tools / "galvatron-compile", self.config, *options,
                        f"--json={plan}", "-o", program],
                       check=True, stdout=subprocess.DEVNULL)
        return program, json.loads(plan.read_text())

    def train(self, program, *options):
        """Losses of all steps, and the summary."""
        log, summary = self.folder / "log.jsonl", self.folder / "summary.json"
        log.unlink(missing_ok=True)
        subprocess.run([self.tools / "galvatron-run", program,
                        f"--log={log}", f"--summary={summary}", *options],
                       check=True, stdout=subprocess.DEVNULL)
        lines = map(json.loads, log.read_text().splitlines())
        losses = [line["loss"] for line in lines if "loss" in line]
        return losses, json.loads(summary.read_text())


def check_fill(summary):
    """No rank takes more than planned, and the fullest nearly all of it."""
    fills = []
    for rank in summary["ranks"]:
        planned, measured = (rank[f"{kind}-peak-bytes"]
                             for kind in ("planned", "measured"))
        assert measured <= planned, rank
        fills.append(measured / planned)
    assert max(fills) >= 0.95, fills
    return fills


def arenas(plan):
    return [stage["peak-bytes"] for stage in plan["stages"]
            for _ in stage["devices"]]


def plan_of_cut_layers(trainer, asked):
    """Packs of one layer each, which all four ranks run together: a fourth of
    each layer is on each. A block alone is a fifth of the states."""
    path = trainer.folder / "cut.json"
    subprocess.run([trainer.tools / "galvatron-plan", trainer.config,
                    "--cluster=4xcpu", *asked, "--memory=24MiB",
                    "--space=harmony-dp", f"--json={path}"],
                   check=True, stdout=subprocess.DEVNULL)
    plan = json.loads(path.read_text())
    count = len(plan["layers"])
    for layer in plan["layers"]:
        layer.update(strategy="tp4", stage=0)
    plan.update({"packs-f": list(range(count - 1)),
                 "packs-b": list(range(count)),
                 "micro-batches": plan["batch"]})
    plan.pop("micro-batches-f", None)
    packs = [{"first-layer": first, "layer-count": 1} for first in range(count)]
    plan["stages"][0].update(packs[0], chunks=packs)
    path.write_text(json.dumps(plan))
    return path


def demo(tools, folder, steps):
    trainer = Trainer(tools, folder, DEMO)
    # A text of one writer.
    text = folder / "text.txt"
    text.write_text("".join(path.read_text() for path in
                            sorted((SOURCE / "docs").glob("*.md"))))
    asked = ["--batch=8", "--seq-len=128"]
    alone, whole = trainer.compile("alone", "--cluster=1xcpu", *asked,
                                   "--strategy=single", "--micro-batches=1")
    packs, plan = trainer.compile(
        "packs", "--cluster=4xcpu", "--seq-len=128",
        f"--plan={plan_of_cut_layers(trainer, asked)}")
    options = [f"--data={text}", "--data-format=text", f"--steps={steps}",
               "--lr=1e-3", "--min-lr=1e-4",
               f"--warmup-steps={min(20, steps // 2)}", "--seed=1"]
    expected, _ = trainer.train(alone, *options)
    found, summary = trainer.train(packs, *options)
    ledger = whole["stages"][0]["ledger"]
    states = sum(ledger[kind] for kind in
                 ("parameters", "gradients", "optimizer"))
    together = sum(arenas(plan))
    worst = max(abs(a - b) / a for a, b in zip(expected, found))
    print(f"states {states} bytes, arenas {together} "
          f"({100 * together / states:.1f}%), filled "
          + " ".join(f"{100 * fill:.1f}%" for fill in check_fill(summary))
          + f"; loss {found[0]:.3f} to {found[-1]:.3f} in {len(found)} steps, "
          f"on one rank to {expected[-1]:.3f}, at most {worst:.1e} apart")
    assert len(found) == len(expected) == steps
    assert 2 * together < states, (together, states)
    assert worst < 2e-3, worst
    assert found[-1] < 0.7 * found[0], found


def large(tools, folder):
    trainer = Trainer(tools, folder, LARGE)
    program, plan = trainer.compile(
        "large", "--cluster=4xcpu", "--batch=4", "--seq-len=32",
        "--memory=1GiB", "--space=harmony-pp")
    text = folder / "text.bin"
    text.write_bytes(bytes(range(256)) * 64)
    losses, summary = trainer.train(program, f"--data={text}", "--steps=3")
    assert max(arenas(plan)) <= 1 << 30, plan
    assert losses[-1] < losses[0], losses
    print(f"GPT-2 large: arenas {arenas(plan)} bytes, filled "
          + " ".join(f"{100 * fill:.1f}%" for fill in check_fill(summary))
          + f"; losses {losses}; a step {summary['median-step-ms']:.0f} ms, "
          f"predicted {summary['predicted-step-ms']:.0f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    everything = bool(os.environ.get("GALVATRON_LONG"))
    if not (everything or arguments.steps or arguments.large):
        print("runs with GALVATRON_LONG=1")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if everything or arguments.steps:
            demo(arguments.bin, folder, arguments.steps or 300)
        if everything or arguments.large:
            available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if available < 20 << 30 and not arguments.large:
                print(f"GPT-2 large: left out, {available >> 30} GiB are free")
            else:
                large(arguments.bin, folder)


if __name__ == "__main__":
    main()
