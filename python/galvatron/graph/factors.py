# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the factors of a body: dimensions of parameters along which tensor
parallelism may split it.

Dimensions that an operation treats alike are one class. A class can be split if no
operation needs it whole and if it does not reach the body's boundary, where every
rank has everything."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Sequence, Set, Tuple

from .graph import Op, Operand, Tensor, Use

_Place = Tuple[int, int]  # an operand and one of its dimensions


@dataclasses.dataclass
class Factors:
    """Units of every factor, those that may have a short last shard, those whose
    units ranks may share, and the factor of every dimension of a parameter ('' for
    none)."""

    units: Dict[str, int]
    uneven: List[str]
    shared: List[str]
    dims: Dict[int, List[str]]


class _Classes:
    """Classes of dimensions, as a forest."""

    def __init__(self) -> None:
        self.parents: Dict[_Place, _Place] = {}
        self.whole: Set[_Place] = set()
        self.kinds: Dict[_Place, Tuple[str, int]] = {}
        self.together: List[Tuple[_Place, _Place]] = []

    def root(self, place: _Place) -> _Place:
        self.parents.setdefault(place, place)
        while self.parents[place] != place:
            place = self.parents[place]
        return place

    def join(self, a: _Place, b: _Place) -> None:
        """Both places are split alike, or not at all."""
        first, second = self.root(a), self.root(b)
        if first == second:
            return
        self.parents[second] = first
        if second in self.whole:
            self.whole.add(first)
        if second in self.kinds:
            self.kind(first, *self.kinds[second])

    def block(self, place: _Place) -> None:
        """The place must not be split."""
        self.whole.add(self.root(place))

    def tie(self, a: _Place, b: _Place) -> None:
        """Both classes are split, each into units of its own, or neither is."""
        self.together.append((a, b))

    def block_tied(self) -> None:
        """Blocks what is tied to a class that must not be split."""
        for _ in self.together:
            for a, b in self.together:
                if self.root(a) in self.whole or self.root(b) in self.whole:
                    self.block(a)
                    self.block(b)

    def kind(self, place: _Place, name: str, units: int) -> None:
        """The class is one of heads or words; the fewest units count."""
        root = self.root(place)
        known = self.kinds.get(root)
        self.kinds[root] = (name, min(units, known[1]) if known else units)


def _join_trailing(c: _Classes, x: Operand, y: Operand, skip: int = 0) -> None:
    """Joins dimensions counted from behind, but for the last `skip`."""
    shared = min(len(x.shape), len(y.shape))
    for back in range(1 + skip, shared + 1):
        c.join((id(x), len(x.shape) - back), (id(y), len(y.shape) - back))


def _block_last(c: _Classes, *operands: Operand) -> None:
    for operand in operands:
        c.block((id(operand), len(operand.shape) - 1))


def _block_first(c: _Classes, operand: Operand, count: int) -> None:
    for dim in range(count):
        c.block((id(operand), dim))


