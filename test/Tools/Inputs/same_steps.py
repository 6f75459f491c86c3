# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares two logs step by step, as those of one batch cut differently: rates are
equal, losses and norms nearly so.

    same_steps.py LOG LOG
"""

import json
import sys

first, second = ([json.loads(line) for line in open(path)]
                 for path in sys.argv[1:])
assert len(first) == len(second) > 4
assert first[-1]["loss"] < first[0]["loss"]
for one, other in zip(first, second):
    assert one["lr"] == other["lr"], (one, other)
    for key in ("loss", "grad-norm"):
        assert abs(one[key] - other[key]) < 1e-4 * other[key], (one, other)
