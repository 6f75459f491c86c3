# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a node of an exported program can be while it is lowered.

Beside views of tensors and of parameters, and constants, there are parts of
patterns: things that nn has no operation for, and that become one together with
what follows (the scores of attention, the mean of squares of a norm)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Optional, Tuple

import torch

from ..graph import Parameter, Tensor, Where
from .layout import Layout

# Where functions of one number are compared: dense where they bend, wide enough
# for their tails.
_PROBE = torch.cat([torch.linspace(-8, 8, 257), torch.tensor([-30.0, 30.0])]).double()
_TOLERANCE = 1e-6
# What is added to scores that do not count is at most this.
MOST_NEGATIVE = -1e4


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Elements of an activation or a datum."""

    tensor: Tensor
    layout: Layout

    def same(self, other: Any) -> bool:
        """Whether the other value has the same elements in the same order."""
        return isinstance(other, View) and other.tensor is self.tensor \
            and other.layout.same(self.layout)


@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """Elements of a parameter."""

    parameter: Parameter
    layout: Layout


@dataclasses.dataclass(frozen=True, eq=False)
class OffsetWeight:
    """One more than a parameter."""

    parameter: Parameter


class Broken:
    """The result of an operation that has no counterpart; it was reported."""


@dataclasses.dataclass(eq=False)
class Function:
    """A function of every element of a view, the operation that it ends with, and
    the place of that."""

    leaf: View
    call: Callable[[torch.Tensor], torch.Tensor]
    name: str
    where: Optional[Where] = None
    done: Optional[View] = None

    def equals(self, other: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        """Whether it is another function, on all that is probed."""
        with torch.no_grad():
            mine, wanted = self.call(_PROBE), other(_PROBE)
        return bool(mine.shape == wanted.shape
                    and torch.allclose(mine, wanted, rtol=_TOLERANCE, atol=_TOLERANCE))

    def gelu(self) -> Optional[bool]:
        """Whether it is GELU in the form with tanh (true) or the other (false); None
        if it is neither."""
        if self.equals(torch.nn.functional.gelu):
            return False
        if self.equals(lambda x: torch.nn.functional.gelu(x, approximate="tanh")):
            return True
        return None

    def relu(self) -> bool:
        """Whether it is max(x, 0)."""
        return self.equals(torch.relu)

    def is_operation(self) -> bool:
        """Whether nn has it as an operation that is no product with a number."""
        return self.gelu() is not None or self.relu() or self.soft_cap() is not None

    def soft_cap(self) -> Optional[Tuple[float, float]]:
        """The numbers `cap` and `factor` if it is cap * tanh(factor * x / cap)."""
        with torch.no_grad():
            most, least = self.call(torch.tensor([1e9, 1e-3], dtype=torch.float64)).tolist()
        if not 0 < least < most < 1e8:
            return None
        factor = math.atanh(least / most) * most / 1e-3
        if not self.equals(lambda x: most * torch.tanh(x * (factor / most))):
            return None
        return float(f"{most:.12g}"), float(f"{factor:.9g}")

    def allows(self) -> Optional[bool]:
        """Of a function of a mask: whether what is 1 counts and what is 0 does not
        (true), or the other way round (false); None if it is something else."""
        if self.leaf.tensor.element != "integer":
            return None
        with torch.no_grad():
            found = self.call(torch.tensor([0.0, 1.0], dtype=torch.float64))
        if found.dtype == torch.bool:
            first, second = found.tolist()
            return None if first == second else bool(second)
        counts = [value == 0 for value in found.tolist()]
        negative = [value <= MOST_NEGATIVE for value in found.tolist()]
        if counts[1] and negative[0]:
            return True
        return False if counts[0] and negative[1] else None

    def factor(self) -> Optional[float]:
        """The number that it multiplies by, if it does that alone."""
        with torch.no_grad():
            number = float(self.call(torch.ones(1, dtype=torch.float64))[0])
        return number if self.equals(lambda x: x * number) else None


    def root_of_square(self) -> Optional[float]:
        """The positive number `c` if it is the square of `c` times its argument."""
        with torch.no_grad():
            number = float(self.call(torch.ones(1, dtype=torch.float64))[0])
        if not number > 0 or not self.equals(lambda x: x * x * number):
            return None
        return float(f"{math.sqrt(number):.12g}")


@dataclasses.dataclass(frozen=True, eq=False)
class KeyMask:
    """Which keys count: a function of a mask among the data, [.., queries, keys],
    that is true or 0 where the mask is 1. `also` are pairs that count besides, where
    not all do."""

    of: Function
    also: Optional[torch.Tensor] = None


@dataclasses.dataclass(frozen=True, eq=False)
class RestMean:
    """The mean over all positions of a tensor but the first, to stand behind that
    one."""

    of: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class RowMean:
    """The mean of the last dimension, which is kept: of a layer norm, or what
    `otherwise` makes of it."""

    of: View
    otherwise: Callable[[], View]


@dataclasses.dataclass(frozen=True, eq=False)
class Centered:
    """A view less the mean of its last dimension, or the squares of that."""

    of: View
    squares: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class MeanSquare:
    """The mean of the squares of the last dimension, plus `eps`; `centered`: of what
    is left without its mean."""

    of: View
    eps: float = 0.0
    centered: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class InverseRoot:
    """One by the root of the mean of squares; `inverse` is false for the root."""

    of: View
    eps: float
    inverse: bool = True
    centered: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Normed:
    """A view divided by the root of its mean of squares, `centered` before that."""

    of: View
    eps: float
    centered: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Rotated:
    """The second half of every head, negative, in front of the first; or of
    neighbours (`interleaved`) the second, negative, in front of the first, which are
    a dimension of their own while they are `apart`."""

    of: View
    interleaved: bool = False
    apart: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Scaled:
    """A view, or its rotated halves or neighbours, times a constant of several
    elements."""

    of: View
    rotated: bool
    by: torch.Tensor
    interleaved: bool = False


@dataclasses.dataclass(eq=False)
class Turned:
    """Rotary embedding of a view, which may be the first part of every head."""

    of: View
    cosines: torch.Tensor
    sines: torch.Tensor
    interleaved: bool = False
    done: Optional[View] = None


@dataclasses.dataclass(frozen=True, eq=False)
class Bias:
    """Rows of a table by constant numbers, which are added to scores: elements of a
    tensor [*index.shape, columns of the table] in a layout. `mask` says which pairs
    count besides, as something that attention takes for a mask; `added` is a
    constant that is added as well."""

    table: Parameter
    index: torch.Tensor
    layout: Layout
    mask: Any = None
    added: Optional[torch.Tensor] = None


@dataclasses.dataclass(frozen=True)
class Grid:
    """Positions [samples, rows, columns, width], of which some have zeros put below
    and to the right, turned by `shift` in both directions: elements of a tensor of
    the larger size in a layout."""

    of: View
    rows: int
    columns: int
    below: int = 0
    right: int = 0
    shift: int = 0
    layout: Layout = Layout(())

    def whole(self) -> Layout:
        """The layout of all positions in order."""
        samples, width = self.of.layout.shape[0], self.of.layout.shape[-1]
        return Layout.contiguous((samples, self.rows + self.below,
                                  self.columns + self.right, width))


@dataclasses.dataclass(eq=False)
class Joined:
    """Windows [samples, windows, positions, width] back in a grid of
    [samples, rows, columns, width], which may have been turned back by `shift` and
    have lost what stands below and to the right. With `six` the dimensions are still
    [samples, windows down, window, windows across, window, width]."""

    of: View
    window: int
    rows: int
    columns: int
    shift: int = 0
    six: bool = True
    done: Optional[View] = None


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """A number for every sample, evenly between `least` and `least` + 1; with `whole`
    rounded down: 1 with probability `least`, else 0."""

    shape: Tuple[int, ...]
    least: float = 0.0
    whole: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class PaddedImages:
    """Images with zeros below and to the right of them."""

    of: View
    below: int
    right: int


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Products of queries and keys, before or behind the softmax. `allowed` is
    None or says which pairs count; `mask`, among the data, which keys; `bias` is
    what is added, and `distance` how often the slopes of heads times the distances
    are. With a `cap` scaled scores are cap * tanh(score / cap) before that."""

    q: View
    k: View
    scale: float = 1.0
    cap: float = 0.0
    distance: float = 0.0
    allowed: Optional[torch.Tensor] = None
    mask: Optional[Tensor] = None
    bias: Optional[Bias] = None
    probabilities: bool = False
    dropout: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Several:
    """Results of one operation."""

    parts: Tuple[Any, ...]


PATTERNS = (KeyMask, RestMean, RowMean, Centered, MeanSquare, InverseRoot, Normed,
            OffsetWeight, Rotated, Scaled, Scores, Turned, Bias, Grid, Joined, Kept, PaddedImages)
