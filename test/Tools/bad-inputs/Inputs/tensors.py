#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a file of weights a wrong one.

    tensors.py FILE drop NAME | rename NAME NEW | add NAME | shape NAME DIM..
                    | type NAME TYPE | move NAME BYTES
"""

import json
import struct
import sys


def main():
    path, what, name, *rest = sys.argv[1:]
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    if what == "drop":
        first, last = header.pop(name)["data_offsets"]
        data = data[:first] + data[last:]
        for key, entry in header.items():
            if key != "__metadata__" and entry["data_offsets"][0] >= last:
                entry["data_offsets"] = [offset - last + first for offset
                                         in entry["data_offsets"]]
    elif what == "rename":
        header[rest[0]] = header.pop(name)
    elif what == "add":
        header[name] = {"dtype": "F32", "shape": [2],
                        "data_offsets": [len(data), len(data) + 8]}
        data += bytes(8)
    elif what == "shape":
        header[name]["shape"] = [int(size) for size in rest]
    elif what == "type":
        header[name]["dtype"] = rest[0]
    elif what == "move":
        header[name]["data_offsets"] = [offset + int(rest[0]) for offset
                                        in header[name]["data_offsets"]]
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main()
