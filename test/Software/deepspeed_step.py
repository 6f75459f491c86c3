#!/usr/bin/env python3
#===- deepspeed_step.py - Steps of DeepSpeed by a written file -----------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Trains a tiny LLaMA for two steps on two processes, by the JSON that
galvatron-plan --for=deepspeed writes for two devices, without a GPU (gloo).

  deepspeed_step.py BIN         writes the file and starts the processes
  deepspeed_step.py --rank FILE is one of them

Exit code 77 where DeepSpeed or transformers is missing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["DS_ACCELERATOR"] = "cpu"
try:
    import deepspeed
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SHAPE = {"layers": 2, "hidden": 64, "heads": 4, "key-heads": 2, "ffn": 128,
         "vocabulary": 256, "tokens": 64, "gated": True}
STEPS = 2


def rank(path):
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=SHAPE["layers"], hidden_size=SHAPE["hidden"],
        num_attention_heads=SHAPE["heads"], num_key_value_heads=SHAPE["key-heads"],
        intermediate_size=SHAPE["ffn"], vocab_size=SHAPE["vocabulary"]))
    engine, *_ = deepspeed.initialize(
        model=model, config=path,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
    torch.manual_seed(1 + torch.distributed.get_rank())
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        words = torch.randint(0, SHAPE["vocabulary"], (
            engine.train_micro_batch_size_per_gpu(), SHAPE["tokens"]))
        loss = engine(input_ids=words, labels=words).loss
        engine.backward(loss)
        engine.step()
        assert torch.isfinite(loss)
    assert engine.global_steps == STEPS
    if torch.distributed.get_rank() == 0:
        print(f"stage {engine.zero_optimization_stage()}: {STEPS} steps")


def main(binaries):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "tiny.json"
        model.write_text(json.dumps({"version": 1, "shape": SHAPE}))
        subprocess.run([f"{binaries}/galvatron-plan", model, "--cluster=2xh100",
                        "--batch=8", "--for=deepspeed", f"--launch={folder}"],
                       check=True, stdout=subprocess.DEVNULL)
        written = json.loads((folder / "deepspeed.json").read_text())
        for stage in (1, 2, 3):
            written["zero_optimization"]["stage"] = stage
            path = folder / f"stage{stage}.json"
            path.write_text(json.dumps(written))
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                 "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", __file__,
                 "--rank", path],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False)
            if f"stage {stage}: {STEPS} steps" not in done.stdout:
                raise SystemExit(done.stdout)
            print(f"stage {stage}: {STEPS} steps on two processes")


if sys.argv[1] == "--rank":
    rank(sys.argv[2])
else:
    main(sys.argv[1])
