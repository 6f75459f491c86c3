#!/usr/bin/env python3
"""Writes the handwritten digits that scikit-learn ships as .npy files.

  examples/vit-digits/make_digits.py      # needs scikit-learn to be installed

1797 images of 8 by 8 pixels (Alpaydin and Kaynak, UCI). The last 297 are held
out: images.npy and classes.npy have the others, held-images.npy and
held-classes.npy these. Rows of the data set's file are 64 pixels from 0 to 16 and
the digit; it is read without importing the library.
"""

import csv
import gzip
import importlib.util
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "classifier"))
from make_pictures import save

HELD_OUT = 297


def rows():
    package = importlib.util.find_spec("sklearn")
    if not package:
        sys.exit("make_digits.py: expected scikit-learn to be installed, found none")
    path = os.path.join(package.submodule_search_locations[0], "datasets", "data",
                        "digits.csv.gz")
    with gzip.open(path, "rt", encoding="ascii") as file:
        return [[int(float(field)) for field in row] for row in csv.reader(file)]


def main():
    digits = rows()
    for prefix, part in (("", digits[:-HELD_OUT]), ("held-", digits[-HELD_OUT:])):
        pixels = bytes(255 * pixel // 16 for row in part for pixel in row[:64])
        classes = bytes(row[64] for row in part)
        save(prefix + "images.npy", "|u1", (len(part), 1, 8, 8), pixels)
        save(prefix + "classes.npy", "|u1", (len(part),), classes)


if __name__ == "__main__":
    main()
