#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes an array of zeros.

    array.py FILE TYPE DIM..      (TYPE as in the format: <f4, |u1, <i8)
"""

import math
import sys


def main():
    path, kind, *sizes = sys.argv[1:]
    shape = tuple(int(size) for size in sizes)
    header = str({"descr": kind, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little"))
        file.write(header.encode() + bytes(math.prod(shape) * int(kind[-1])))


main()
