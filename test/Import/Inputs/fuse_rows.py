# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files with several parameters in one tensor.

    fuse_rows.py apart IN OUT    # the tensor's parts in tensors of their own
    fuse_rows.py same ONE OTHER  # whether both have the same tensors

`apart` knows the file of a GPT-NeoX of 4 heads: rows of queries, keys and values
stand head by head.
"""

import json
import struct
import sys

HEADS = 4


def read(path):
    """Tensors by name: shape and float32 values."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    return {name: (entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def write(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def apart(tensors):
    result = {}
    for name, (shape, data) in tensors.items():
        if "query_key_value" not in name:
            result[name] = (shape, data)
            continue
        rows = [data[i * len(data) // shape[0]:(i + 1) * len(data) // shape[0]]
                for i in range(shape[0])]
        size = shape[0] // (3 * HEADS)
        for which, word in enumerate(("query", "key", "value")):
            mine = [row for head in range(HEADS)
                    for row in rows[(3 * head + which) * size:][:size]]
            result[name.replace("query_key_value", word)] = (
                [len(mine), *shape[1:]], b"".join(mine))
    return result


def main():
    command, first, second = sys.argv[1:]
    if command == "apart":
        write(second, apart(read(first)))
    elif read(first) != read(second):
        sys.exit(f"{first} and {second} have other tensors")


if __name__ == "__main__":
    main()
