# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as modules write it: scores, masks, softmax, and rotary embedding."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional, Sequence

import torch

from . import attention
from .reasons import NoCounterpart
from .layout import Layout, normal
from .lower import Lowering, handles
from .operations import masked, multiply, number_of, rows_of
from .values import (MOST_NEGATIVE, Bias, Function, KeyMask, RestMean, Rotated, Scores,
                     Turned, View, Weight)
from .windows import merged


@handles("matmul", "mm", "bmm")
def _matmul(low: Lowering, a: Any, b: Any) -> Any:
    if isinstance(b, Weight):
        return multiply(low, a, b, 0)
    if isinstance(a, Scores) and a.probabilities:
        value = low.view(b)
        flat = len(value.layout.dims) == 3
        result = attention.attend(
            low, a.q, a.k, _heads_apart(low, value, a.q.layout.shape[1]) if flat else value,
            a.scale, a.allowed, a.mask, a.dropout, a.bias, a.cap, a.distance)
        shape = result.layout.shape
        return View(result.tensor, result.layout.reshape(
            (shape[0] * shape[1], *shape[2:]))) if flat else result
    scale = 1.0
    for value in (a, b):
        if isinstance(value, Function):
            factor = value.factor()
            if factor is None:
                low.view(value)
            else:
                scale *= factor
    a = a.leaf if isinstance(a, Function) and a.factor() else a
    b = b.leaf if isinstance(b, Function) and b.factor() else b
    q, k = low.view(a), low.view(b)
    if len(q.layout.dims) != 4 or len(k.layout.dims) != 4:
        raise NoCounterpart("a product of two activations that is no part of attention")
    return Scores(q, View(k.tensor, k.layout.transpose(-2, -1)), scale)


def _heads_apart(low: Lowering, x: View, heads: int) -> View:
    """[samples * heads, ..] as [samples, heads, ..]."""
    return View(x.tensor, x.layout.reshape((low.samples, heads, *x.layout.shape[1:])))


@handles("baddbmm")
def _baddbmm(low: Lowering, added: Any, a: Any, b: Any, beta: float = 1,
             alpha: float = 1) -> Any:
    """Products of queries and keys of samples times heads, and distances."""
    if not isinstance(added, torch.Tensor) or added.dim() != 3 or \
            added.shape[0] % low.samples:
        raise NoCounterpart("a product of two activations that is added to something else "
                            "than constants")
    heads = added.shape[0] // low.samples
    q, k = _heads_apart(low, low.view(a), heads), _heads_apart(low, low.view(b), heads)
    table = (beta * added).reshape(low.samples, heads, *added.shape[1:])
    if not bool((table == table[:1]).all()):
        raise NoCounterpart("constants added to scores that differ between samples")
    return masked(low, Scores(q, View(k.tensor, k.layout.transpose(-2, -1)), float(alpha)),
                  table[0])


@handles("cat", "concat")
def _cat(low: Lowering, parts: Sequence[Any], dim: int = 0) -> Any:
    rank = len(low.node.meta["val"].shape)  # type: ignore[union-attr]
    if dim % rank == rank - 1 and len(parts) == 2 and isinstance(parts[1], RestMean):
        tensor = parts[1].of
        first = low.view(parts[0])
        taken = first.tensor.producer
        if taken is None or taken.name != "nn.take" or taken.operands[0] is not tensor \
                or taken.attributes["position"] != 0 or \
                not first.layout.same(Layout.contiguous((low.samples, tensor.shape[-1]))):
            return NotImplemented
        return View(low.graph.mean(tensor, beside_first=True),
                    Layout.contiguous((low.samples, 2 * tensor.shape[-1])))
    if dim % rank == rank - 1 and len(parts) == 2 and isinstance(parts[1], View):
        if isinstance(parts[0], Function):
            return _rotated(parts[0], parts[1])
        if isinstance(parts[0], Turned):
            return _partly_turned(parts[0], parts[1])
    if dim % rank == rank - 1 and len(parts) > 2:
        found = merged(low, parts)
        return NotImplemented if found is None else found
    if dim % rank == 1 and isinstance(parts[-1], (View, Function)) and \
            all(isinstance(part, Weight) for part in parts[:-1]):
        result: Any = parts[-1]
        for part in reversed(parts[:-1]):
            result = _prepended(low, part, result)
        return result
    return NotImplemented


