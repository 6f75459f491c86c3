# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Biases of relative positions: rows of a table by constant numbers, added to scores.

Which operation has them is read off the numbers: buckets of distances as in T5, or
distances within a window of a grid as in Swin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Optional, Tuple

import torch

from ..graph import Tensor
from .layout import Layout
from .reasons import NoCounterpart
from .values import MOST_NEGATIVE, Bias, View

if TYPE_CHECKING:
    from .lower import Lowering

# What T5 has; tried first where several distances explain the buckets.
_USUAL_DISTANCE = 128
# What is added to scores across the edge of a grid that was turned.
_TURNED = -100.0


def added(bias: Bias, value: torch.Tensor) -> Bias:
    """A bias and a constant that is added besides: a mask, or other numbers."""
    if value.dtype != torch.bool and not bool(value.any()):
        return bias
    if bool(torch.all((value == 0) | (value <= MOST_NEGATIVE))):
        if bias.mask is not None:
            raise NoCounterpart("biases with two masks")
        return Bias(bias.table, bias.index, bias.layout, value, bias.added)
    if bias.added is not None:
        raise NoCounterpart("biases with two constants")
    return Bias(bias.table, bias.index, bias.layout, bias.mask, value)


def _expect_pairs(bias: Bias, queries: int, keys: int) -> torch.Tensor:
    """The numbers as [queries, keys], if the bias is [.., heads, queries, keys] and
    the same for all samples."""
    heads = bias.table.shape[1]
    wanted = Layout.contiguous((queries, keys, heads)).permute((2, 0, 1))
    dims = bias.layout.dims
    # Dimensions in front have one element, or the same one again and again.
    lead = Layout(dims[:-3])
    if bias.index.numel() != queries * keys or bias.layout.offset or len(dims) < 3 \
            or any(stride for _, stride in lead.atoms) \
            or not Layout(dims[-3:]).same(wanted):
        raise NoCounterpart(f"biases that are not [heads, {queries}, {keys}]")
    return bias.index.reshape(queries, keys)


def relative(low: Lowering, bias: Bias, queries: int, keys: int) -> Tensor:
    """The biases of all distances, as attention takes them."""
    if queries != keys:
        raise NoCounterpart("biases of relative positions of fewer queries than keys")
    if bias.added is not None:
        raise NoCounterpart("scores with a bias that is a constant")
    index = _expect_pairs(bias, queries, keys)
    by_distance = torch.cat([index[-1], index[0, 1:]])
    place = torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1
    if not torch.equal(by_distance[place], index):
        raise NoCounterpart("biases that do not depend on the distance alone")
    found = _buckets(by_distance, bias.table.shape[0], queries)
    if found is None:
        raise NoCounterpart("biases of relative positions in other buckets than T5's")
    key = (bias.table.name, queries, *found)
    if key not in low.relative_biases:
        distance, both = found
        low.relative_biases[key] = low.graph.relative_bias(bias.table, queries,
                                                           distance, both)
    return low.relative_biases[key]


def _buckets(by_distance: torch.Tensor, count: int, positions: int
             ) -> Optional[Tuple[int, bool]]:
    """The largest distance that has a bucket of its own, and whether there are
    buckets for distances ahead. None where T5's rule does not give these buckets."""
    distances = torch.arange(1 - positions, positions)
    for both in (True, False):
        side = count // 2 if both else count
        if side < 2:
            continue
        for most in (_USUAL_DISTANCE, *range(side // 2 + 1, 8 * positions + 1024)):
            if most > side // 2 and torch.equal(
                    bucket(distances, side, most, both), by_distance):
                return most, both
    return None


def bucket(distances: torch.Tensor, side: int, most: int, both: bool) -> torch.Tensor:
    """The bucket of every distance from query to key, of `side` buckets in a
    direction (Raffel et al., arXiv 1910.10683, section 2.1); in f32, as the library
    computes it."""
    ahead = (distances > 0) * side if both else torch.zeros_like(distances)
    size = distances.abs() if both else (-distances).clamp(min=0)
    exact = side // 2
    # Those below `exact` are not taken from here.
    large = exact + (torch.log(size.clamp(min=1).float() / exact)
                     / math.log(most / exact) * (side - exact)).long()
    return ahead + torch.where(size < exact, size, large.clamp(max=side - 1))


def in_windows(low: Lowering, q: View, k: View, v: View, scale: float,
               bias: Optional[Bias], dropout: float) -> View:
    """Adds attention of [samples * windows, heads, positions, size] to the graph."""
    several, heads, positions, size = q.layout.shape
    count, window = several // low.samples, math.isqrt(positions)
    if bias is None or window * window != positions or several % low.samples:
        raise NoCounterpart("attention of parts of samples; nn has that inside square "
                            "windows, with biases of relative positions")
    index = _expect_pairs(bias, positions, positions)
    row, column = torch.arange(positions) // window, torch.arange(positions) % window
    width = 2 * window - 1
    wanted = (row[:, None] - row + window - 1) * width \
        + column[:, None] - column + window - 1
    if not torch.equal(index, wanted) or bias.table.shape != (width * width, heads):
        raise NoCounterpart("biases inside windows that are in another order than "
                            "Swin's")
    if bias.mask is not None:
        raise NoCounterpart("a mask inside windows")
    across, shift = _turned(bias.added, low.samples, count, window)
    tensors = []
    for view in map(low.gathered, (q, k, v)):
        layout = Layout.contiguous((several, positions, heads, size)).transpose(1, 2)
        if not view.layout.same(layout):
            raise NoCounterpart("attention inside windows of queries, keys or values "
                                "in another order than positions, heads, size")
        low.graph.split(view.tensor, (count, positions, heads, size))
        tensors.append(view.tensor)
    result = low.graph.window_attention(tensors[0], tensors[1], tensors[2], bias.table,
                                        window, across, scale, shift, dropout)
    return View(result, layout)


def _turned(constant: Optional[torch.Tensor], samples: int, count: int, window: int
            ) -> Tuple[int, int]:
    """How many windows are side by side, and by how much the grid was turned, of what
    is added to scores between positions that have come together by that."""
    if constant is None or not bool(constant.any()):
        return 1, 0
    positions = window * window
    try:
        table = constant.expand(samples * count, 1, positions, positions)
    except RuntimeError as error:
        raise NoCounterpart(f"biases inside windows of shape "
                            f"{list(constant.shape)}") from error
    table = table.reshape(samples, count, positions, positions)
    if bool((table == table[:1]).all()):
        for across in range(1, count + 1):
            if count % across:
                continue
            for shift in range(1, window):
                if torch.equal(turned_mask(count // across, across, window, shift),
                               table[0].float()):
                    return across, shift
    raise NoCounterpart("constants that are added inside windows, other than Swin's "
                        "for a grid that was turned")


def turned_mask(down: int, across: int, window: int, shift: int) -> torch.Tensor:
    """What is added to scores in windows of a turned grid (Liu et al., arXiv
    2103.14030, section 3.2), [windows, positions, positions]."""
    def side(windows: int) -> torch.Tensor:
        place = torch.arange(windows * window)
        return (place >= (windows - 1) * window).int() \
            + (place >= windows * window - shift).int()
    regions = 3 * side(down)[:, None] + side(across)
    regions = regions.view(down, window, across, window).transpose(1, 2).reshape(
        down * across, window * window)
    return (regions[:, None] != regions[:, :, None]).float() * _TURNED
