# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Galvatron from Python: plan, compile and train models.

    import galvatron
    model = galvatron.from_config("config.json")
    plan = model.plan(cluster="4xcpu", memory="1GiB", batch=8)
    model.compile(plan=plan)
    for step in model.train(data="train.txt", steps=100):
        print(step.step, step.loss)
    weights = model.state_dict()

A PyTorch module comes in by `galvatron.from_torch(module, example_inputs)`;
everything else needs no PyTorch. The programs of Galvatron are looked up as
`galvatron.tools.find` says.
"""

from .errors import (Error, Infeasible, InvalidInput, NumericsError, OutOfMemory,
                     PeerLost, RunFailed, StorageError, ToolNotFound, Unsupported,
                     UnsupportedOperation)
from .model import Model, clusters, from_config, from_graph
from .plan import Layer, Plan, Stage
from .program import Evaluation, Program
from .training import Step, Summary, Training
from .weights import Weights

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # PyTorch is imported when it is asked for.
    if name in ("from_torch", "TorchModel"):
        from . import torch_frontend  # pylint: disable=import-outside-toplevel
        return getattr(torch_frontend, name)
    raise AttributeError(f"module 'galvatron' has no attribute '{name}'")

__all__ = [
    "Error", "Evaluation", "Infeasible", "InvalidInput", "Layer", "Model",
    "NumericsError", "OutOfMemory", "PeerLost", "Plan", "Program", "RunFailed",
    "Stage", "Step", "StorageError", "Summary", "ToolNotFound", "Training",
    "Unsupported", "UnsupportedOperation", "Weights", "clusters", "from_config",
    "from_graph",
]