def _apply(c: _Classes, op: Op) -> None:
    """The rule of one operation."""
    x, y = op.operands[0], op.results[0]
    if op.name == "nn.embedding":
        table = op.operands[1]
        c.kind((id(table), 0), "vocab", table.shape[0])
        c.join((id(table), 1), (id(y), len(y.shape) - 1))
    elif op.name == "nn.linear":
        weight = op.operands[1]
        lead, out = len(x.shape) - 1, len(weight.shape) - 1
        first = 0 if op.attributes.get("transpose_weight") else 1
        inner = out if first == 0 else 0
        c.join((id(x), lead), (id(weight), inner))
        for dim in range(lead):
            c.join((id(x), dim), (id(y), dim))
        for dim in range(out):
            c.join((id(weight), first + dim), (id(y), lead + dim))
    elif op.name in ("nn.layer_norm", "nn.rms_norm"):
        normed = len(op.operands[1].shape)
        _join_trailing(c, x, y, skip=normed)
        for operand in [*op.operands, y]:
            for back in range(normed):
                c.block((id(operand), len(operand.shape) - 1 - back))
    elif op.name == "nn.rotary":
        _join_trailing(c, x, y, skip=1)
        _block_last(c, x, y)
    elif op.name == "nn.attention":
        heads = op.attributes["heads"]
        c.join((id(x), 2), (id(y), 1))
        c.kind((id(x), 2), "heads", heads)
        c.block((id(x), 1))
        c.block((id(x), 0))
    elif op.name == "nn.grouped_attention":
        query, key, value = op.operands[:3]
        for operand in (query, key, value):
            c.block((id(operand), 0))
            _block_last(c, operand)
        c.join((id(query), 1), (id(y), 1))
        c.kind((id(query), 1), "heads", query.shape[1])
        c.join((id(key), 1), (id(value), 1))
        if key.shape[1] == query.shape[1]:
            c.join((id(key), 1), (id(query), 1))
        else:
            c.kind((id(key), 1), "key_heads", key.shape[1])
            c.tie((id(key), 1), (id(query), 1))
    elif op.name == "nn.window_attention":
        for operand in op.operands[:3]:
            c.join((id(operand), 2), (id(y), 2))
            _block_first(c, operand, 2)
            _block_last(c, operand)
        table = op.operands[3]
        c.join((id(table), 1), (id(y), 2))
        c.kind((id(y), 2), "heads", x.shape[2])
        _block_first(c, y, 2)
        _block_first(c, table, 1)
    elif op.name in ("nn.windows", "nn.join_windows"):
        _block_first(c, x, len(x.shape) - 1)
        _block_first(c, y, len(y.shape) - 1)
        if op.attributes.get("merge"):
            _block_last(c, x, y)
        else:
            c.join((id(x), len(x.shape) - 1), (id(y), len(y.shape) - 1))
    elif op.name == "nn.cross_entropy":
        c.kind((id(x), len(x.shape) - 1), "vocab", x.shape[-1])
        for dim in range(len(x.shape) - 1):
            c.block((id(x), dim))
    elif op.name == "nn.transpose":
        last = len(x.shape) - 1
        c.join((id(x), last), (id(y), last - 1))
        c.join((id(x), last - 1), (id(y), last))
        _join_trailing(c, x, y, skip=2)
    elif op.name == "nn.standardize":
        _join_trailing(c, x, y, skip=1)
        _block_last(c, x, y)
    elif op.name == "nn.mean" and not op.attributes.get("beside_first"):
        c.block((id(x), 0))
        c.join((id(x), 1), (id(y), 0))
    elif op.name in ("nn.mean", "nn.patches", "nn.prepend", "nn.take", "nn.relative_bias"):
        for operand in [*op.operands, y]:
            for dim in range(len(operand.shape)):
                c.block((id(operand), dim))
    else:
        # Element by element, with operands that may lack leading dimensions.
        for operand in op.operands:
            if op.name == "nn.position_add" and operand is not x:
                c.block((id(operand), 0))
                c.join((id(operand), 1), (id(y), len(y.shape) - 1))
            else:
                _join_trailing(c, operand, y)


def find(ops: Sequence[Op], inputs: Sequence[Tensor], uses: Sequence[Use],
         outputs: Sequence[Tensor]) -> Factors:
    """The factors of a body."""
    c = _Classes()
    for op in ops:
        _apply(c, op)
    # Uses of one parameter in one shape are one argument.
    by_argument = {(id(use.parameter), use.shape): use for use in uses}
    for op in ops:
        for use in op.uses:
            argument = by_argument[(id(use.parameter), use.shape)]
            for dim in range(len(use.shape)):
                c.join((id(argument), dim), (id(use), dim))
    for tensor in [*inputs, *outputs]:
        if tensor.element != "loss":
            for dim in range(len(tensor.shape)):
                c.block((id(tensor), dim))

    c.block_tied()
    result = Factors({}, [], [], {})
    names: Dict[_Place, str] = {}
    for use in uses:
        dims: List[str] = []
        for dim, size in enumerate(use.shape):
            root = c.root((id(use), dim))
            kind, units = c.kinds.get(root, ("ffn", size))
            # One factor a parameter; the first dimension that can be split has it.
            shared = kind == "key_heads"
            if root in c.whole or (units < 2 and not shared) or any(dims):
                dims.append("")
                continue
            if root not in names:
                number = sum(name.rstrip("0123456789") == kind
                             for name in names.values())
                names[root] = kind if not number else f"{kind}{number + 1}"
            name = names[root]
            result.units[name] = min(result.units.get(name, units), units)
            if kind == "vocab" and name not in result.uneven:
                result.uneven.append(name)
            if shared and name not in result.shared:
                result.shared.append(name)
            dims.append(name)
        result.dims[id(use)] = dims
    return result
