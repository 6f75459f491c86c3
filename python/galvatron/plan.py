# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans as data."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import errors, tools

_BYTES_PER_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Layer:
    """How one layer runs: its stage and its strategy ('sdp2.tp4.ckpt')."""

    name: str
    stage: int
    strategy: str
    time_ms: float
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Stage:
    """The devices of a stage, its layers, its time, and its bytes by purpose.
    Times are those of a micro-batch, with and without synchronisation."""

    devices: Tuple[int, ...]
    first_layer: int
    layer_count: int
    time_ms: float
    time_nosync_ms: float
    peak_bytes: int
    available_bytes: Optional[int]
    ledger: Mapping[str, int]


class Plan:
    """What the planner chose. `data` is the whole of its JSON (docs/formats.md)."""

    def __init__(self, data: Mapping[str, Any], text: str = "",
                 source: Optional[pathlib.Path] = None,
                 cluster: Union[str, "os.PathLike[str]", None] = None,
                 options: Optional[Mapping[str, Any]] = None):
        for key in ("version", "stages", "layers"):
            if key not in data:
                raise errors.InvalidInput(f"expected a plan with the key '{key}'")
        self.data: Dict[str, Any] = dict(data)
        self._text = text
        self._source = source
        self.cluster = cluster if cluster is not None else data.get("cluster")
        # Those that the compiler wants again: they change what a plan costs.
        self.options: Dict[str, Any] = dict(options or {})
        self.stages = tuple(_stage(entry) for entry in data["stages"])
        self.layers = tuple(
            Layer(entry["name"], entry["stage"], entry["strategy"],
                  entry.get("time-ms", 0.0), entry.get("memory-bytes", 0))
            for entry in data["layers"])

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Plan":
        """Reads a plan that `save` or `galvatron-plan --json` wrote."""
        with open(path, encoding="utf-8") as file:
            try:
                data = json.load(file)
            except ValueError as error:
                raise errors.InvalidInput(f"{os.fspath(path)}: {error}") from error
        if not isinstance(data, dict):
            raise errors.InvalidInput(
                f"{os.fspath(path)}: expected the JSON object of a plan")
        return cls(data)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the plan as JSON; `galvatron-compile --plan` obeys it."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=2)
            file.write("\n")

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return int(self.data["batch"])

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a step is cut into."""
        return int(self.data["micro-batches"])

    @property
    def pipeline_degree(self) -> int:
        """The number of stages."""
        return int(self.data["pipeline-degree"])

    @property
    def schedule(self) -> str:
        """The order of passes in a pipeline."""
        return str(self.data["schedule"])

    @property
    def iteration_ms(self) -> float:
        """What a step is predicted to take."""
        return float(self.data["iteration-ms"])

    @property
    def samples_per_second(self) -> float:
        """Predicted."""
        return float(self.data["samples-per-second"])

    @property
    def peak_bytes(self) -> int:
        """Of the fullest device."""
        return max(stage.peak_bytes for stage in self.stages)

    def strategy(self, layer: str) -> str:
        """The strategy of a layer."""
        for entry in self.layers:
            if entry.name == layer:
                return entry.strategy
        names = ", ".join(f"'{entry.name}'" for entry in self.layers)
        raise KeyError(f"unknown layer '{layer}', expected one of {names}")

    def runs(self) -> List[Tuple[str, str, int, str]]:
        """Neighbours of equal stage and strategy together, as (first name, last
        name, stage, strategy)."""
        result: List[Tuple[str, str, int, str]] = []
        for layer in self.layers:
            if result and result[-1][2:] == (layer.stage, layer.strategy):
                result[-1] = (result[-1][0], layer.name, *result[-1][2:])
            else:
                result.append((layer.name, layer.name, layer.stage, layer.strategy))
        return result

    def __repr__(self) -> str:
        lines = [
            f"Plan of '{self.data.get('model', '')}' on "
            f"'{self.data.get('cluster', '')}': batch {self.batch} in "
            f"{self.micro_batches} micro-batch{'es' * (self.micro_batches != 1)}, "
            f"{len(self.stages)} stage{'s' * (len(self.stages) != 1)} "
            f"({self.schedule}), {self.iteration_ms:.3f} ms a step, "
            f"{self.samples_per_second:.1f} samples/s"]
        for index, stage in enumerate(self.stages):
            devices = f"{stage.devices[0]}-{stage.devices[-1]}" \
                if len(stage.devices) > 1 else str(stage.devices[0])
            lines.append(f"  stage {index}, devices {devices}: "
                         f"{stage.peak_bytes / _BYTES_PER_MIB:.2f} MiB, "
                         f"{stage.time_ms:.3f} ms a micro-batch")
            for first, last, of_stage, strategy in self.runs():
                if of_stage == index:
                    name = first if first == last else f"{first} to {last}"
                    lines.append(f"    {name}: {strategy}")
        return "\n".join(lines)

    def __str__(self) -> str:
        """The planner's table; without it what `repr` says."""
        return self._text.rstrip() or repr(self)

    def report(self) -> str:
        """The plan as a page of HTML with pictures."""
        if self._source is None:
            raise errors.InvalidInput(
                "expected a plan made by 'Model.plan': one from a file does not "
                "know its model")
        with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
            plan, page = os.path.join(folder, "plan.json"), os.path.join(folder, "p.html")
            self.save(plan)
            tools.call("galvatron-plan", [
                str(self._source), f"--plan={plan}", f"--report={page}",
                *tools.arguments({"cluster": self.cluster, **self.options})])
            return pathlib.Path(page).read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        if self._source is None:
            return f"<pre>{html.escape(str(self))}</pre>"
        page = html.escape(self.report(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="640"></iframe>'


def _stage(entry: Mapping[str, Any]) -> Stage:
    return Stage(tuple(entry["devices"]), entry["first-layer"], entry["layer-count"],
                 entry["time-ms"], entry["time-nosync-ms"], entry["peak-bytes"],
                 entry.get("available-bytes"), dict(entry["ledger"]))
