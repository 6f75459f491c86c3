# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a graph as IR: parameters, a body for every kind of layer, the model."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Dict, List, Sequence

from . import factors, layers
from .graph import Datum, Graph, Op, Operand, Parameter, Tensor, Use

@dataclasses.dataclass
class Layered:
    """A graph in layers, and the name of every layer's body."""

    graph: Graph
    layers: List[layers.Layer]
    bodies: List[str]
    parameters: List[Parameter]


def build(graph: Graph) -> Layered:
    """Cuts a graph with a loss into layers."""
    assert graph.loss is not None
    ops = graph.live()
    found = layers.find(ops, graph.loss)
    bodies: Dict[str, str] = {}
    taken: Dict[str, int] = {}
    for layer in found:
        if layer.key in bodies:
            continue
        stem = _word(layer.kind.rsplit(".", 1)[-1]).lower()
        taken[stem] = taken.get(stem, 0) + 1
        suffix = "" if taken[stem] == 1 else str(taken[stem])
        bodies[layer.key] = f"{_word(graph.name)}.{stem}{suffix}"
    parameters: Dict[int, Parameter] = {}
    for layer in found:
        for use in layer.uses:
            parameters.setdefault(id(use.parameter), use.parameter)
    return Layered(graph, found, [bodies[layer.key] for layer in found],
                   list(parameters.values()))


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text) or "model"


def _symbol(name: str) -> str:
    return "@" + json.dumps(name)


def _number(value: float) -> str:
    return f"{value:.17e}"


def _attribute(value: Any) -> str:
    if isinstance(value, list):
        return f"array<f64: {', '.join(_number(part) for part in value)}>"
    if isinstance(value, float):
        return f"{_number(value)} : f64"
    return f"{value} : i64"


def _attributes(values: Dict[str, Any]) -> str:
    parts = [key if value is True else f"{key} = {_attribute(value)}"
             for key, value in sorted(values.items())]
    return " {" + ", ".join(parts) + "}" if parts else ""


def _type(operand: Operand, element: str) -> str:
    dims = [str(size) for size in operand.shape]
    if isinstance(operand, Use):
        return f"tensor<{'x'.join(dims + [element])}>"
    if operand.element == "loss":
        return "tensor<1xf64>"
    kind = {"float": element, "integer": "i32",
            "statistics": element}[operand.element]
    return f"tensor<{'x'.join(['?'] + dims + [kind])}>"


def _types(operands: Sequence[Operand], element: str) -> str:
    return "(" + ", ".join(_type(operand, element) for operand in operands) + ")"


def _results(tensors: Sequence[Tensor], element: str) -> str:
    text = ", ".join(_type(tensor, element) for tensor in tensors)
    return text if len(tensors) == 1 else f"({text})"


def write(layered: Layered, element: str = "f32") -> str:
    """The module as text, with parameters and activations of type `element`."""
    lines = [_parameter(parameter, element) for parameter in layered.parameters]
    done = set()
    for layer, body in zip(layered.layers, layered.bodies):
        if body not in done:
            done.add(body)
            lines += _body(layer, body, element)
    return "\n".join(lines + _model(layered, element)) + "\n"


def _parameter(parameter: Parameter, element: str) -> str:
    dims = "x".join([str(size) for size in parameter.shape] + [element])
    attributes = []
    # Decay acts on matrices and what is larger.
    if len(parameter.shape) >= 2:
        attributes.append("decay")
    attributes.append(f'init = "{parameter.init}"')
    if parameter.init == "normal":
        attributes.append(f"std = {_number(parameter.std)} : f64")
    return f"galvatron.parameter {_symbol(parameter.name)} : tensor<{dims}> " \
           f"{{{', '.join(attributes)}}}"


