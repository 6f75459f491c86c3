#===- steps.py - What tests of steps by written files share --------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""A tiny LLaMA, files that galvatron-plan writes for it on two devices, and
processes that train it, with their output where they fail or do not end."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SHAPE = {"layers": 2, "hidden": 64, "heads": 4, "key-heads": 2, "ffn": 128,
         "vocabulary": 256, "tokens": 64, "gated": True}
# Seconds for two steps, most of which are imports: 10 to 60.
PATIENCE = 400


def tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=SHAPE["layers"], hidden_size=SHAPE["hidden"],
        num_attention_heads=SHAPE["heads"], num_key_value_heads=SHAPE["key-heads"],
        intermediate_size=SHAPE["ffn"], vocab_size=SHAPE["vocabulary"]))


def words(samples):
    import torch

    return torch.randint(0, SHAPE["vocabulary"], (samples, SHAPE["tokens"]))


@contextlib.contextmanager
def written(binaries, target):
    """A folder with the files of the target's plan for two devices."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "tiny.json"
        model.write_text(json.dumps({"version": 1, "shape": SHAPE}))
        subprocess.run([f"{binaries}/galvatron-plan", model, "--cluster=2xh100",
                        "--batch=8", f"--for={target}", f"--launch={folder}"],
                       check=True, stdout=subprocess.DEVNULL)
        yield folder


def start(command, expected, environment=None):
    """Runs a launcher until it ends, at most PATIENCE seconds; exits with all that
    it wrote where that is not what is expected."""
    environment = dict(environment or os.environ, OMP_NUM_THREADS="1",
                       PYTHONUNBUFFERED="1", TOKENIZERS_PARALLELISM="false")
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(list(map(str, command)), stdout=output,
                                   stderr=subprocess.STDOUT, env=environment)
        try:
            ended = f"ended with {process.wait(PATIENCE)}"
        except subprocess.TimeoutExpired:
            ended = "did not end"
            # The launchers end what they started, in sessions of its own, where
            # they are told to end, and wait half a minute for it.
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        output.seek(0)
        text = output.read()
    if expected not in text or ended != "ended with 0":
        sys.exit(f"{text}\nexpected '{expected}' of {' '.join(map(str, command))}, "
                 f"which {ended} after {time.monotonic() - begin:.0f} s")
