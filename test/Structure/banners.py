#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every C++ file begins with a banner of one line of 80 columns.

    banners.py ROOT

`//===- Name.cpp - What it is ---...---===//`, with the file's own name. A text
that is too long is broken over two lines by clang-format, and no longer found.
"""

import pathlib
import re
import sys

ROOMS = ("benchmarks", "fuzz", "include", "lib", "runtime", "test", "tools",
         "unittests")
SUFFIXES = (".cpp", ".h", ".cu", ".td")


def complaint(path):
    """What is wrong with a file's first lines; None if nothing is."""
    lines = path.read_text(encoding="utf-8").split("\n", 2)
    banner = re.fullmatch(r"//===-+ (\S+) - .*[^-].*-===//", lines[0])
    if not banner or len(lines[0]) != 80 or (len(lines) > 1
                                             and lines[1] != "//"):
        return "expected a banner of one line of 80 columns, found '" \
            + lines[0] + "'"
    if banner.group(1) != path.name:
        return f"expected the banner to name '{path.name}', found " \
            f"'{banner.group(1)}'"
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    wrong = 0
    seen = 0
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            seen += 1
            if problem := complaint(path):
                wrong += 1
                print(f"{path.relative_to(root)}:1: {problem}")
    if not seen:
        print("expected C++ files, found none")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
