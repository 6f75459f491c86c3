"""Compares what layers keep by a plan, by the same plan on another cluster, and
by that cluster's own choice; and the losses of two runs."""
import json
import sys


def kept(name):
    with open(name, encoding="utf-8") as file:
        return [layer.get("kept") for layer in json.load(file)["layers"]]


def losses(name):
    with open(name, encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


there, here, chosen = (kept(name) for name in sys.argv[1:4])
assert there == here, (there, here)
assert any(there), "no layer has a point"
assert there != chosen, "the number means the same on both clusters"
one, other = (losses(name) for name in sys.argv[4:])
assert len(one) == 3, one
for a, b in zip(one, other, strict=True):
    assert abs(a - b) <= 1e-5 * abs(b), (one, other)
