# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the layers of a graph.

The list of operations is cut wherever one activation, and nothing else, goes on (or
two, where the pieces would be large): between two such places there is a *segment*.
Segments that follow each other in a pattern that repeats are blocks, and each round
of the pattern is a layer; of the others, each with a product, a lookup or attention
is one, together with the light ones around it. Layers that do the same share a body.
The modules that operations come from decide between cuts that are as good, and give
the names."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from .graph import PATHS, Op, Tensor, Use

# Operations that are worth a layer.
_HEAVY = ("nn.linear", "nn.embedding", "nn.attention", "nn.grouped_attention",
          "nn.window_attention")
# A segment with more of them is cut where more than one tensor goes on; a block of
# parallel branches with separate projections has eight.
_MOST_HEAVY = 8
# Layers with more inputs are not made: each is sent between stages.
_MOST_LIVE = 4
# Longer patterns are not looked for: they would be many layers.
_MOST_SEGMENTS_OF_A_BLOCK = 64


@dataclasses.dataclass
class Layer:
    """Operations that run together: what they take, parameters as the body sees
    them, and what later layers take of them. `kind` is the class of their module,
    or a name."""

    name: str
    kind: str
    ops: List[Op]
    inputs: List[Tensor]
    uses: List[Use]
    outputs: List[Tensor]
    key: str


def find(ops: Sequence[Op], loss: Tensor) -> List[Layer]:
    """The layers of operations that are in order and all needed."""
    segments = _segments(ops)
    groups = _group(segments, loss)
    layers = [_layer(group, ops, loss) for group in groups]
    _pass_on(layers)
    _fit_paths(layers)
    _name(layers)
    return layers


def _pass_on(layers: Sequence[Layer]) -> None:
    """Has a layer that begins with data alone, as the words of a decoder do, take what
    the layer in front gives last, and give it on: only the first may take nothing."""
    for front, layer in zip(layers, layers[1:]):
        if any(tensor.datum is None for tensor in layer.inputs):
            continue
        passed = front.outputs[-1]
        layer.inputs.insert(0, passed)
        layer.outputs.insert(0, passed)
        layer.key = _key(layer.inputs, layer.uses, layer.outputs, layer.ops)


def _fit_paths(layers: Sequence[Layer]) -> None:
    """Says how often layers drop paths in terms of their number in the model, so that
    those in which it grows evenly share a body; others get one of their own."""
    together: Dict[str, List[int]] = {}
    for number, layer in enumerate(layers):
        if any(PATHS in op.attributes for op in layer.ops):
            together.setdefault(layer.key, []).append(number)
    for numbers in together.values():
        places = [place for place, op in enumerate(layers[numbers[0]].ops)
                  if PATHS in op.attributes]
        found = [_line([(number, layers[number].ops[place].attributes[PATHS])
                        for number in numbers]) for place in places]
        for number in numbers:
            layer = layers[number]
            for place, line in zip(places, found):
                p = layer.ops[place].attributes.pop(PATHS)
                # Alone it is the first layer behind the one in front.
                rate, first = (p, number - 1) if None in found or line is None else line
                layer.ops[place].attributes.update(rate=rate, first_layer=first)
            if None in found:
                layer.key += f"\npaths of layer {number}"


def _line(points: Sequence[Tuple[int, float]]) -> Optional[Tuple[float, int]]:
    """The rate and the layer of which points are rate * (layer - first)."""
    (number, p), (last, most) = points[0], points[-1]
    if number == last:
        return p, number - 1
    rate = (most - p) / (last - number)
    if rate <= 0:
        return None
    first = round(number - p / rate)
    if first < 0 or any(abs(rate * (at - first) - value) > 1e-9
                        for at, value in points):
        return None
    return rate, first


def _live_behind(ops: Sequence[Op]) -> List[int]:
    """How many activations go on behind each operation. One that is read far behind
    (by every block of a decoder) goes on to the end, so that the last reader looks
    like the others; what is made of parameters alone does not count."""
    heavy = list(itertools.accumulate(op.name in _HEAVY for op in ops))
    first = {id(tensor): number for number, op in enumerate(ops) if op.tensors
             for tensor in op.results}
    last = {id(tensor): number for number, op in enumerate(ops)
            for tensor in op.tensors if id(tensor) in first}
    for tensor, number in last.items():
        if heavy[number] - heavy[first[tensor]] > _MOST_HEAVY:
            last[tensor] = len(ops)
    result: List[int] = []
    live: Set[int] = set()
    for number, op in enumerate(ops):
        live.update(id(tensor) for tensor in op.results)
        live = {tensor for tensor in live if last.get(tensor, -1) > number}
        result.append(len(live))
    return result


