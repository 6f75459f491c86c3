#!/usr/bin/env python3
#===- accelerate_step.py - Steps of accelerate by a written file ---------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Trains a tiny LLaMA for two steps on two processes, by the YAML that
galvatron-plan --for=fsdp writes for two devices, without a GPU (FSDP2 over gloo).

  accelerate_step.py BIN         writes the file and starts accelerate's launcher
  accelerate_step.py --rank ..   is one of the processes that this starts

accelerate's launcher reads the file and starts both; the classes that it has for
FSDP2 make of its environment what they shard, and how. Of processes without a GPU
it takes no FSDP, whatever a file says, so the one choice that asks for a device is
made here in its place. Exit code 77 where accelerate or transformers is missing.
"""

import os
import sys

import steps

try:
    import accelerate
    import torch
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# Two batches of two micro-batches each.
STEPS, ACCUMULATION = 2, 2


def accelerator_of_file():
    """The accelerator that the launcher's environment says, as it would be on
    devices that accelerate takes FSDP for."""
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=ACCUMULATION)
    state = accelerator.state
    assert state.distributed_type is DistributedType.MULTI_CPU
    plugin = FullyShardedDataParallelPlugin()
    plugin.set_mixed_precision(state.mixed_precision)
    state.distributed_type = DistributedType.FSDP
    state.fsdp_plugin = plugin
    assert accelerator.is_fsdp2
    return accelerator


def rank():
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    accelerator = accelerator_of_file()
    torch.manual_seed(0)
    model = steps.tiny_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    assert sum(isinstance(part, FSDPModule) for part in model.modules()) > 2
    assert all(isinstance(weight, DTensor) for weight in model.parameters())
    before = [weight.to_local().clone() for weight in model.parameters()]
    torch.manual_seed(1 + accelerator.process_index)
    done = 0
    for _ in range(STEPS * ACCUMULATION):
        with accelerator.accumulate(model):
            words = steps.words(1)
            loss = model(input_ids=words, labels=words).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            done += accelerator.sync_gradients
        assert torch.isfinite(loss)
    assert done == STEPS
    assert any((old != new.to_local()).any()
               for old, new in zip(before, model.parameters()))
    if accelerator.is_main_process:
        plugin = accelerator.state.fsdp_plugin
        print(f"reshards {bool(plugin.reshard_after_forward)}: {STEPS} steps",
              flush=True)
    accelerator.end_training()


def main(binaries):
    with steps.written(binaries, "fsdp") as folder:
        written = (folder / "fsdp.yaml").read_text()
        for reshards in ("true", "false"):
            path = folder / f"reshards-{reshards}.yaml"
            key = "fsdp_reshard_after_forward: "
            assert written.count(key) == 1
            line = next(line for line in written.splitlines() if key in line)
            path.write_text(written.replace(line, f"  {key}{reshards}"))
            # Both want a GPU as soon as they are read.
            environment = dict(os.environ, FSDP_SYNC_MODULE_STATES="false",
                               FSDP_CPU_RAM_EFFICIENT_LOADING="false")
            steps.start([sys.executable, "-m", "accelerate.commands.launch",
                         "--config_file", path, "--main_process_port", "0",
                         __file__, "--rank"],
                        f"reshards {reshards.capitalize()}: {STEPS} steps",
                        environment)
            print(f"accelerate {accelerate.__version__}, FSDP2, "
                  f"reshard_after_forward {reshards}: {STEPS} steps on two "
                  "processes", flush=True)


if sys.argv[1] == "--rank":
    rank()
else:
    main(sys.argv[1])
