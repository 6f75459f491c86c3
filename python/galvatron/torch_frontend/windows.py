# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows of a grid of positions, as modules cut them.

Positions [samples, rows, columns, width] that are padded, turned and seen as
[samples, windows down, windows across, window, window, width] are `nn.windows`; the
way back, turned and cut to size, is `nn.join_windows`. Strided parts side by side
are windows whose positions become one: the merging of patches."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional, Sequence, Union

from .layout import Layout
from .lower import Lowering, handles
from .reasons import NoCounterpart
from .values import Grid, Joined, PaddedImages, View


def _grid(low: Lowering, value: Any) -> Optional[Grid]:
    """A value [samples, rows, columns, width] as a grid; None if it is none."""
    if isinstance(value, Grid):
        return value if value.layout.same(value.whole()) else None
    if not isinstance(value, (View, Joined)):
        return None
    view = low.view(value)
    shape = view.layout.shape
    if view.tensor.element != "float" or view.tensor.datum is not None or \
            len(shape) != 4 or shape[0] != low.samples:
        return None
    view = low.whole(view)
    if view.tensor.shape != (shape[1] * shape[2], shape[3]):
        return None
    grid = Grid(View(view.tensor, Layout.contiguous(shape)), shape[1], shape[2])
    return dataclasses.replace(grid, layout=grid.whole())


@handles("pad", "constant_pad_nd")
def _pad(low: Lowering, x: Any, sizes: Sequence[int], *rest: Any, **more: Any) -> Any:
    """Zeros below and to the right of a grid, or of images."""
    if not any(sizes):
        return x
    filling = [*rest, *more.values()]
    if any(value not in ("constant", None, 0) for value in filling):
        return NotImplemented
    # Pairs from the last dimension on: what is put in front, and behind.
    front, behind = list(sizes[::2]), list(sizes[1::2]) + [0] * 3
    if not any(front) and min(sizes) >= 0:
        images = x if isinstance(x, PaddedImages) else _images(low, x)
        if images is not None and len(front) < 3:
            return PaddedImages(images.of, images.below + behind[1],
                                images.right + behind[0])
        grid = _grid(low, x)
        if grid is not None and len(front) < 4 and not behind[0] and not grid.shift:
            grid = dataclasses.replace(grid, right=grid.right + behind[1],
                                       below=grid.below + behind[2])
            return dataclasses.replace(grid, layout=grid.whole())
    raise NoCounterpart("padding; nn has it below and to the right of a grid of "
                        "positions that is cut into windows, and of images")


def _images(low: Lowering, x: Any) -> Optional[PaddedImages]:
    """Images among the data, with nothing around them."""
    if isinstance(x, View) and x.tensor.datum is not None and \
            x.tensor.element == "float" and len(x.layout.dims) == 4:
        return PaddedImages(low.whole(x), 0, 0)
    return None


@handles("roll")
def _roll(low: Lowering, x: Any, shifts: Any, dims: Any = ()) -> Any:
    """A grid that is turned in both directions, or turned back."""
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if len(set(shifts)) == 1 and dims == [1, 2]:
        shift = shifts[0]
        if shift == 0:
            return x
        if isinstance(x, Joined) and shift > 0 and not x.six and not x.shift and \
                not x.rows % x.window and not x.columns % x.window:
            return dataclasses.replace(x, shift=shift, done=None)
        grid = _grid(low, x) if shift < 0 else None
        if grid is not None and not grid.shift:
            return dataclasses.replace(grid, shift=-shift)
    raise NoCounterpart("positions that are rolled; nn has that where a grid of them "
                        "is turned and cut into windows, as in Swin")


def windowed(low: Lowering, value: Union[View, Grid]) -> Any:
    """What a value of six dimensions is: windows of a grid, windows put back, or just
    what it is."""
    shape = value.layout.shape
    if len(shape) != 6 or shape[0] != low.samples:
        return value
    samples, first, second, third, fourth, width = shape
    if third == fourth:
        found = _cut(low, value, first, second, third)
        if found is not None:
            return found
    if second == fourth and isinstance(value, View) and \
            value.tensor.shape == (first * third, second * second, width) and \
            value.layout.same(Layout.contiguous(
                (samples, first, third, second, second, width)).transpose(2, 3)):
        whole = View(value.tensor, Layout.contiguous((samples,) + value.tensor.shape))
        return Joined(whole, second, first * second, third * second)
    return value


def _cut(low: Lowering, value: Union[View, Grid], down: int, across: int, window: int
         ) -> Optional[View]:
    samples, width = value.layout.shape[0], value.layout.shape[-1]
    rows, columns = down * window, across * window
    if not value.layout.same(Layout.contiguous(
            (samples, down, window, across, window, width)).transpose(2, 3)):
        return None
    if isinstance(value, View):
        if value.tensor.shape != (rows * columns, width) or \
                value.tensor.element != "float":
            return None
        tensor, shift = value.tensor, 0
    else:
        if value.below >= window or value.right >= window or value.shift >= window or \
                (value.rows + value.below, value.columns + value.right) \
                != (rows, columns):
            raise NoCounterpart("windows of a grid with more around it than they need")
        tensor, shift = value.of.tensor, value.shift
        rows, columns = value.rows, value.columns
    result = low.graph.windows(tensor, rows, columns, window, shift)
    return View(result, Layout.contiguous((samples, down, across, window, window,
                                           width)))


def merged(low: Lowering, parts: Sequence[Any]) -> Optional[View]:
    """Strided parts of a grid, side by side; None if they are something else."""
    side = math.isqrt(len(parts))
    first = parts[0]
    if side < 2 or side * side != len(parts) or \
            not all(isinstance(part, type(first)) for part in parts) or \
            not isinstance(first, (View, Grid)) or len(first.layout.dims) != 4:
        return None
    samples, down, across, width = first.layout.shape
    if isinstance(first, View):
        grid = Grid(first, down * side, across * side)
        if first.tensor.shape != (grid.rows * grid.columns, width) or \
                any(part.tensor is not first.tensor for part in parts):
            return None
    else:
        grid = first
        if grid.shift or grid.below >= side or grid.right >= side or \
                any(dataclasses.replace(part, layout=first.layout) != first
                    for part in parts):
            return None
    whole = grid.whole()
    for number, part in enumerate(parts):
        # Column by column.
        wanted = whole.slice(1, number % side, 2 ** 62, side) \
            .slice(2, number // side, 2 ** 62, side)
        if not part.layout.same(wanted):
            return None
    tensor = low.graph.windows(grid.of.tensor, grid.rows, grid.columns, side,
                               merge=True)
    return View(tensor, Layout.contiguous((samples, down, across,
                                           side * side * width)))
