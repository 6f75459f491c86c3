# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What can go wrong, as exceptions that carry the message of the tool."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

# Exit codes of the tools (docs/operations.md).
EXIT_INVALID = 2
EXIT_NUMERICS = 3
EXIT_PEER = 4
EXIT_STORAGE = 5
EXIT_MEMORY = 6


class Error(RuntimeError):
    """The base of all errors of this package."""


class ToolNotFound(Error):
    """A program of Galvatron is not installed where it was looked for."""


class InvalidInput(Error, ValueError):
    """A wrong option, or a file that is not what it should be (exit code 2)."""


class Infeasible(Error):
    """No plan fits. `details` has what the tool says of it: `reason`, `stage`,
    `needed-bytes`, `available-bytes`, `ledger`, `relaxations`, `would-fit`."""

    def __init__(self, message: str, details: Mapping[str, Any]):
        super().__init__(message)
        self.details = dict(details)

    @property
    def relaxations(self) -> Sequence[str]:
        """What would help, as sentences."""
        return tuple(self.details.get("relaxations", ()))


class RunFailed(Error):
    """A tool failed. `code` is its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class NumericsError(RunFailed):
    """A loss or a gradient norm is not finite."""


class PeerLost(RunFailed):
    """A process or rank is lost or stuck."""


class StorageError(RunFailed):
    """A file could not be written or read."""


class OutOfMemory(RunFailed):
    """The memory of a device or of the machine does not suffice."""


_BY_CODE = {
    EXIT_NUMERICS: NumericsError,
    EXIT_PEER: PeerLost,
    EXIT_STORAGE: StorageError,
    EXIT_MEMORY: OutOfMemory,
}


def from_exit_code(code: int, message: str) -> Error:
    """The exception for a tool that ended with `code` and wrote `message`."""
    if code == EXIT_INVALID:
        return InvalidInput(message)
    return _BY_CODE.get(code, RunFailed)(message, code)


class UnsupportedOperation:
    """One operation of a module that has no counterpart, and where it stands."""

    def __init__(self, operation: str, reason: str, module: str = "",
                 source: str = ""):
        self.operation = operation
        self.reason = reason
        self.module = module
        self.source = source

    def __str__(self) -> str:
        place = f"'{self.operation}'"
        if self.module:
            place += f" in module '{self.module}'"
        if self.source:
            place += f" at {self.source}"
        return f"{place}: {self.reason}"

    __repr__ = __str__


class Unsupported(Error):
    """A module cannot be imported. `operations` lists all that stands in the
    way, not the first alone."""

    def __init__(self, operations: Sequence[UnsupportedOperation]):
        self.operations = tuple(operations)
        count = len(self.operations)
        lines = "\n".join(f"  {operation}" for operation in self.operations)
        super().__init__(
            f"{count} operation{'s' * (count != 1)} without a counterpart:\n{lines}")
