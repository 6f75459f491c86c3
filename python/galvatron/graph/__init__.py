# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models as graphs of nn operations: written by frontends, cut into layers,
printed as IR. Needs no PyTorch."""

from .emit import Layered, build, write
from .graph import (Datum, Graph, Op, Parameter, ShapeConflict, Tensor, Use,
                    Where)

__all__ = ["Datum", "Graph", "Layered", "Op", "Parameter", "ShapeConflict",
           "Tensor", "Use", "Where", "build", "write"]
