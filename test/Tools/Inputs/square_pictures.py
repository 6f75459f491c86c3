# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the pictures of examples/classifier as images of 8 by 8, one class each.

  square_pictures.py EXAMPLES      # images.npy, classes.npy in the current folder
"""

import os
import sys

sys.path.append(os.path.join(sys.argv[1], "classifier"))
import make_pictures


def main():
    sys.argv = sys.argv[:1]
    make_pictures.main()
    payload = {}
    for name, size in ("images", 64), ("classes", 4):
        with open(name + ".npy", "rb") as file:
            data = file.read()
        # Behind ten bytes and a header of the length that the last two say.
        payload[name] = data[10 + int.from_bytes(data[8:10], "little"):]
    count = len(payload["images"]) // 64
    make_pictures.save("images.npy", "|u1", (count, 1, 8, 8), payload["images"])
    make_pictures.save("classes.npy", "|u1", (count,), payload["classes"][::4])


if __name__ == "__main__":
    main()
