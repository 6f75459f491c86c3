#!/usr/bin/env python3
"""Writes what a T5 reads, tokens.npy and three more, from a text.

  examples/t5-tiny/make_spans.py TEXT [LENGTH [TARGET [SEED]]]

Tokens are bytes; 256 fills up sequences and begins those of the decoder, 257 ends
a sequence, 258 and those behind it each stand for a span. A sample is a piece of
the text in which spans of two to four bytes, 15% of all, are replaced by one such
token each; the decoder writes these tokens, behind each what it stands for (Raffel
et al., arXiv 1910.10683, section 3.1.4).
"""

import os
import random
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "..", "classifier"))
from make_pictures import save

PADDING, END, FIRST_SPAN, MOST_SPANS = 256, 257, 258, 8


def corrupt(piece, draw):
    """What is left of a piece of text, and what is to be written."""
    left, target, number = [], [], 0
    wanted, place = round(0.15 * len(piece)), 0
    while wanted > 0 and number < MOST_SPANS:
        size = min(draw.randint(2, 4), wanted)
        # So far apart that the rest of the spans finds room.
        gap = draw.randint(1, max(1, 2 * (len(piece) - place) * size // wanted // 3))
        if place + gap + size > len(piece):
            break
        left += [*piece[place:place + gap], FIRST_SPAN + number]
        target += [FIRST_SPAN + number, *piece[place + gap:place + gap + size]]
        place += gap + size
        wanted -= size
        number += 1
    return [*left, *piece[place:], END], [*target, END]


def main():
    with open(sys.argv[1], "rb") as file:
        text = file.read()
    length, most, seed = [int(word) for word in
                          sys.argv[2:5] + ["64", "16", "1"][len(sys.argv) - 2:]]
    draw = random.Random(seed)
    columns = {"tokens": [], "mask": [], "decoder_tokens": [], "labels": []}
    count = 0
    for begin in range(0, len(text) - length, length):
        source, target = corrupt(text[begin:begin + draw.randint(length // 2, length - 2)],
                                 draw)
        if len(source) > length or len(target) > most:
            continue
        count += 1
        columns["tokens"] += source + [PADDING] * (length - len(source))
        columns["mask"] += [1] * len(source) + [0] * (length - len(source))
        fill = most - len(target)
        columns["decoder_tokens"] += [PADDING, *target[:-1]] + [PADDING] * fill
        columns["labels"] += target + [-1] * fill
    for name, values in columns.items():
        data = struct.pack(f"<{len(values)}i", *values)
        save(name + ".npy", "<i4", (count, len(values) // count), data)


if __name__ == "__main__":
    main()
