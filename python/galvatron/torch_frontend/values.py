# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a node of an exported program can be while it is lowered.

Beside views of tensors and of parameters, and constants, there are parts of
patterns: things that nn has no operation for, and that become one together with
what follows (the scores of attention, the mean of squares of a norm)."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Tuple

import torch

from ..graph import Parameter, Tensor
from .layout import Layout

# Where functions of one number are compared: dense where they bend, wide enough
# for their tails.
_PROBE = torch.cat([torch.linspace(-8, 8, 257), torch.tensor([-30.0, 30.0])]).double()
_TOLERANCE = 1e-6


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


class Broken:
    """The result of an operation that has no counterpart; it was reported."""


@dataclasses.dataclass(eq=False)
class Function:
    """A function of every element of a view, and the operation that it ends with."""

    leaf: View
    call: Callable[[torch.Tensor], torch.Tensor]
    name: str
    done: Optional[View] = None

    def equals(self, other: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        """Whether it is another function, on all that is probed."""
        with torch.no_grad():
            mine, wanted = self.call(_PROBE), other(_PROBE)
        return bool(mine.shape == wanted.shape
                    and torch.allclose(mine, wanted, rtol=_TOLERANCE, atol=_TOLERANCE))

    def factor(self) -> Optional[float]:
        """The number that it multiplies by, if it does that alone."""
        with torch.no_grad():
            number = float(self.call(torch.ones(1, dtype=torch.float64))[0])
        return number if self.equals(lambda x: x * number) else None


@dataclasses.dataclass(frozen=True, eq=False)
class MeanSquare:
    """The mean of the squares of the last dimension, plus `eps`."""

    of: View
    eps: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class InverseRoot:
    """One by the root of the mean of squares; `inverse` is false for the root."""

    of: View
    eps: float
    inverse: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Normed:
    """A view divided by the root of its mean of squares."""

    of: View
    eps: float


@dataclasses.dataclass(frozen=True, eq=False)
class Rotated:
    """The second half of every head, negative, in front of the first."""

    of: View


@dataclasses.dataclass(frozen=True, eq=False)
class Scaled:
    """A view, or its rotated halves, times a constant of several elements."""

    of: View
    rotated: bool
    by: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Products of queries and keys, before or behind the softmax. `allowed` is
    None or says which pairs count."""

    q: View
    k: View
    scale: float = 1.0
    allowed: Optional[torch.Tensor] = None
    probabilities: bool = False
    dropout: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Several:
    """Results of one operation."""

    parts: Tuple[Any, ...]


PATTERNS = (MeanSquare, InverseRoot, Normed, Rotated, Scaled, Scores)
