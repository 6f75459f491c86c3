# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what a T5 that reads bytes is to learn two answers from, as the arrays of its
four data: 16 tokens for the encoder, 8 for the decoder."""

import array

START, END = 256, 257
ANSWERS = [(b"day?", b"sun"), (b"night?", b"stars")]


def write(name, rows):
    shape = (len(rows), len(rows[0]))
    head = str({"descr": "<i4", "fortran_order": False, "shape": shape})
    head = head.ljust(117) + "\n"
    with open(name + ".npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        for row in rows:
            file.write(array.array("i", row).tobytes())


def filled(tokens, length, padding):
    return [*tokens, *[padding] * (length - len(tokens))]


def main():
    pairs = ANSWERS * 32
    asked = [[*question, END] for question, _ in pairs]
    written = [[*answer, END] for _, answer in pairs]
    write("tokens", [filled(row, 16, START) for row in asked])
    write("mask", [filled([1] * len(row), 16, 0) for row in asked])
    write("decoder_tokens", [filled([START, *row[:-1]], 8, START) for row in written])
    write("labels", [filled(row, 8, -1) for row in written])


if __name__ == "__main__":
    main()
