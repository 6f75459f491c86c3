# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Python has as data, as the files that galvatron-run reads."""

from __future__ import annotations

import array
import os
import pathlib
import sys
from typing import Any, List, Mapping, Union

from . import errors

# Tokens below this fit into 16 bits.
_WORDS_OF_16_BITS = 2**16
_WORDS_OF_32_BITS = 2**32


def options(data: Any, folder: Union[str, "os.PathLike[str]"],
            name: str = "data") -> List[str]:
    """The `--data` options for `data`: a path, or several in a list; bytes (a
    text); integers, or an array of them (tokens); or a dictionary from the names
    of a program's data to paths and arrays. Arrays are written to `folder`."""
    if isinstance(data, Mapping):
        return [f"--{name}={key}={_file(value, folder, str(key), arrays=True)}"
                for key, value in data.items()]
    if isinstance(data, (list, tuple)) and data and \
            all(isinstance(part, (str, os.PathLike)) for part in data):
        return [f"--{name}={_existing(part)}" for part in data]
    return [f"--{name}={_file(data, folder, 'tokens', arrays=False)}"]


def _existing(path: Union[str, "os.PathLike[str]"]) -> str:
    return os.path.abspath(path) if os.path.exists(path) else os.fspath(path)


def _file(value: Any, folder: Union[str, "os.PathLike[str]"], name: str,
          arrays: bool) -> str:
    if isinstance(value, (str, os.PathLike)):
        return _existing(value)
    stem = pathlib.Path(folder) / name
    if isinstance(value, (bytes, bytearray)):
        path = stem.with_name(stem.name + ".txt")
        path.write_bytes(value)
        return str(path)
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if arrays and hasattr(value, "__array__") and value.ndim > 1:
        import numpy  # pylint: disable=import-outside-toplevel
        path = stem.with_name(stem.name + ".npy")
        numpy.save(path, numpy.ascontiguousarray(value))
        return str(path)
    return _tokens(value, stem)


def _tokens(value: Any, stem: pathlib.Path) -> str:
    if hasattr(value, "__array__"):
        if value.dtype.kind not in "iu":
            raise errors.InvalidInput(
                f"data '{stem.name}': expected integers, found '{value.dtype}'")
        value = value.reshape(-1).tolist()
    try:
        words = list(value)
    except TypeError:
        words = [None]
    if not words or not all(isinstance(word, int) for word in words):
        raise errors.InvalidInput(
            f"data '{stem.name}': expected a path, bytes, integers or an array, "
            f"found '{type(value).__name__}'")
    if min(words) < 0 or max(words) >= _WORDS_OF_32_BITS:
        raise errors.InvalidInput(
            f"data '{stem.name}': expected tokens from 0 to {_WORDS_OF_32_BITS - 1}, "
            f"found {min(words) if min(words) < 0 else max(words)}")
    short = max(words) < _WORDS_OF_16_BITS
    packed = array.array("H" if short else "I", words)
    if sys.byteorder == "big":
        packed.byteswap()
    path = stem.with_name(stem.name + (".u16" if short else ".u32"))
    path.write_bytes(packed.tobytes())
    return str(path)
