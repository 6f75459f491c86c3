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

import importlib
import json
import os
import sys

import steps

os.environ["DS_ACCELERATOR"] = "cpu"
try:
    import deepspeed
    import torch
    import transformers  # noqa: F401, of the model
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

STEPS = 2


def rank(path):
    # Its sums in shared memory are C++ that it compiles as processes start, for
    # minutes on a busy machine, without a word and under a lock that a stopped run
    # leaves behind. No file says them.
    backend = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    model = steps.tiny_llama()
    engine, *_ = deepspeed.initialize(
        model=model, config=path,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
    torch.manual_seed(1 + torch.distributed.get_rank())
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        words = steps.words(engine.train_micro_batch_size_per_gpu())
        loss = engine(input_ids=words, labels=words).loss
        engine.backward(loss)
        engine.step()
        assert torch.isfinite(loss)
    assert engine.global_steps == STEPS
    if torch.distributed.get_rank() == 0:
        print(f"stage {engine.zero_optimization_stage()}: {STEPS} steps", flush=True)
    # The ends of its threads abort a process now and then ("terminate called
    # without an active exception"): steps are what is tested.
    torch.distributed.barrier()
    os._exit(0)


def main(binaries):
    with steps.written(binaries, "deepspeed") as folder:
        written = json.loads((folder / "deepspeed.json").read_text())
        for stage in (1, 2, 3):
            written["zero_optimization"]["stage"] = stage
            path = folder / f"stage{stage}.json"
            path.write_text(json.dumps(written))
            steps.start([sys.executable, "-m", "torch.distributed.run",
                         "--nproc-per-node=2", "--rdzv-backend=c10d",
                         "--rdzv-endpoint=localhost:0", __file__, "--rank", path],
                        f"stage {stage}: {STEPS} steps")
            print(f"DeepSpeed {deepspeed.__version__}, stage {stage}: {STEPS} steps "
                  "on two processes", flush=True)


if sys.argv[1] == "--rank":
    rank(sys.argv[2])
else:
    main(sys.argv[1])
