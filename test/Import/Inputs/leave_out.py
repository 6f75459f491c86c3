# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies a safetensors file without the tensors whose names have a part.

    leave_out.py FROM TO PART
"""

import json
import struct
import sys


def main():
    source, target, part = sys.argv[1:]
    with open(source, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    kept, parts, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in header.items():
        if part in name:
            continue
        begin, end = tensor["data_offsets"]
        kept[name] = {**tensor, "data_offsets": [offset, offset + end - begin]}
        parts.append(data[begin:end])
        offset += end - begin
    assert len(kept) < len(header) + 1, f"no tensor has '{part}'"
    text = json.dumps(kept).encode()
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


if __name__ == "__main__":
    main()
