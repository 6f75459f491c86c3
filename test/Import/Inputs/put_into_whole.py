# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the tensors of a model under a prefix, and one of a tower beside them.

  put_into_whole.py FROM TO OLD NEW    names that begin with OLD begin with NEW
"""

import json
import struct
import sys

source, target, old, new = sys.argv[1:]
with open(source, "rb") as file:
    length = struct.unpack("<Q", file.read(8))[0]
    header = json.loads(file.read(length))
    data = file.read()
header = {new + name[len(old):] if name.startswith(old) else name: entry
          for name, entry in header.items()}
header["vision_tower.patches.weight"] = {
    "dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(target, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data + bytes(8))
