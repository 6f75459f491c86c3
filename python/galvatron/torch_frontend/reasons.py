# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Why an operation cannot be lowered."""

from __future__ import annotations

from typing import Optional

from ..graph import Where


class NoCounterpart(ValueError):
    """What stands there cannot be said in nn operations. `name` and `where` are those
    of the operation, if it is not the one that is lowered."""

    def __init__(self, reason: str, name: str = "", where: Optional[Where] = None):
        super().__init__(reason)
        self.name = name
        self.where = where
