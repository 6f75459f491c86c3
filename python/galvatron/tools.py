# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds and calls the programs of Galvatron."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import weakref
from typing import Any, List, Mapping, Optional, Sequence

from . import errors

# Options whose value is on or off; Python's truth values are taken for it.
_SWITCHES = {"clip": ("on", "off"), "optimizer_time": ("on", "off"),
             "dropout": ("model", "off")}
# Options that are sizes: a plain number is one of bytes.
_SIZES = ("memory", "host_memory")


def find(name: str) -> str:
    """The path of a tool: in the folder that GALVATRON_BIN names, in PATH, or
    in the build folder of the sources that this package lies in."""
    folder = os.environ.get("GALVATRON_BIN")
    if folder:
        candidate = pathlib.Path(folder) / name
        if os.access(candidate, os.X_OK):
            return str(candidate)
        raise errors.ToolNotFound(
            f"expected '{name}' in the folder that GALVATRON_BIN names, '{folder}'")
    found: Optional[str] = shutil.which(name)
    if found:
        return found
    candidate = pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / name
    if os.access(candidate, os.X_OK):
        return str(candidate)
    raise errors.ToolNotFound(
        f"expected '{name}' in PATH, or GALVATRON_BIN to name the folder with it")


def _value(name: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, (list, tuple)):
        return ",".join(_value(name, part) for part in value)
    if isinstance(value, float):
        return repr(value)
    if name in _SIZES and isinstance(value, int):
        return f"{value}B"
    return str(value)


def arguments(options: Mapping[str, Any]) -> List[str]:
    """Options as a command line has them: `lr_schedule="cosine"` becomes
    `--lr-schedule=cosine`, `True` the bare option. None and False leave it out,
    but for options that are on or off."""
    result = []
    for name, value in options.items():
        if name in _SWITCHES and isinstance(value, bool):
            value = _SWITCHES[name][0 if value else 1]
        if value is None or value is False:
            continue
        option = "--" + name.replace("_", "-")
        result.append(option if value is True else f"{option}={_value(name, value)}")
    return result


def run(name: str, parameters: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs a tool to its end, whatever its exit code."""
    return subprocess.run([find(name), *parameters], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace",
                          check=False)


def call(name: str, parameters: Sequence[str]) -> str:
    """Runs a tool and returns what it printed; raises if it fails."""
    done = run(name, parameters)
    if done.returncode:
        raise errors.from_exit_code(done.returncode, message_of(done, name))
    return done.stdout


def message_of(done: "subprocess.CompletedProcess[str]", name: str) -> str:
    """What a tool that failed said of it."""
    return done.stderr.strip() or f"{name} ended with exit code {done.returncode}"


def folder_of(owner: object) -> str:
    """A folder that vanishes with `owner`."""
    path = tempfile.mkdtemp(prefix="galvatron-")
    remove_with(owner, path)
    return path


def remove_with(owner: object, path: str) -> None:
    """Removes a folder when `owner` vanishes."""
    weakref.finalize(owner, shutil.rmtree, path, ignore_errors=True)
