#!/usr/bin/env python3
"""Writes golden.json: samples of masked tokens and corrupted spans.

  generate.py [--check]

Written from docs/data.md alone, apart from the runtime that the samples are
compared with; --check compares the file with what would be written.
"""

import json
import os
import sys

WORD = (1 << 64) - 1
HALF = (1 << 32) - 1
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json")


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011)."""
    low, high = key
    c = list(counter)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ low, second & HALF,
             first >> 32 ^ c[3] ^ high, first & HALF]
        low, high = low + 0x9E3779B9 & HALF, high + 0xBB67AE85 & HALF
    return c


def mix(x):
    """The finaliser of SplitMix64."""
    x = x + 0x9E3779B97F4A7C15 & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def key_of(a, b):
    mixed = mix(mix(a) ^ b)
    return mixed & HALF, mixed >> 32


def permuted(index, size, seed, epoch):
    """The sample at a place of an epoch: a Feistel network, walked."""
    bits = 1
    while bits < 32 and 1 << 2 * bits < size:
        bits += 1
    key = key_of(seed, int.from_bytes(b"samples!", "big"))
    while True:
        left, right = index >> bits, index & (1 << bits) - 1
        for turn in range(6):
            lane = philox(key, (right, epoch & HALF, epoch >> 32, turn))[0]
            left, right = right, (left ^ lane) & (1 << bits) - 1
        index = left << bits | right
        if index < size:
            return index


class Draws:
    """Numbers of one sample."""

    def __init__(self, seed, epoch, sample):
        self.key = key_of(mix(seed) ^ int.from_bytes(b"corrupt", "big"), epoch)
        self.sample = sample

    def below(self, bound, stream, index):
        lanes = philox(self.key, (self.sample & HALF, self.sample >> 32,
                                  index // 4, stream))
        return lanes[index % 4] * bound >> 32

    def chosen(self, places, wanted, stream):
        """Exactly so many of the places, in their order."""
        result = []
        for position, place in enumerate(places):
            left = len(places) - position
            if self.below(left, stream, place) < wanted - len(result):
                result.append(place)
        return result


def masked(case, row, draws):
    special = set(case["special"])
    words = [w for w in range(case["words"]) if w not in special]
    text = case["before"] + row + case["behind"]
    inside = range(len(case["before"]), len(case["before"]) + len(row))
    ordinary = [i for i in inside if text[i] not in special]
    wanted = min(max(round(len(text) * case["rate"]), 1), len(ordinary))
    seen, labels = list(text), [-1] * len(text)
    for i in draws.chosen(ordinary, wanted, 0):
        labels[i] = text[i]
        what = draws.below(10, 1, i)
        if what < 8:
            seen[i] = case["mask"]
        elif what == 8:
            seen[i] = words[draws.below(len(words), 2, i)]
    return {"tokens": seen, "labels": labels}


def lost_and_spans(case, length):
    lost = min(max(round(length * case["rate"]), 1), length - 1)
    spans = min(max(round(lost / case["span-length"]), 1), lost, length - lost)
    return lost, spans


def row_length(case):
    """As many tokens as fill the encoder when spans are gone."""
    if case["kind"] == "tokens":
        return case["length"] - len(case["before"]) - len(case["behind"])

    def inputs(length):
        lost, spans = lost_and_spans(case, length)
        return length - lost + spans + 1

    length = case["length"] - 1
    while inputs(length + 1) <= case["length"]:
        length += 1
    return length


def corrupted(case, row, draws):
    lost, spans = lost_and_spans(case, len(row))

    def parts(tokens, stream):
        cuts = draws.chosen(range(tokens - 1), spans - 1, stream)
        bounds = [0] + [cut + 1 for cut in cuts] + [tokens]
        return [end - begin for begin, end in zip(bounds, bounds[1:])]

    seen, target, at = [], [], 0
    for number, (gone, left) in enumerate(
            zip(parts(lost, 3), parts(len(row) - lost, 4))):
        seen += row[at:at + left] + [case["sentinels"][number]]
        at += left
        target += [case["sentinels"][number]] + row[at:at + gone]
        at += gone
    seen, target = seen + [case["end"]], target + [case["end"]]
    pad, fill = case["length"] - len(seen), case["target"] - len(target)
    return {"tokens": seen + [case["padding"]] * pad,
            "mask": [1] * len(seen) + [0] * pad,
            "decoder_tokens": [case["start"]] + target[:-1] +
                              [case["padding"]] * fill,
            "labels": target + [-1] * fill}


def samples_of(case):
    tokens = [(i * i * 7 + i * 3) % case["below"] for i in range(case["file"])]
    length = row_length(case)
    count = len(tokens) // length
    validation = count // 4
    training = count - validation
    make = masked if case["kind"] == "tokens" else corrupted
    places = [(n, permuted(n % training, training, case["seed"],
                           n // training), n // training)
              for n in (0, 1, training, 1000003)]
    places += [(-1 - n, training + n, WORD) for n in (0, 1)]
    for place, sample, epoch in places:
        row = tokens[sample * length:(sample + 1) * length]
        made = make(case, row, Draws(case["seed"], epoch, sample))
        yield {"place": place, **made}


CASES = [
    {"kind": "tokens", "seed": 1, "length": 64, "rate": 0.15, "mask": 103,
     "special": [0, 100, 101, 102, 103], "before": [101], "behind": [102, 0],
     "words": 120, "below": 120, "file": 900},
    {"kind": "tokens", "seed": 1 << 40, "length": 21, "rate": 0.4, "mask": 7,
     "special": [], "before": [], "behind": [], "words": 50, "below": 60,
     "file": 500},
    {"kind": "spans", "seed": 2, "length": 64, "target": 20, "rate": 0.15,
     "span-length": 3, "sentinels": [99, 98, 97, 96, 95], "padding": 0,
     "end": 1, "start": 0, "below": 80, "file": 2000},
    {"kind": "spans", "seed": 0, "length": 31, "target": 40, "rate": 0.5,
     "span-length": 1.5, "sentinels": list(range(200, 260, 2)), "padding": 0,
     "end": 1, "start": 2, "below": 150, "file": 1000}]


def main():
    cases = [{**case, "samples": list(samples_of(case))} for case in CASES]
    lines = []
    for case in cases:
        samples = ",\n".join(json.dumps(s, separators=(",", ":"))
                             for s in case.pop("samples"))
        lines.append(json.dumps(case)[:-1] + ', "samples": [\n' + samples + "]}")
    text = "[" + ",\n".join(lines) + "]\n"
    if sys.argv[1:] == ["--check"]:
        with open(FILE, encoding="ascii") as file:
            sys.exit(0 if file.read() == text else f"{FILE} is another")
    with open(FILE, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    main()
