"""Compares plans: check_executed.py EXECUTED PAPER UNIFORM (plan JSON)."""
import json
import sys

executed, paper, uniform = (json.load(open(path)) for path in sys.argv[1:])
assert executed["objective"] == uniform["objective"] == "executed"
assert paper["objective"] == "paper" and "bound-ms" not in paper
for plan in (executed, uniform):
    assert plan["iteration-ms"] <= plan["bound-ms"] * (1 + 1e-9), plan["bound-ms"]
assert executed["iteration-ms"] <= 1.02 * uniform["iteration-ms"]
assert executed["iteration-ms"] < 0.9 * paper["simulated-iteration-ms"]
print("no slower than the uniform pipeline, faster than the plan of Eq. 9")
