"""layer_profile.py PROFILE SIZE PLAN: checks what `galvatron-profile --layers`
wrote, and its bytes at one micro-batch size against a plan JSON that has every
layer on a stage of its own, with that size."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    profile = json.load(file)
size = int(sys.argv[2])
with open(sys.argv[3], encoding="utf-8") as file:
    stages = json.load(file)["stages"]

layers = profile["num_layers"]
assert layers == len(stages), (layers, len(stages))
sizes, times, memory = (profile[key] for key in
                        ("ubatchsizes", "time_gpu_sec", "memory_bytes"))
for direction in ("FWD", "BWD"):
    assert sizes[direction] == sorted(set(sizes[direction])), sizes
    for rows in (times[direction], memory[direction]):
        assert len(rows) == len(sizes[direction]), rows
        assert all(len(row) == layers for row in rows), rows
    for few, more in zip(memory[direction], memory[direction][1:]):
        assert all(a < b for a, b in zip(few, more)), (few, more)
assert set(sizes["BWD"]) < set(sizes["FWD"]), sizes
# Backward has the recomputation: the forward pass, and something beside it.
for number, row in zip(sizes["BWD"], times["BWD"]):
    forward = times["FWD"][sizes["FWD"].index(number)]
    assert all(0 < f < b for f, b in zip(forward, row)), (forward, row)
assert all(time > 0 for time in profile["update_cpu_sec"]), profile

inputs = profile["input_activation_bytes"]
entering = [s * size + i for s, i in zip(inputs["slope"], inputs["intercept"])]
row = memory["BWD"][sizes["BWD"].index(size)]
for layer, stage in enumerate(stages):
    ledger = stage["ledger"]
    assert profile["weight_bytes"][layer] == ledger["parameters"], layer
    assert profile["optimizer_state_bytes"][layer] == ledger["optimizer"], layer
    first, last = layer == 0, layer == layers - 1
    front = 0 if first else entering[layer]
    behind = 0 if last else entering[layer + 1]
    # Tokens and labels are as large: a GPT.
    data = entering[0] if first or last else 0
    # The ledger's activations have the layer's input and what it keeps, its
    # backward the temporaries. A layer alone also has its output, and the
    # gradients of both.
    expected = (sum(ledger[key] for key in ("parameters", "gradients",
                                            "activations", "backward"))
                + front + 2 * behind + data)
    assert row[layer] == expected, (layer, row[layer], expected, ledger)