def _body(layer: layers.Layer, name: str, element: str) -> List[str]:
    found = factors.find(layer.ops, layer.inputs, layer.uses, layer.outputs)
    values: Dict[Any, str] = {}
    arguments = []
    for tensor in layer.inputs:
        values[id(tensor)] = f"%x{len(values)}"
        arguments.append(f"{values[id(tensor)]}: {_type(tensor, element)}")
    for use in layer.uses:
        key = (id(use.parameter), use.shape)
        values[key] = f"%p{len(values)}"
        dims = found.dims[id(use)]
        note = " {nn.factors = [" + ", ".join(f'"{dim}"' for dim in dims) + "]}" \
            if any(dims) else ""
        arguments.append(f"{values[key]}: {_type(use, element)}{note}")
    notes = []
    if found.units:
        units = ", ".join(f"{key} = {value} : i64"
                          for key, value in sorted(found.units.items()))
        notes.append(f"nn.factor_units = {{{units}}}")
    for attribute, listed in (("shared", found.shared), ("uneven", found.uneven)):
        if listed:
            words = ", ".join(f'"{word}"' for word in listed)
            notes.append(f"nn.{attribute} = [{words}]")
    attributes = f" attributes {{{', '.join(notes)}}}" if notes else ""
    lines = [f"func.func private {_symbol(name)}(" + ",\n    ".join(arguments)
             + f") -> {_results(layer.outputs, element)}{attributes} {{"]
    random = 0
    for number, op in enumerate(layer.ops):
        extra: Dict[str, Any] = {}
        # Random numbers of a layer are told apart by the operation's number.
        if op.name in ("nn.dropout", "nn.drop_path") or op.attributes.get("dropout"):
            extra = {"op_index": random} if random else {}
            random += 1
        lines.append("  " + _op(op, number, values, element, extra))
    results = ", ".join(values[id(tensor)] for tensor in layer.outputs)
    types = ", ".join(_type(tensor, element) for tensor in layer.outputs)
    return lines + [f"  return {results} : {types}", "}"]


def _op(op: Op, number: int, values: Dict[Any, str], element: str,
        extra: Dict[str, Any]) -> str:
    words = [values[(id(operand.parameter), operand.shape)]
             if isinstance(operand, Use) else values[id(operand)]
             for operand in op.operands]
    operands = ", ".join(words)
    if op.name == "nn.grouped_attention":
        operands = ", ".join(words[:3]) + "".join(
            f" {'mask' if tensor.element == 'integer' else 'bias'} {word}"
            for tensor, word in zip(op.tensors[3:], words[3:]))
    for place, tensor in enumerate(op.results):
        values[id(tensor)] = f"%s{number}_{place}" if place else f"%v{number}"
    names = ", ".join(values[id(tensor)] for tensor in op.results)
    return f"{names} = {op.name} {operands}" \
           f"{_attributes({**op.attributes, **extra})} : " \
           f"{_types(op.operands, element)} -> {_results(op.results, element)}"


def _model(layered: Layered, element: str) -> List[str]:
    graph = layered.graph
    values: Dict[int, str] = {}
    arguments = []
    for tensor in graph.data:
        assert tensor.datum is not None
        values[id(tensor)] = f"%{_word(tensor.datum.name)}"
        arguments.append(f"{values[id(tensor)]}: {_type(tensor, element)} "
                         f"is {_datum(tensor.datum)}")
    lines = [f"galvatron.model {_symbol(_word(graph.name))}("
             + ",\n    ".join(arguments) + ") {"]
    for number, (layer, body) in enumerate(zip(layered.layers, layered.bodies)):
        inputs = ", ".join(values[id(tensor)] for tensor in layer.inputs)
        for place, tensor in enumerate(layer.outputs):
            values[id(tensor)] = f"%{number}#{place}" \
                if len(layer.outputs) > 1 else f"%{number}"
        result = f"%{number}:{len(layer.outputs)}" if len(layer.outputs) > 1 \
            else f"%{number}"
        params = ", ".join(_symbol(use.parameter.name) for use in layer.uses)
        lines.append(
            f"  {result} = galvatron.layer {json.dumps(layer.name)} {_symbol(body)}"
            f"({inputs})" + (f" params [{params}]" if params else "")
            + f"\n    : {_types(layer.inputs, element)} -> "
            + _results(layer.outputs, element))
    assert graph.loss is not None
    return lines + [f"  galvatron.output {values[id(graph.loss)]} : tensor<1xf64>",
                    "}"]


def _datum(datum: Datum) -> str:
    parts = [datum.kind]
    if datum.name != datum.kind:
        parts.append(f"name = {json.dumps(datum.name)}")
    if datum.below:
        parts.append(f"below = {datum.below}")
    return f"<{', '.join(parts)}>"
