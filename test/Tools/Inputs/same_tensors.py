# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether two saved models have the same bits in every tensor with a text in its
name.

    same_tensors.py FOLDER FOLDER TEXT
"""

import json
import struct
import sys


def tensors(folder):
    with open(folder + "/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: data[slice(*entry["data_offsets"])]
            for name, entry in header.items() if sys.argv[3] in name}


first, second = tensors(sys.argv[1]), tensors(sys.argv[2])
assert first and first.keys() == second.keys()
sys.exit(0 if first == second else 1)
