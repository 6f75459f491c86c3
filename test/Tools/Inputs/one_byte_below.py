# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans with exactly the memory that the plan needs, and with one byte less."""

import json
import subprocess
import sys


def plan(*extra):
    done = subprocess.run([*sys.argv[1:], "--json=-", *extra],
                          capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


code, result = plan()
assert code == 0, result
need = max(stage["peak-bytes"] for stage in result["stages"])
for stage in result["stages"]:
    assert sum(stage["ledger"].values()) == stage["peak-bytes"], stage
code, result = plan(f"--memory={need}B")
assert code == 0, result
code, result = plan(f"--memory={need - 1}B")
assert code == 1, result
assert result["infeasible"]["needed-bytes"] == need, result
assert result["infeasible"]["available-bytes"] == need - 1, result
