#!/usr/bin/env python3
"""gpu_check_test.py SCRIPT --bin=DIR: scripts/gpu-check without a GPU.

The comparison of gradients, the result's tables, time limits, and predictions
from a profile that came back.
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import struct
import sys
import tempfile

os.environ["GALVATRON_BIN"] = sys.argv[2].split("=", 1)[1]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
gpu_check = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)


def tensors(path, values):
    """Writes one-dimensional tensors as safetensors."""
    head, data = {}, b""
    for name, numbers in values.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        head[name] = {"dtype": "F32", "shape": [len(numbers)],
                      "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def check_gradients(folder):
    right = {"wte": [3.0, 4.0], "h.attn.c_attn.bias": [1.0, 0.0, 0.0],
             "tiny": [1e-9, 0.0]}
    reference = tensors(folder / "right", right)
    assert gpu_check.gradient_difference(reference, reference)[0] == 0
    wrong = tensors(folder / "a", {**right, "wte": [3.0, 4.0005]})
    difference, name = gpu_check.gradient_difference(wrong, reference)
    assert name == "wte" and abs(difference - 1e-4) < 1e-6, difference
    # The parts of a fused projection are judged alone.
    wrong = tensors(folder / "b", {**right, "h.attn.c_attn.bias": [1.0, 1e-3, 0.0]})
    difference, name = gpu_check.gradient_difference(wrong, reference)
    assert name == "h.attn.c_attn.bias[1]" and difference > 1e-5, difference
    # What is nothing beside the whole may be off by 1e-7 of it.
    wrong = tensors(folder / "c", {**right, "tiny": [2e-9, 0.0]})
    assert gpu_check.gradient_difference(wrong, reference)[0] < 1e-5


def check_limits(folder):
    class Options:
        minutes, only = 1, None

    out = folder / "out"
    out.mkdir()
    check = gpu_check.Check(Options, out, folder)

    def slow(log, limit):
        gpu_check.run(["sleep", "30"], log, 0.2)

    assert not check.part("slow", slow, 5)
    assert not check.part("failing", lambda log, _: gpu_check.run(
        ["sh", "-c", "echo some error here; exit 3"], log, 5), 5)
    assert check.part("good", lambda *_: "a note", 5)
    Options.minutes = 0
    assert not check.part("late", lambda *_: None, 5)
    result = json.loads((out / "result.json").read_text())
    assert [(p["name"], p["state"]) for p in result["parts"]] == [
        ("slow", "FAILED"), ("failing", "FAILED"), ("good", "ok"),
        ("late", "left out")], result
    assert result["parts"][0]["note"] == "not done after 0 s"
    assert result["parts"][1]["note"] == "some error here"
    assert check.failed
    check.pack()
    table = (out / "result.md").read_text()
    assert "| good | ok |" in table and "a note" in table, table


def check_predictions(folder):
    """A GPU that is twice as fast halves what the planner expects."""
    for name, (model, _) in gpu_check.SPEED.items():
        (folder / f"{name}.json").write_text(json.dumps(model))
    found = []
    for scale in (1, 2):
        cluster = gpu_check.CLUSTER.format(devices=1)
        cluster = cluster.replace("500TFLOPS", f"{500 * scale}TFLOPS")
        cluster = cluster.replace("3TB/s", f"{3 * scale}TB/s")
        model, batch, micro_batches, strategy = gpu_check.PREDICTED[5]
        result = {"seconds": 1, "parts": [], "cluster": cluster, "steps": {"rows": [{
            "model": model, "batch": batch, "micro-batches": micro_batches,
            "strategy": strategy, "measured-ms": 100.0, "planned-peak-bytes": 2 << 30,
            "measured-peak-bytes": 2 << 30, "device-peak-bytes": None,
            "start-up-seconds": 1.0}]}}
        gpu_check.predict(folder, result, folder)
        row = json.loads((folder / "result.json").read_text())["steps"]["rows"][0]
        assert abs(row["error"] - (row["predicted-ms"] / 100 - 1)) < 1e-12
        assert "mean error" in (folder / "result.md").read_text()
        found.append(row["predicted-ms"])
    assert found[0] > 1 and abs(found[0] / found[1] - 2) < 0.01, found


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    check_gradients(folder)
    check_limits(folder)
    check_predictions(folder)
