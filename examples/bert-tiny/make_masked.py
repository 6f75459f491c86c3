#!/usr/bin/env python3
"""Writes what a BERT reads, tokens.npy and three more, from a text.

  examples/bert-tiny/make_masked.py TEXT [LENGTH [SEED]]

Tokens are bytes; 256 fills up sequences and 257 stands for what is to be guessed.
A sequence is two pieces of the text, of token types 0 and 1, that together fill
half of it or more. Of its tokens 15% have a label, the byte that was there: 8 of
10 of these are masked, one is another byte, and one is left (Devlin et al., arXiv
1810.04805).
"""

import os
import random
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "classifier"))
from make_pictures import save

PADDING, MASKED = 256, 257


def main():
    with open(sys.argv[1], "rb") as file:
        text = file.read()
    length = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    draw = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    count = len(text) // length
    columns = {"tokens": [], "mask": [], "token_types": [], "labels": []}
    for _ in range(count):
        used = draw.randint(length // 2, length)
        first = draw.randint(1, used - 1)
        for position in range(length):
            if position in (0, first):
                place = draw.randrange(len(text) - length)
            there = position < used
            byte = text[place + position] if there else PADDING
            token, label = byte, -1
            if there and draw.random() < 0.15:
                label, choice = byte, draw.randrange(10)
                token = MASKED if choice < 8 else token
                token = draw.randrange(256) if choice == 8 else token
            columns["tokens"].append(token)
            columns["mask"].append(int(there))
            columns["token_types"].append(int(there and position >= first))
            columns["labels"].append(label)
    for name, values in columns.items():
        data = struct.pack(f"<{len(values)}i", *values)
        save(name + ".npy", "<i4", (count, length), data)


if __name__ == "__main__":
    main()
