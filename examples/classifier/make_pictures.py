#!/usr/bin/env python3
"""Writes images.npy and classes.npy: noisy pictures of ten patterns.

  examples/classifier/make_pictures.py [PICTURES [SEED]]

Of every picture four patches of 16 bytes, [PICTURES, 4, 16], and its class for
each of them, [PICTURES, 4]. With NumPy this is two calls of numpy.save; the
format is so simple that the script does without.
"""

import random
import struct
import sys


def save(path, descr, shape, data):
    """What numpy.save writes."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
        out.write(header.encode() + data)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    patterns = [[draw.choice((32, 224)) for _ in range(64)] for _ in range(10)]
    images, classes = bytearray(), bytearray()
    for _ in range(count):
        kind = draw.randrange(10)
        images += bytes(
            min(255, max(0, int(draw.gauss(pixel, 40)))) for pixel in patterns[kind]
        )
        classes += bytes([kind] * 4)
    save("images.npy", "|u1", (count, 4, 16), images)
    save("classes.npy", "|u1", (count, 4), classes)


if __name__ == "__main__":
    main()