@handles("stack")
def _stack(low: Lowering, parts: Sequence[Any], dim: int = 0) -> Any:
    """The second of neighbours, negative, in front of the first."""
    rank = len(low.node.meta["val"].shape)  # type: ignore[union-attr]
    if dim % rank != rank - 1 or len(parts) != 2:
        return NotImplemented
    second, first = parts
    if not isinstance(second, Function) or not isinstance(first, View) or \
            second.factor() != -1.0:
        return NotImplemented
    pairs = first.layout.shape[-1]
    whole = View(first.tensor, Layout(
        first.layout.dims[:-1] + (normal([(2 * pairs, 1)]),), first.layout.offset))
    halves = [View(whole.tensor, whole.layout.slice(-1, start, 2 * pairs, 2))
              for start in (0, 1)]
    if halves[0].same(first) and halves[1].same(second.leaf):
        return Rotated(whole, interleaved=True, apart=True)
    return NotImplemented


def _extended(view: View, more: int) -> View:
    """A view whose last dimension has so many elements more."""
    size = view.layout.shape[-1] + more
    return View(view.tensor, Layout(view.layout.dims[:-1] + (normal([(size, 1)]),),
                                    view.layout.offset))


def _rotated(second: Function, first: View) -> Any:
    """The second half of heads, negative, in front of the first."""
    half = first.layout.shape[-1]
    whole = _extended(first, half)
    parts = [View(first.tensor, whole.layout.slice(-1, start, start + half))
             for start in (0, half)]
    if second.factor() == -1.0 and parts[1].same(second.leaf) and parts[0].same(first):
        return Rotated(whole)
    return NotImplemented


def _partly_turned(turned: Turned, rest: View) -> Any:
    """Heads whose first elements alone are turned."""
    size, more = turned.of.layout.shape[-1], rest.layout.shape[-1]
    if not more:
        return turned
    whole = _extended(turned.of, more)
    if View(rest.tensor, whole.layout.slice(-1, size, size + more)).same(rest) and \
            rest.tensor is turned.of.tensor:
        return Turned(whole, turned.cosines, turned.sines, turned.interleaved)
    return NotImplemented


def _prepended(low: Lowering, token: Weight, x: Any) -> Any:
    """A learnt row in front of every sample's."""
    view = low.whole(x)
    width = view.tensor.shape[-1]
    layout = token.layout.select(0, 0) if len(token.layout.dims) == 3 else token.layout
    if len(view.tensor.shape) != 2 or \
            view.layout.shape != (low.samples,) + view.tensor.shape or \
            math.prod(token.parameter.shape) != width or \
            layout.shape != (1, width) or not layout.is_contiguous(width):
        return NotImplemented
    return low.data_view(low.graph.prepend(view.tensor, token.parameter))


@handles("masked_fill")
def _masked_fill(low: Lowering, x: Any, mask: Any, value: Any) -> Any:
    number = number_of(value)
    if not isinstance(x, Scores) or number is None or number > MOST_NEGATIVE:
        return NotImplemented
    if isinstance(mask, torch.Tensor):
        return masked(low, x, ~mask)
    if isinstance(mask, Function) and mask.allows() is not None:
        return masked(low, x, _negated(mask))
    return NotImplemented


def _negated(mask: Function) -> Function:
    """A function of a mask that allows what the other does not."""
    return Function(mask.leaf, lambda x: torch.logical_not(mask.call(x)), mask.name)


@handles("where")
def _where(low: Lowering, mask: Any, x: Any, other: Any) -> Any:
    number = number_of(other)
    if number is None or number > MOST_NEGATIVE:
        return NotImplemented
    if isinstance(x, Bias) and x.mask is None:
        return dataclasses.replace(x, mask=mask)
    if isinstance(x, torch.Tensor) and not bool(x.any()) and \
            isinstance(mask, (KeyMask, Function)):
        return mask
    return masked(low, x, mask) if isinstance(x, Scores) else NotImplemented


@handles("__and__", "logical_and", "bitwise_and")
def _and(low: Lowering, a: Any, b: Any) -> Any:
    if isinstance(a, torch.Tensor):
        a, b = b, a
    if isinstance(a, Function):
        a = KeyMask(a)
    if not isinstance(a, KeyMask) or not isinstance(b, torch.Tensor) or \
            b.dtype != torch.bool:
        return NotImplemented
    # The mask of keys takes the dimensions of both.
    shape = tuple(low.node.meta["val"].shape)  # type: ignore[union-attr]
    leaf = View(a.of.leaf.tensor, a.of.leaf.layout.expand(shape))
    also = b if a.also is None else a.also & b
    return KeyMask(Function(leaf, a.of.call, a.of.name),
                   None if bool(also.all()) else also)


