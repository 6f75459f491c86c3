# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights in safetensors files, mapped and not copied.

The format is a length (8 bytes, little endian), a JSON header of that length
with type, shape and place of every tensor, and the tensors."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Union

from . import errors

_LENGTH_BYTES = 8
# What headers of the format may have at most.
_MOST_HEADER_BYTES = 100_000_000
# Bytes of an element, and NumPy's name of its type; bf16 has none.
_TYPES: Dict[str, Tuple[int, Optional[str]]] = {
    "F64": (8, "<f8"), "F32": (4, "<f4"), "F16": (2, "<f2"), "BF16": (2, None),
    "I64": (8, "<i8"), "I32": (4, "<i4"), "I16": (2, "<i2"), "I8": (1, "i1"),
    "U8": (1, "u1"), "BOOL": (1, "b1")}
_NAMES = {name.lstrip("<"): key for key, (_, name) in _TYPES.items() if name}


class Weights(Mapping[str, Any]):
    """The tensors of a safetensors file, by name, as NumPy arrays that lie in the
    file; what is written to them stays in memory. `buffer`, `shape` and `dtype` do
    without NumPy."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        path = os.fspath(path)
        if os.path.isdir(path):
            path = os.path.join(path, "model.safetensors")
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _LENGTH_BYTES:
                raise errors.InvalidInput(
                    f"{path}: expected at least {_LENGTH_BYTES} bytes, found {size}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        (length,) = struct.unpack("<Q", self._map[:_LENGTH_BYTES])
        self._data = _LENGTH_BYTES + length
        if length > min(size - _LENGTH_BYTES, _MOST_HEADER_BYTES):
            raise errors.InvalidInput(
                f"{path}: expected a header of at most {size - _LENGTH_BYTES} "
                f"bytes, found {length}")
        try:
            header = json.loads(self._map[_LENGTH_BYTES:self._data])
            self._entries = {name: _entry(value) for name, value in header.items()
                             if name != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.InvalidInput(
                f"{path}: expected the header of a safetensors file: {error}"
            ) from error
        for name, (kind, shape, begin, end) in self._entries.items():
            needed = math.prod(shape) * _TYPES[kind][0]
            if begin < 0 or end - begin != needed or self._data + end > size:
                raise errors.InvalidInput(
                    f"{path}: tensor '{name}': expected {needed} bytes within the "
                    f"file, found bytes {begin} to {end}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def shape(self, name: str) -> Tuple[int, ...]:
        """The shape of a tensor."""
        return self._entries[name][1]

    def dtype(self, name: str) -> str:
        """The type of a tensor's elements as the format names it: 'F32'."""
        return self._entries[name][0]

    def buffer(self, name: str) -> memoryview:
        """The bytes of a tensor."""
        _, _, begin, end = self._entries[name]
        return memoryview(self._map)[self._data + begin:self._data + end]

    def __getitem__(self, name: str) -> Any:
        numpy = _numpy()
        kind, shape, _, _ = self._entries[name]
        if _TYPES[kind][1] is None:
            # The upper half of an f32 is a bf16.
            halves = numpy.frombuffer(self.buffer(name), "<u2").astype("<u4")
            return (halves << 16).view("<f4").reshape(shape)
        return numpy.frombuffer(self.buffer(name), _TYPES[kind][1]).reshape(shape)

    def torch(self) -> Dict[str, Any]:
        """The tensors for PyTorch's `load_state_dict`, without a copy."""
        import torch  # pylint: disable=import-outside-toplevel
        types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
                 "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
                 "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
                 "BOOL": torch.bool}
        return {name: torch.frombuffer(self.buffer(name), dtype=types[kind])
                .reshape(shape) if math.prod(shape) else
                torch.empty(shape, dtype=types[kind])
                for name, (kind, shape, _, _) in self._entries.items()}

    def __repr__(self) -> str:
        count = sum(math.prod(entry[1]) for entry in self._entries.values())
        return f"Weights('{self.path}': {len(self)} tensors, {count:,} elements)"


def _entry(value: Mapping[str, Any]) -> Tuple[str, Tuple[int, ...], int, int]:
    begin, end = value["data_offsets"]
    if value["dtype"] not in _TYPES:
        raise ValueError(f"unknown type '{value['dtype']}'")
    shape = tuple(int(size) for size in value["shape"])
    if any(size < 0 for size in shape):
        raise ValueError(f"negative size in {list(shape)}")
    return value["dtype"], shape, int(begin), int(end)


def _numpy() -> Any:
    try:
        import numpy  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise ImportError("weights as arrays need the package 'numpy'; 'buffer' "
                          "gives their bytes without it") from error
    return numpy


def save(tensors: Mapping[str, Any], path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes NumPy arrays, or (type, shape, bytes), as a safetensors file that
    appears whole or not at all."""
    header: Dict[str, Any] = {}
    parts, at = [], 0
    for name, value in tensors.items():
        if isinstance(value, tuple):
            kind, shape, data = value
        else:
            array = _numpy().asarray(value, order="C")
            kind = _NAMES.get(array.dtype.str.lstrip("<|"), "")
            if not kind:
                raise errors.InvalidInput(
                    f"tensor '{name}': unsupported type '{array.dtype}'")
            shape, data = array.shape, memoryview(array).cast("B") \
                if array.size else b""
        size = len(data)
        header[name] = {"dtype": kind, "shape": [int(s) for s in shape],
                        "data_offsets": [at, at + size]}
        parts.append(data)
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    path = os.fspath(path)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for part in parts:
            file.write(part)
    os.replace(path + ".part", path)
