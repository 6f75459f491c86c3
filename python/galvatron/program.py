# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled programs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any, Callable, Dict, Optional, Sequence, Union

from . import data as data_files
from . import errors, launchers, tools
from .training import Training

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The mean loss over the data, its exponential, over how many values it is a
    mean, and which part of these has the largest logit (None without values)."""

    loss: float
    perplexity: Optional[float]
    values: int
    accuracy: Optional[float]
    data: Dict[str, Any] = dataclasses.field(repr=False)


class Program:
    """A program that galvatron-compile wrote. Every option of galvatron-run is a
    keyword: `lr_schedule="cosine"` is `--lr-schedule=cosine`."""

    def __init__(self, path: Path):
        self.path = pathlib.Path(path)
        text = tools.call("galvatron-run", [str(path), "--describe", "--json"])
        self.facts: Dict[str, Any] = json.loads(text)

    @property
    def ranks(self) -> int:
        """How many ranks the program is for."""
        return int(self.facts["ranks"])

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return int(self.facts["parameters"])

    def __repr__(self) -> str:
        facts = self.facts
        return (f"Program('{self.path}': {self.parameters:,} parameters, "
                f"{facts['dtype']}, {self.ranks} rank{'s' * (self.ranks != 1)} on "
                f"{facts['backend']}, batch {facts['batch']})")

    def train(self, data: Any, steps: int, *, init: Optional[Path] = None,
              save: Optional[Path] = None,
              on_end: Optional[Callable[[Training], None]] = None,
              launcher: Optional[launchers.Launcher] = None,
              nproc: Optional[int] = None,
              hosts: Optional[Union[str, Sequence[str]]] = None,
              **options: Any) -> Training:
        """Starts a run of `steps` steps over `data` (data.options says what may
        stand there), from the weights `init`, or fresh ones. `save` is the folder
        for the weights at the end.

        Without a launcher a program for GPUs takes those of this machine, one for
        each rank, and one for the CPU runs in one process. `launcher` is
        "torchrun", "mpirun", "srun" or the words of a command; `nproc` how many
        processes it starts, one for each rank without it; `hosts` are mpirun's."""
        before = launchers.command(launcher, nproc, self.ranks, hosts)
        arguments = [str(self.path), f"--steps={steps}",
                     *launchers.ranks_of_each(launcher, nproc, self.ranks),
                     *tools.arguments({"init": init, "save": save, **options})]
        return Training(arguments, data, on_end, before)

    def evaluate(self, data: Any, *, init: Optional[Path] = None,
                 **options: Any) -> Evaluation:
        """The loss over `data`; trains nothing."""
        with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
            summary = self._summary([
                "--evaluate", *data_files.options(data, folder),
                *tools.arguments({"init": init, **options})], folder)
        found = summary["evaluation"]
        return Evaluation(found["loss"], found.get("perplexity"),
                          found.get("values", found.get("tokens")),
                          found.get("accuracy"), found)

    def generate(self, prompt: str, tokens: int = 64, *,
                 init: Optional[Path] = None, **options: Any) -> str:
        """The continuation of a text, a token a byte; greedy, unless `temperature`
        is given."""
        if not prompt:
            raise errors.InvalidInput("expected a text to continue, found none")
        with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
            return str(self._summary([
                "--steps=0", f"--generate={prompt}", f"--tokens={tokens}",
                *tools.arguments({"init": init, **options})], folder)["generated"])

    def gradients(self, data: Any, path: Path, *, init: Optional[Path] = None,
                  **options: Any) -> float:
        """Writes the gradients of the first step as safetensors, and returns its
        loss."""
        with self.train(data, 1, init=init, dump_gradients=path,
                        **options) as training:
            return training.wait().first_loss or 0.0

    def _summary(self, arguments: Any, folder: str) -> Dict[str, Any]:
        path = pathlib.Path(folder) / "summary.json"
        tools.call("galvatron-run",
                   [str(self.path), *arguments, f"--summary={path}"])
        result: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result