def _segments(ops: Sequence[Op]) -> List[List[Op]]:
    """Operations cut wherever one tensor goes on; where these are too many, wherever
    two do, and so on: a value that all blocks read goes on everywhere."""
    live = _live_behind(ops)
    segments = [list(range(len(ops)))]
    for most in range(1, _MOST_LIVE + 1):
        result: List[List[int]] = []
        for segment in segments:
            heavy = sum(ops[number].name in _HEAVY for number in segment)
            if most > 1 and heavy <= _MOST_HEAVY:
                result.append(segment)
                continue
            part: List[int] = []
            for number in segment:
                part.append(number)
                if live[number] <= most:
                    result.append(part)
                    part = []
            result += [part] if part else []
        segments = result
    return [[ops[number] for number in segment] for segment in segments]


def _heavy(segment: Sequence[Op]) -> bool:
    return any(op.name in _HEAVY for op in segment)


def _group(segments: List[List[Op]], loss: Tensor) -> List[List[Op]]:
    """Segments put together to layers."""
    keys = [_key(*_interface(segment, segments, loss), segment)
            for segment in segments]
    # Blocks by their first segment, with the segments of a round and the rounds.
    blocks: Dict[int, Tuple[int, int]] = {}
    at = 0
    while at < len(segments):
        period, rounds = _repeats(keys, at)
        # A repeated pattern without a product is no block: dropout, dropout.
        if rounds == 1 or not _heavy(_joined(segments[at:at + period])):
            at += 1
            continue
        at += _shift(segments, keys, at, period, rounds)
        blocks[at] = (period, rounds)
        at += period * rounds

    kinds = {common_module(_joined(part))[1]
             for at, (period, _) in blocks.items()
             for part in _apart(segments[at:at + period])} - {""}
    kinds = kinds or _repeated_class(segments)
    groups: List[List[Op]] = []
    rest: List[List[Op]] = []
    at = 0
    while at < len(segments):
        if at not in blocks:
            rest.append(segments[at])
            at += 1
            continue
        groups += _settle(rest, kinds)
        rest = []
        period, rounds = blocks[at]
        for turn in range(rounds):
            first = at + turn * period
            groups += [_joined(part)
                       for part in _apart(segments[first:first + period])]
        at += period * rounds
    return groups + _settle(rest, kinds)


def _repeated_class(segments: Sequence[List[Op]]) -> Set[str]:
    """Where nothing repeats: the class of most modules that have several segments
    each, the outer one of two. Blocks that all differ are layers, too."""
    places: Dict[str, Dict[str, int]] = {}
    depths: Dict[str, int] = {}
    for segment in segments:
        if not _heavy(segment):
            continue
        for depth, (path, kind) in enumerate(_stack(segment)):
            places.setdefault(kind, {}).setdefault(path, 0)
            places[kind][path] += 1
            depths.setdefault(kind, depth)
    several = [kind for kind, paths in places.items()
               if len(paths) > 1 and min(paths.values()) > 1]
    return set(sorted(several, key=lambda kind: (-len(places[kind]),
                                                 depths[kind]))[:1])


def _apart(segments: List[List[Op]]) -> List[List[List[Op]]]:
    """A round of a pattern, cut where it goes from a module to another one of the
    same class that stands beside it: blocks that differ in turns."""
    depth = len(_stack(_joined(segments)))
    homes = []
    for segment in segments:
        stack = _stack(segment)
        homes.append(stack[depth] if len(stack) > depth else ("", ""))
    if "" in {kind for _, kind in homes} or len({kind for _, kind in homes}) > 1:
        return [segments]
    parts: List[List[List[Op]]] = []
    for number, segment in enumerate(segments):
        if number == 0 or homes[number] != homes[number - 1]:
            parts.append([])
        parts[-1].append(segment)
    # A module that is entered again is in turns with others: no block of its own.
    return parts if len(parts) == len(set(homes)) else [segments]


def _joined(segments: Sequence[List[Op]]) -> List[Op]:
    return [op for segment in segments for op in segment]


def _shift(segments: Sequence[List[Op]], keys: Sequence[str], at: int, period: int,
           rounds: int) -> int:
    """How many segments later a pattern is better begun: it repeats as often, and
    its rounds are in a module each."""
    best, shift = -1, 0
    for by in range(period):
        first = at + by
        if any(keys[first:first + period]
               != keys[first + turn * period:first + (turn + 1) * period]
               for turn in range(1, rounds)):
            continue
        found = [common_module(_joined(segments[first + turn * period:
                                                first + (turn + 1) * period]))
                 for turn in range(rounds)]
        alone = len(set(found)) if len(set(found)) > 1 else 0
        if alone > best:
            best, shift = alone, by
    return shift


