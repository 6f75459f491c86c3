# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Safetensors files, good and broken."""

import json
import struct
import unittest

import galvatron
from galvatron import weights

from .support import FolderTest

try:
    import numpy
except ImportError:
    numpy = None


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class WeightsTest(FolderTest):
    def test_round_trip_without_numpy(self):
        path = self.folder / "w.safetensors"
        weights.save({"a": ("F32", (2, 1), struct.pack("<2f", 1, 2)),
                      "b.c": ("I64", (0,), b"")}, path)
        read = galvatron.Weights(path)
        self.assertEqual(list(read), ["a", "b.c"])
        self.assertEqual(read.shape("a"), (2, 1))
        self.assertEqual(bytes(read.buffer("a")), struct.pack("<2f", 1, 2))
        self.assertIn("2 tensors, 2 elements", repr(read))
        self.assertEqual(len(galvatron.Weights(path)), 2)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_arrays_lie_in_the_file(self):
        path = self.folder / "w.safetensors"
        tensors = {kind: numpy.arange(6).astype(kind).reshape(2, 3)
                   for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")}
        weights.save(tensors, path)
        read = galvatron.Weights(path)
        for kind, tensor in tensors.items():
            numpy.testing.assert_array_equal(read[kind], tensor)
            self.assertEqual(read[kind].dtype, tensor.dtype)
        self.assertFalse(read["f4"].flags.owndata)
        # What is written stays in memory.
        read["f4"][0, 0] = 7
        self.assertEqual(galvatron.Weights(path)["f4"][0, 0], 0)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_bf16_becomes_f32(self):
        path = self.write("w.safetensors", file_of(
            {"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}},
            struct.pack("<2H", 0x3F80, 0xC000)))
        self.assertEqual(galvatron.Weights(path)["x"].tolist(), [1.0, -2.0])

    def test_broken_files_are_refused(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for name, content, message in [
                ("short", b"abc", "at least 8 bytes, found 3"),
                ("length", struct.pack("<Q", 1 << 60), "a header of at most 0 bytes"),
                ("json", file_of(b"{"), "the header of a safetensors file"),
                ("list", file_of([]), "the header of a safetensors file"),
                ("type", file_of({"x": dict(entry, dtype="Q4")}), "type 'Q4'"),
                ("negative", file_of({"x": dict(entry, shape=[-2])}), "negative size"),
                ("behind", file_of({"x": entry}), "tensor 'x': expected 8 bytes"),
                ("size", file_of({"x": dict(entry, shape=[3])}, b"0" * 8),
                 "tensor 'x': expected 12 bytes"),
                ("no shape", file_of({"x": {"dtype": "F32"}}), "data_offsets")]:
            with self.subTest(name), \
                    self.assertRaisesRegex(galvatron.InvalidInput, message):
                galvatron.Weights(self.write("broken", content))

    @unittest.skipUnless(numpy, "needs numpy")
    def test_types_without_a_name_are_refused(self):
        with self.assertRaisesRegex(galvatron.InvalidInput, "'c': unsupported type"):
            weights.save({"c": numpy.zeros(2, "complex64")}, self.folder / "w")


if __name__ == "__main__":
    unittest.main()
