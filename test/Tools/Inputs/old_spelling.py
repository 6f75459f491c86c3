# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a model as older versions of transformers stored a BERT.

    old_spelling.py MODEL.safetensors OUT.safetensors

Norms are spelled as in TensorFlow; a buffer, the pooler of another class and a
copy of the tied table stand beside the parameters.
"""

import json
import struct
import sys


def main():
    with open(sys.argv[1], "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    old = {}
    for name, tensor in header.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[name.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    for name, dtype in (("bert.embeddings.position_ids", "I64"),
                        ("bert.pooler.dense.bias", "F32")):
        more = bytes(8)
        old[name] = {"dtype": dtype, "shape": [8 * len(more) // int(dtype[1:])],
                     "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    begin, end = old["bert.embeddings.word_embeddings.weight"]["data_offsets"]
    table = dict(old["bert.embeddings.word_embeddings.weight"],
                 data_offsets=[len(data), len(data) + end - begin])
    old["cls.predictions.decoder.weight"] = table
    data += data[begin:end]
    text = json.dumps(old).encode()
    text += b" " * (-len(text) % 8)
    with open(sys.argv[2], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