def _repeats(keys: Sequence[str], at: int) -> Tuple[int, int]:
    """The pattern that begins at a segment and covers most by repeating at once:
    its length, the shortest of several, and how often it is there."""
    best = (1, 1)
    limit = min((len(keys) - at) // 2, _MOST_SEGMENTS_OF_A_BLOCK)
    for period in range(1, limit + 1):
        rounds = 1
        while keys[at:at + period] == \
                keys[at + rounds * period:at + (rounds + 1) * period]:
            rounds += 1
        if rounds > 1 and period * rounds > best[0] * best[1]:
            best = (period, rounds)
    return best


def _settle(rest: Sequence[List[Op]], kinds: Set[str]) -> List[List[Op]]:
    """Puts segments of one module of these kinds together, then light segments to
    the heavy one behind them, the last ones to the one in front."""
    merged: List[List[Op]] = []
    homes: List[Tuple[str, str]] = []
    for segment in rest:
        home = next((entry for entry in _stack(segment) if entry[1] in kinds), ("", ""))
        if merged and home != ("", "") and homes[-1] == home:
            merged[-1] = merged[-1] + segment
        else:
            merged.append(segment)
            homes.append(home)
    result: List[List[Op]] = []
    light: List[Op] = []
    for segment in merged:
        light = light + segment
        if _heavy(segment):
            result.append(light)
            light = []
    if light and result:
        result[-1] = result[-1] + light
    elif light:
        result.append(light)
    return result


def _interface(ops: Sequence[Op], all_segments: Any, loss: Tensor
               ) -> Tuple[List[Tensor], List[Use], List[Tensor]]:
    """What operations take from outside, their parameters, and what others take
    of them, each once and in the order of use."""
    own = {id(tensor) for op in ops for tensor in op.results}
    mine = {id(op) for op in ops}
    inputs: Dict[int, Tensor] = {}
    uses: Dict[Tuple[int, Tuple[int, ...]], Use] = {}
    for op in ops:
        for operand in op.operands:
            if isinstance(operand, Use):
                uses.setdefault((id(operand.parameter), operand.shape), operand)
            elif id(operand) not in own:
                inputs.setdefault(id(operand), operand)
    wanted = {id(loss)}
    flat = [op for segment in all_segments for op in segment] \
        if all_segments and isinstance(all_segments[0], list) else all_segments
    for op in flat:
        if id(op) not in mine:
            wanted.update(id(tensor) for tensor in op.tensors)
    outputs = [tensor for op in ops for tensor in op.results if id(tensor) in wanted]
    # Data stand behind activations, as the last layer has its labels.
    order = sorted(inputs.values(), key=lambda tensor: tensor.datum is not None)
    return order, list(uses.values()), outputs


def _key(inputs: Sequence[Tensor], uses: Sequence[Use], outputs: Sequence[Tensor],
         ops: Sequence[Op]) -> str:
    """A text that is the same for operations that do the same."""
    names: Dict[Any, str] = {}
    for number, tensor in enumerate(inputs):
        which = f"{tensor.datum.kind}{tensor.datum.below}" if tensor.datum else ""
        names[id(tensor)] = f"i{number}{which}{tensor.shape}{tensor.element}"
    for number, use in enumerate(uses):
        names[(id(use.parameter), use.shape)] = \
            f"p{number}{use.shape}{use.parameter.shape}"
    lines = []
    for number, op in enumerate(ops):
        for place, tensor in enumerate(op.results):
            names[id(tensor)] = f"r{number}.{place}{tensor.shape}"
        operands = [names[(id(o.parameter), o.shape)] if isinstance(o, Use)
                    else names[id(o)] for o in op.operands]
        attributes = [entry for entry in sorted(op.attributes.items())
                      if entry[0] != PATHS]
        lines.append(f"{op.name}{operands}{attributes}")
    lines.append(str([names[id(tensor)] for tensor in outputs]))
    return "\n".join(lines)


def _layer(group: List[Op], ops: Sequence[Op], loss: Tensor) -> Layer:
    inputs, uses, outputs = _interface(group, ops, loss)
    return Layer("", "", group, inputs, uses, outputs, _key(inputs, uses, outputs, group))


def _name(layers: Sequence[Layer]) -> None:
    """Names layers after the innermost module that all of their operations are in,
    and no other layer's; where there is none, after that of their heavy operations, or
    of the last of these."""
    owners: Dict[str, Set[int]] = {}
    for number, layer in enumerate(layers):
        for op in layer.ops:
            for path, _ in op.where.modules:
                owners.setdefault(path, set()).add(number)
    taken: Dict[str, int] = {}
    for layer in layers:
        heavy = [op for op in layer.ops if op.name in _HEAVY and op.where.path]
        name, layer.kind = common_module(layer.ops)
        if not name or len(owners[name]) > 1:
            name = common_module(heavy)[0]
            if not name or len(owners[name]) > 1:
                name = common_module(heavy[-1:])[0] or "layer"
            layer.kind = name
        taken[name] = taken.get(name, 0) + 1
        layer.name = name if taken[name] == 1 else f"{name}.{taken[name]}"


def _stack(ops: Sequence[Op]) -> List[Tuple[str, str]]:
    """The modules, path and class, that all operations are in, the outer ones
    first."""
    stacks = [op.where.modules for op in ops]
    result = []
    for depth in range(min((len(stack) for stack in stacks), default=0)):
        entry = stacks[0][depth]
        if any(stack[depth] != entry for stack in stacks):
            break
        result.append(entry)
    return result


def common_module(ops: Sequence[Op]) -> Tuple[str, str]:
    """Path and class of the innermost module that all operations are in."""
    return (_stack(ops) or [("", "")])[-1]
