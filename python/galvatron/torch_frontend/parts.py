# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that a module does not have as the model wants them.

A value that is a part of a product's result (the keys of a packed projection that is
rotated) becomes a product of its own, with those rows of the weight as a parameter
of its own. Constants (tables of positions, the missing bias of a norm) become
parameters that are not trained."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Set, Tuple

import torch

from ..graph import Graph, Op, Parameter, Tensor, Use
from .layout import Atom, Layout, normal
from .values import View


@dataclasses.dataclass(frozen=True)
class Piece:
    """A parameter that is the elements `index` of dimension `axis` of another."""

    name: str
    whole: str
    axis: int
    index: Tuple[int, ...]


class Parts:
    """The pieces and constants of a model."""

    def __init__(self, graph: Graph, names: Set[str]):
        self.graph = graph
        self.names = set(names)
        self.pieces: Dict[str, Piece] = {}
        self.constants: Dict[str, torch.Tensor] = {}
        self._parameters: Dict[Tuple[str, int, Tuple[int, ...]], Parameter] = {}
        self._products: Dict[Tuple[int, Tuple[int, ...]], Tensor] = {}

    def constant(self, value: torch.Tensor, wish: str) -> Parameter:
        """A parameter with this value that is not trained, called `wish` if that is
        free."""
        name, number = wish, 0
        while name in self.names:
            number += 1
            name = f"{wish}.constant{number}"
        self.names.add(name)
        self.constants[name] = value.detach().cpu()
        kind = "ones" if bool((value == 1).all()) else "zeros"
        return Parameter(name, tuple(value.shape), kind)

    def take(self, view: View) -> Optional[View]:
        """A view of a part of every row of a product's result, as a view of a whole
        tensor; None if it is something else."""
        found = _product_of(view.tensor)
        if found is None:
            return None
        product, bias = found
        width = view.tensor.shape[-1]
        columns = _columns(view.layout, width)
        if columns is None:
            return None
        start, atoms = columns
        index: Tuple[int, ...] = (start,)
        for size, stride in atoms:
            index = tuple(at + turn * stride for at in index for turn in range(size))
        if len(index) == width:
            return None
        key = (id(view.tensor), index)
        if key not in self._products:
            self._products[key] = self._multiply(product, bias, index)
        # Strides of the columns as they lie now, and of rows of another width.
        moved: Dict[int, int] = {}
        inner = 1
        for size, stride in reversed(atoms):
            moved[stride] = inner
            inner *= size
        dims = tuple(tuple((size, moved[stride] if stride in moved
                            else stride // width * len(index))
                           for size, stride in dim) for dim in view.layout.dims)
        return View(self._products[key], Layout(tuple(normal(dim) for dim in dims)))

    def _multiply(self, product: Op, bias: Optional[Use],
                  index: Tuple[int, ...]) -> Tensor:
        x, weight = product.operands
        assert isinstance(x, Tensor) and isinstance(weight, Use)
        transpose = bool(product.attributes.get("transpose_weight"))
        before, self.graph.where = self.graph.where, product.where
        result = self.graph.linear(
            x, self.piece(weight.parameter, 0 if transpose else 1, index),
            (len(index),), transpose)
        if bias is not None:
            result = self.graph.bias_add(result, self.piece(bias.parameter, 0, index))
        self.graph.where = before
        return result

    def piece(self, whole: Parameter, axis: int, index: Tuple[int, ...]) -> Parameter:
        """Some elements of a dimension of a parameter."""
        key = (whole.name, axis, index)
        if key not in self._parameters:
            shape = list(whole.shape)
            shape[axis] = len(index)
            number = sum(piece.whole == whole.name for piece in self.pieces.values())
            parameter = Parameter(f"{whole.name}.part{number}", tuple(shape),
                                  whole.init, whole.std)
            self.pieces[parameter.name] = Piece(parameter.name, whole.name, axis, index)
            self._parameters[key] = parameter
        return self._parameters[key]

    def divided(self) -> Set[str]:
        """The parameters that have pieces."""
        return {piece.whole for piece in self.pieces.values()}

    def split(self, values: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        """The pieces and constants of a module's parameters."""
        result = {}
        for piece in self.pieces.values():
            index = torch.tensor(piece.index)
            result[piece.name] = values[piece.whole].index_select(piece.axis, index)
        kind = next(iter(values.values())).dtype
        for name, value in self.constants.items():
            result[name] = value.to(kind)
        return result

    def merge(self, values: Dict[str, torch.Tensor], wholes: Dict[str, torch.Tensor]
              ) -> Dict[str, torch.Tensor]:
        """A model's tensors under the names of the module. Elements that no piece
        has are those of `wholes`."""
        result: Dict[str, torch.Tensor] = {}
        for name, value in values.items():
            if name in self.constants:
                continue
            found = self.pieces.get(name)
            if found is None:
                result[name] = value
                continue
            if found.whole not in result:
                result[found.whole] = wholes[found.whole].detach().cpu().clone()
            result[found.whole].index_copy_(found.axis, torch.tensor(found.index),
                                            value.to(result[found.whole].dtype))
        return result


def _product_of(tensor: Tensor) -> Optional[Tuple[Op, Optional[Use]]]:
    """The product with a matrix that a tensor is, and the bias behind it."""
    op, bias = tensor.producer, None
    if op is not None and op.name == "nn.bias_add":
        x, use = op.operands
        assert isinstance(x, Tensor) and isinstance(use, Use)
        op, bias = x.producer, use
    if op is None or op.name != "nn.linear":
        return None
    weight = op.operands[1]
    # A weight that is seen in three dimensions has been split for another use.
    return (op, bias) if len(weight.shape) == 2 \
        and weight.shape == op.uses[0].parameter.shape else None


def _columns(layout: Layout, width: int) -> Optional[Tuple[int, List[Atom]]]:
    """The first of the columns of a row that a layout takes, and the atoms that run
    through the others, the outer ones first. None if it is not the same for all
    rows."""
    atoms: List[Atom] = []
    for size, stride in (atom for dim in layout.dims for atom in dim):
        if stride == 0 or stride % width == 0:
            continue
        if stride > width or size * stride > width or \
                any(stride == other for _, other in atoms):
            return None
        atoms.append((size, stride))
    if layout.offset >= width:
        return None
    atoms.sort(key=lambda atom: -atom[1])
    last = layout.offset + sum((size - 1) * stride for size, stride in atoms)
    return (layout.offset, atoms) if last < width else None