@handles("index")
def _index(low: Lowering, x: Any, indices: Sequence[Any]) -> Any:
    """Rows of a parameter by constant numbers, neighbours of a dimension of a value by
    theirs, or elements of a mask by those that rise evenly."""
    if isinstance(x, View):
        return _neighbours(x, indices)
    if isinstance(x, Weight) and len(indices) == 1 and \
            isinstance(indices[0], torch.Tensor):
        return rows_of(x, indices[0])
    if not isinstance(x, Function) or x.allows() is None or \
            not x.leaf.layout.is_contiguous(low.elements(x.leaf.tensor)) or \
            len(indices) != len(x.leaf.layout.dims) or \
            not all(isinstance(index, torch.Tensor) for index in indices):
        return NotImplemented
    place = torch.zeros((), dtype=torch.long)
    for index, size in zip(indices, x.leaf.layout.shape):
        place = place * size + index
    dims, first = [], int(place.flatten()[0])
    expected = torch.tensor(first)
    for dim, size in enumerate(place.shape):
        step = int(place.select(dim, 1).flatten()[0]) - first if size > 1 else 0
        dims.append(normal([(size, step)]))
        shape = [-1 if other == dim else 1 for other in range(place.dim())]
        expected = expected + step * torch.arange(size).view(shape)
    if not torch.equal(expected.expand(place.shape), place):
        raise NoCounterpart("a lookup by constant numbers that do not rise evenly")
    return Function(View(x.leaf.tensor, Layout(tuple(dims), first)), x.call, x.name)


def _neighbours(x: View, indices: Sequence[Any]) -> Any:
    """Elements of one dimension that stand side by side."""
    places = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(places) != 1:
        return NotImplemented
    dim, index = places[0]
    if not isinstance(index, torch.Tensor) or index.dim() != 1 or \
            index.dtype == torch.bool or not index.numel():
        return NotImplemented
    size = x.layout.shape[dim]
    first = int(index[0]) % size
    end = first + index.numel()
    if not torch.equal(index % size, torch.arange(first, end)):
        return NotImplemented
    return View(x.tensor, x.layout.slice(dim, first, end))


@handles("tanh")
def _tanh(low: Lowering, x: Any) -> Any:
    """A cap of scores; the number in front of it is to come."""
    if not isinstance(x, Scores):
        return NotImplemented
    if x.probabilities or x.cap or x.allowed is not None or x.mask is not None or \
            x.bias is not None:
        raise NoCounterpart("a cap of scores behind a mask or a bias")
    return dataclasses.replace(x, cap=1.0)


@handles("softmax", "_softmax")
def _softmax(low: Lowering, x: Any, dim: int, *_: Any, **more: Any) -> Any:
    if not isinstance(x, Scores) or x.probabilities or dim not in (-1, 3):
        return NotImplemented
    return dataclasses.replace(x, probabilities=True)


@handles("scaled_dot_product_attention")
def _sdpa(low: Lowering, q: Any, k: Any, v: Any, mask: Any = None,
          dropout: float = 0.0, causal: bool = False, scale: Optional[float] = None,
          enable_gqa: bool = False, **more: Any) -> Any:
    mask = more.get("attn_mask", mask)
    dropout = more.get("dropout_p", dropout)
    causal = more.get("is_causal", causal)
    query, key, value = low.view(q), low.view(k), low.view(v)
    queries, keys = query.layout.shape[-2], key.layout.shape[-2]
    bias = mask if isinstance(mask, Bias) else None
    allowed, key_mask = attention.split_mask(mask if bias is None else bias.mask,
                                             low.samples)
    if causal:
        if queries != keys:
            raise NoCounterpart("causal attention of fewer queries than keys")
        allowed = torch.ones(queries, keys, dtype=torch.bool).tril()
    del enable_gqa
    return attention.attend(low, query, key, value,
                            scale or 1 / math.sqrt(query.layout.shape[-1]), allowed,
                            key_mask, dropout, bias)
