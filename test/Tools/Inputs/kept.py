"""Compares the memory that ranks planned and used with a plan's stages."""
import json
import sys

plan, summary = (json.load(open(name)) for name in sys.argv[1:])
peaks = [s["peak-bytes"] for s in plan["stages"] for _ in s["devices"]]
for rank, peak in zip(summary["ranks"], peaks, strict=True):
    assert rank["planned-peak-bytes"] == peak, (rank, peak)
    assert 0.95 * peak <= rank["measured-peak-bytes"] <= peak, (rank, peak)
