# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models: planned, compiled, trained."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any, Dict, List, Optional, Tuple, Union

from . import errors, tools
from .graph import Graph, build, write
from .plan import Plan
from .program import Evaluation, Program
from .training import Training
from .weights import Weights

Path = Union[str, "os.PathLike[str]"]

# What galvatron-compile wants again beside a plan, since it changes what the
# plan costs.
_WITH_A_PLAN = ("memory", "dtype", "optimizer", "clip", "dropout", "decay_all",
                "seq_len", "decoder_seq_len", "adapters", "documents",
                "document_length", "label_smoothing", "z_loss")


class Model:
    """A model from a file: a Hugging Face `config.json`, or IR (`.mlir`).

    Every option of the tools is a keyword: `max_batch=64` is `--max-batch=64`.
    `weights` is what training starts from and evaluation uses; training leaves its
    result there. Of a model compiled with `adapters` the result is `adapters`, a
    folder as PEFT has it, which is used beside `weights`."""

    def __init__(self, path: Path, *, seq_len: Optional[int] = None,
                 decoder_seq_len: Optional[int] = None,
                 weights: Optional[Path] = None):
        self.path = pathlib.Path(path)
        if not self.path.exists():
            raise errors.InvalidInput(f"{path}: expected a configuration or IR, "
                                      "found no file")
        self._lengths = {"seq_len": seq_len, "decoder_seq_len": decoder_seq_len}
        self.weights: Optional[pathlib.Path] = pathlib.Path(weights) if weights \
            else None
        self.adapters: Optional[pathlib.Path] = None
        self.program: Optional[Program] = None
        # Names of parameters that are not trained.
        self.frozen: Tuple[str, ...] = ()
        self._folder = tools.folder_of(self)
        self._runs = 0

    def __repr__(self) -> str:
        return f"Model('{self.path}')"

    def ir(self) -> str:
        """The model in nn operations, as text."""
        if self.path.suffix == ".json":
            return tools.call("galvatron-import", [
                str(self.path), *tools.arguments(self._options())])
        return tools.call("galvatron-opt", [str(self.path)])

    def plan(self, cluster: Path, *, memory: Union[str, int, None] = None,
             batch: Optional[int] = None, **options: Any) -> Plan:
        """Plans the model for a cluster (a built-in name or a file). Raises
        Infeasible, with what would help, if nothing fits."""
        options = self._options(memory=memory, batch=batch, **options)
        with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
            path = os.path.join(folder, "plan.json")
            done = tools.run("galvatron-plan", [
                str(self.path), f"--json={path}",
                *tools.arguments({"cluster": cluster, **options})])
            data = _read_json(path)
            if done.returncode:
                raise _planning_error(done.returncode, data,
                                      tools.message_of(done, "galvatron-plan"))
            return Plan(data, done.stdout, self.path, cluster,
                        {name: options[name] for name in _WITH_A_PLAN
                         if name in options})

    def compile(self, path: Optional[Path] = None, *,
                cluster: Optional[Path] = None, plan: Optional[Plan] = None,
                memory: Union[str, int, None] = None, batch: Optional[int] = None,
                **options: Any) -> Program:
        """Compiles the model for `plan`, or plans it first; writes the program to
        `path`, or to a folder that goes with this object."""
        options = self._options(memory=memory, batch=batch, **options)
        if plan is not None:
            cluster = cluster if cluster is not None else plan.cluster
            options = {**plan.options, **options}
        if path is None:
            path = os.path.join(self._folder, "program.gvx")
        with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
            if plan is not None:
                options["plan"] = os.path.join(folder, "plan.json")
                plan.save(options["plan"])
            answer = os.path.join(folder, "answer.json")
            done = tools.run("galvatron-compile", [
                str(self.path), f"--json={answer}", "-o", os.fspath(path),
                *tools.arguments({"cluster": cluster, **options})])
            if done.returncode:
                raise _planning_error(done.returncode, _read_json(answer),
                                      tools.message_of(done, "galvatron-compile"))
        self.program = Program(path)
        return self.program

    def train(self, data: Any, steps: int, *, save: Optional[Path] = None,
              init: Optional[Path] = None, **options: Any) -> Training:
        """Trains the compiled program, from `weights` where there are some. Once
        the run has ended, `weights` is its result, in `save` or in a folder that
        goes with this object."""
        program = self._compiled()
        groups = [f"{name}:frozen" for name in self.frozen]
        if groups:
            given = options.get("parameter_groups")
            options["parameter_groups"] = ";".join(([given] if given else []) + groups)
        if save is None:
            self._runs += 1
            save = os.path.join(self._folder, f"run-{self._runs}")
        result = pathlib.Path(save)

        def ended(_: Training) -> None:
            if (result / "model.safetensors").exists():
                self.weights = result
            elif (result / "adapter_model.safetensors").exists():
                self.adapters = result

        if self.adapters is not None:
            options.setdefault("adapters", self.adapters)
        return program.train(data, steps, init=init or self.weights, save=save,
                             on_end=ended, **options)

    def evaluate(self, data: Any, **options: Any) -> Evaluation:
        """The loss of `weights` over `data`."""
        return self._compiled().evaluate(data, **{**self._beginning(), **options})

    def generate(self, prompt: str, tokens: int = 64, **options: Any) -> str:
        """The continuation of a text, a token a byte; greedy, unless `temperature`
        is given."""
        return self._compiled().generate(prompt, tokens,
                                         **{**self._beginning(), **options})

    def state_dict(self) -> Weights:
        """The weights: what training left, or what the model began with."""
        if self.weights is None:
            raise errors.InvalidInput(
                "expected weights: train the model, or name a file with some")
        return Weights(self.weights)

    def _beginning(self) -> Dict[str, Any]:
        return {"init": self.weights} | (
            {"adapters": self.adapters} if self.adapters is not None else {})

    def _compiled(self) -> Program:
        if self.program is None:
            raise errors.InvalidInput(
                "expected a compiled model: call 'compile' first")
        return self.program

    def _options(self, **options: Any) -> Dict[str, Any]:
        options = {**self._lengths, **options}
        return {name: value for name, value in options.items() if value is not None}


