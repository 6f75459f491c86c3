# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views: operations that change the layout of a value alone."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, Callable, Optional, Sequence

import torch

from .reasons import NoCounterpart
from .layout import Layout
from .lower import UNFINISHED, Lowering, handles, operation_name
from .values import (PATTERNS, Bias, Function, Grid, Joined, KeyMask, Rotated, Scores,
                     Several, Turned, View, Weight)
from .windows import windowed


def _relaid(value: Any, change: Callable[[Layout], Layout], low: Lowering) -> Any:
    """The same elements in another layout."""
    if isinstance(value, Function):
        return Function(View(value.leaf.tensor, change(value.leaf.layout)), value.call,
                        value.name, value.where)
    if isinstance(value, (View, Grid)):
        return windowed(low, dataclasses.replace(value, layout=change(value.layout)))
    if isinstance(value, Weight) or \
            isinstance(value, Bias) and value.mask is None and value.added is None:
        return dataclasses.replace(value, layout=change(value.layout))
    if isinstance(value, Joined):
        view, side = low.view(value), value.window
        layout = view.layout.reshape((
            low.samples, value.rows // side, side, value.columns // side, side, -1)) \
            if value.six else view.layout
        return View(view.tensor, change(layout))
    if isinstance(value, KeyMask):
        return KeyMask(_relaid(value.of, change, low), _like(value, change))
    if isinstance(value, Turned):
        return _relaid(low.view(value), change, low)
    if isinstance(value, PATTERNS):
        raise NoCounterpart(UNFINISHED[type(value)])
    raise NoCounterpart("nn has no such operation")


def _like(mask: KeyMask, change: Callable[[Layout], Layout]) -> Any:
    """The pairs of a mask in the same other layout."""
    if mask.also is None:
        return None
    shape = mask.of.leaf.layout.shape
    elements = mask.also.expand(shape).contiguous().flatten()
    layout = change(Layout.contiguous(shape))
    place = torch.tensor(layout.offset)
    for size, stride in (atom for dim in layout.dims for atom in dim):
        place = place[..., None] + stride * torch.arange(size)
    return elements[place.reshape(layout.shape)]


def _together(low: Lowering, x: Any) -> Any:
    """Exchanged neighbours that are one dimension again; None if it is something
    else."""
    shape = tuple(low.node.meta["val"].shape)  # type: ignore[union-attr]
    if isinstance(x, Rotated) and x.apart and shape == x.of.layout.shape:
        return dataclasses.replace(x, apart=False)
    return None


@handles("view", "reshape", "_unsafe_view")
def _view(low: Lowering, x: Any, shape: Sequence[int]) -> Any:
    if (whole := _together(low, x)) is not None:
        return whole
    if isinstance(x, Scores) and tuple(shape[-2:]) in (
            (queries := x.q.layout.shape[-2], x.k.layout.shape[-2]), (queries, -1)):
        return x  # samples and heads apart, or not
    if isinstance(x, Joined) and x.six and list(shape[1:3]) == [x.rows, x.columns] and \
            len(shape) == 4:
        return dataclasses.replace(x, six=False)
    return _relaid(x, lambda layout: layout.reshape(shape), low)


@handles("flatten")
def _flatten_dims(low: Lowering, x: Any, start: int = 0, end: int = -1) -> Any:
    if (whole := _together(low, x)) is not None:
        return whole

    def change(layout: Layout) -> Layout:
        shape = layout.shape
        first, last = start % len(shape), end % len(shape)
        return layout.reshape(shape[:first] + (math.prod(shape[first:last + 1]),)
                              + shape[last + 1:])
    return _relaid(x, change, low)


@handles("unflatten")
def _unflatten(low: Lowering, x: Any, dim: int, sizes: Sequence[int]) -> Any:
    def change(layout: Layout) -> Layout:
        at = dim % len(layout.shape)
        known = math.prod(size for size in sizes if size != -1)
        filled = [layout.shape[at] // known if size == -1 else size for size in sizes]
        return layout.reshape((*layout.shape[:at], *filled, *layout.shape[at + 1:]))
    return _relaid(x, change, low)


@handles("transpose", "swapaxes")
def _transpose(low: Lowering, x: Any, a: int, b: int) -> Any:
    return _relaid(x, lambda layout: layout.transpose(a, b), low)


@handles("t", "numpy_T", "mT")
def _t(low: Lowering, x: Any) -> Any:
    return _relaid(x, lambda layout: layout.transpose(-2, -1)
                   if len(layout.dims) > 1 else layout, low)


@handles("permute")
def _permute(low: Lowering, x: Any, order: Sequence[int]) -> Any:
    return _relaid(x, lambda layout: layout.permute(order), low)


@handles("movedim")
def _movedim(low: Lowering, x: Any, source: Any, target: Any) -> Any:
    def change(layout: Layout) -> Layout:
        rank = len(layout.dims)
        moved = [s % rank for s in ([source] if isinstance(source, int) else source)]
        places = [t % rank for t in ([target] if isinstance(target, int) else target)]
        order = [dim for dim in range(rank) if dim not in moved]
        for place, dim in sorted(zip(places, moved)):
            order.insert(place, dim)
        return layout.permute(order)
    return _relaid(x, change, low)


@handles("unsqueeze")
def _unsqueeze(low: Lowering, x: Any, dim: int) -> Any:
    return _relaid(x, lambda layout: layout.unsqueeze(dim), low)


@handles("squeeze")
def _squeeze(low: Lowering, x: Any, dims: Any = None) -> Any:
    def change(layout: Layout) -> Layout:
        if dims is None:
            return layout.squeeze(range(len(layout.dims)))
        return layout.squeeze([dims] if isinstance(dims, int) else dims)
    return _relaid(x, change, low)


@handles("expand", "expand_as", "broadcast_to")
def _expand(low: Lowering, x: Any, shape: Any, implicit: bool = False) -> Any:
    del implicit
    wanted = low.node.meta["val"].shape  # type: ignore[union-attr]
    del shape
    return _relaid(x, lambda layout: layout.expand(wanted), low)


@handles("repeat_interleave")
def _repeat_interleave(low: Lowering, x: Any, times: Any, dim: Optional[int] = None,
                       **_: Any) -> Any:
    if not isinstance(times, int) or dim is None:
        return NotImplemented

    def change(layout: Layout) -> Layout:
        shape = layout.shape
        at = dim % len(shape)
        wide = shape[:at + 1] + (times,) + shape[at + 1:]
        return layout.unsqueeze(at + 1).expand(wide).reshape(
            shape[:at] + (shape[at] * times,) + shape[at + 1:])
    return _relaid(x, change, low)


@handles("slice")
def _slice(low: Lowering, x: Any, dim: int = 0, start: Optional[int] = None,
           stop: Optional[int] = None, step: int = 1) -> Any:
    if isinstance(x, Joined) and not x.six and dim in (1, 2) and not start and \
            step == 1 and stop is not None and stop > 0:
        # What stands behind is what was put around the grid.
        rows = min(stop, x.rows) if dim == 1 else x.rows
        columns = min(stop, x.columns) if dim == 2 else x.columns
        return dataclasses.replace(x, rows=rows, columns=columns, done=None)
    return _relaid(x, lambda layout: layout.slice(
        dim, 0 if start is None else start, 2 ** 62 if stop is None else stop, step), low)


@handles("narrow")
def _narrow(low: Lowering, x: Any, dim: int, start: int, length: int) -> Any:
    return _relaid(x, lambda layout: layout.slice(dim, start, start + length), low)


@handles("select")
def _select(low: Lowering, x: Any, dim: int, index: int) -> Any:
    if isinstance(x, View) and len(x.tensor.shape) == 2 and \
            x.layout.is_contiguous(low.elements(x.tensor)) and \
            x.layout.shape == (low.samples,) + x.tensor.shape and \
            dim % len(x.layout.dims) == 1:
        taken = low.graph.take(x.tensor, index % x.tensor.shape[0])
        return low.data_view(taken)
    return _relaid(x, lambda layout: layout.select(dim, index), low)


@handles("split", "chunk", "split_with_sizes", "tensor_split", "unbind")
def _split(low: Lowering, x: Any, *rest: Any, **more: Any) -> Any:
    del rest
    values = low.node.meta["val"]  # type: ignore[union-attr]
    name = operation_name(low.node.target).rsplit(".", 1)[-1]  # type: ignore
    arguments = list(low.node.args)  # type: ignore[union-attr]
    if name == "unbind":
        dim = more.get("dim", arguments[1] if len(arguments) > 1 else 0)
        return Several(tuple(_relaid(x, functools.partial(_one, dim, index), low)
                             for index in range(len(values))))
    dim = more.get("dim", arguments[2] if len(arguments) > 2 else 0)
    ends = list(itertools.accumulate(value.shape[dim] for value in values))
    return Several(tuple(_relaid(x, functools.partial(_part, dim, start, end), low)
                         for start, end in zip([0] + ends, ends)))


def _one(dim: int, index: int, layout: Layout) -> Layout:
    return layout.select(dim, index)


def _part(dim: int, start: int, end: int, layout: Layout) -> Layout:
    return layout.slice(dim, start, end)


@handles("getitem")
def _getitem(low: Lowering, x: Any, index: int) -> Any:
    return x.parts[index] if isinstance(x, Several) else NotImplemented