def from_config(path: Path, *, seq_len: Optional[int] = None,
                decoder_seq_len: Optional[int] = None,
                weights: Optional[Path] = None) -> Model:
    """A model from a Hugging Face `config.json`, or from the folder with it and,
    where it is there, `model.safetensors`."""
    path = pathlib.Path(path)
    if path.is_dir():
        if weights is None and (path / "model.safetensors").exists():
            weights = path
        path = path / "config.json"
    return Model(path, seq_len=seq_len, decoder_seq_len=decoder_seq_len,
                 weights=weights)


def from_graph(graph: Graph, *, weights: Optional[Path] = None,
               element: str = "f32") -> Model:
    """A model written with `galvatron.graph.Graph`, in layers that are found in it.
    Parameters and activations have the type `element`, f32 or f64."""
    if graph.loss is None:
        raise errors.InvalidInput(f"graph '{graph.name}': expected a loss, found none")
    if element not in ("f32", "f64"):
        raise errors.InvalidInput(f"expected the element type f32 or f64, found "
                                  f"'{element}'")
    layered = build(graph)
    names = [parameter.name for parameter in layered.parameters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.InvalidInput(f"expected parameters of different names, found "
                                  f"'{twice[0]}' twice")
    folder = tempfile.mkdtemp(prefix="galvatron-")
    path = pathlib.Path(folder) / "model.mlir"
    path.write_text(write(layered, element), encoding="utf-8")
    model = Model(path, weights=weights)
    tools.remove_with(model, folder)
    return model


def clusters() -> List[str]:
    """The device types of built-in clusters, as a table a line each."""
    return tools.call("galvatron-plan", ["--list-clusters"]).splitlines()


def _read_json(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            result: Dict[str, Any] = json.load(file)
            return result
    except (OSError, ValueError):
        return {}


def _planning_error(code: int, data: Dict[str, Any], message: str) -> errors.Error:
    if "infeasible" in data:
        return errors.Infeasible(message, data["infeasible"])
    return errors.from_exit_code(code, message)
